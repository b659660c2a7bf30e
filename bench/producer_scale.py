"""How much memory and time the producer takes for a large cluster.

    python -m bench.producer_scale --objects 100000

A real nats-server, a Kubernetes API over generated objects, and `python -m producer` as a process of its own live
through a start, relists (the watch expires, and some changes were missed) and a storm of status updates, half of which
matter. The exit code is 1 when the producer took more memory than the limit in any phase, or said the wrong number of
events. Linux only. It wants two processors to itself, and about 5 KB of disk for each object.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import nats
from nats.aio.client import Client

from bench.api import FleetApi
from bench.fleet import Fleet
from bench.process import Memory, Process, producer, variables, write_kubeconfig
from sandbox.broker import NatsServer
from shared.streams import stream_names

_MIB = 1024 * 1024
_STREAM = stream_names("isvc").events
_POLL_S = 0.1
_PHASE_S_MAX = 900.0
_STORM_BATCH = 100
_MISSED_SHARE = 100  # one object in so many changes while a watch is expired


class Arguments(msgspec.Struct, frozen=True):
    objects: int
    relists: int
    updates: int
    limit_mib: int
    pages: bool


class Phase(msgspec.Struct, frozen=True):
    """What one phase took. `seen` counts the objects or updates that the producer was shown."""

    name: str
    seconds: float
    processor_s: float
    seen: int
    published: int
    memory: Memory

    def row(self) -> str:
        resident, peak = (value / _MIB for value in (self.memory.resident, self.memory.peak))
        rate = self.seen / self.seconds
        return (
            f"{self.name:<20} {self.seconds:>8.1f} {self.processor_s:>8.1f} {self.seen:>9,} {rate:>9,.0f}"
            f" {self.published:>10,} {resident:>8.1f} {peak:>9.1f}"
        )


HEADER = (
    f"{'phase':<20} {'seconds':>8} {'cpu s':>8} {'seen':>9} {'seen/s':>9} {'published':>10} {'RSS MiB':>8}"
    f" {'peak MiB':>9}"
)


class Stage:
    """The three parties, and how far they are."""

    def __init__(self, api: FleetApi, client: Client, process: Process) -> None:
        self.api = api
        self.fleet = api.fleet
        self._client = client
        self._process = process
        self._markers = 0
        self._expected = 0  # messages in the stream
        self._changed = 0  # the storm goes through the objects one after the other

    async def listen(self) -> None:
        """Count the sync markers from here on."""

        async def note(_: object) -> None:
            self._markers += 1

        await self._client.subscribe("isvc.bench.sync.isvc", cb=note)

    @asynccontextmanager
    async def phase(self, name: str, seen: int, phases: list[Phase]) -> AsyncIterator[None]:
        """Measure what happens inside, and append it."""
        self._process.forget_peak()
        began, used, stored = time.monotonic(), self._process.processor_s(), await self._stored()
        yield
        seconds = time.monotonic() - began
        published = await self._stored() - stored
        found = Phase(name, seconds, self._process.processor_s() - used, seen, published, self._process.memory())
        phases.append(found)
        print(found.row(), flush=True)

    async def start(self) -> None:
        """Wait for the first complete list."""
        await self._listed(self.fleet.size)

    async def relist(self) -> None:
        """Let changes be missed, and wait until a list has found them."""
        missed = self.fleet.size // _MISSED_SHARE
        for number in self._next(missed):
            self.fleet.change(number, relevant=True)
        self.api.expire()
        await self._listed(missed)

    async def storm(self, updates: int) -> None:
        """Change status after status, every second one in a way that matters, as fast as the producer reads."""
        told = 0
        while told < updates:
            numbers = list(self._next(min(_STORM_BATCH, updates - told)))
            for place, number in enumerate(numbers):
                self.fleet.change(number, relevant=place % 2 == 0)
            await self.api.modified(numbers)
            told += len(numbers)
        self._expected += (updates + 1) // 2
        await self._until(self._complete)

    def _next(self, count: int) -> Iterator[int]:
        for _ in range(count):
            yield self._changed % self.fleet.size
            self._changed += 1

    async def _listed(self, published: int) -> None:
        self._expected += published + 1  # and the marker
        markers = self._markers

        async def done() -> bool:
            return self._markers > markers and await self._complete()

        await self._until(done)

    async def _complete(self) -> bool:
        stored = await self._stored()
        if stored > self._expected:
            raise RuntimeError(f"the stream holds {stored} messages instead of {self._expected}")
        return stored == self._expected

    async def _stored(self) -> int:
        """Return the last sequence of the stream: how many messages it ever took."""
        try:
            return int((await self._client.jetstream().stream_info(_STREAM)).state.last_seq)
        except nats.js.errors.NotFoundError:
            return 0

    async def _until(self, done: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(_PHASE_S_MAX):
            while not await done():
                self._process.require_alive()
                await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def stage(directory: Path, arguments: Arguments) -> AsyncIterator[Stage]:
    """Start the parties, the producer last."""
    async with (
        NatsServer(directory / "nats") as broker,
        FleetApi(Fleet(arguments.objects), watch_list=not arguments.pages) as api,
    ):
        client = await nats.connect(broker.url)
        environ = variables(write_kubeconfig(directory, api.url), broker.url)
        try:
            async with producer(directory, environ) as process:
                found = Stage(api, client, process)
                await found.listen()
                yield found
        finally:
            await client.close()


async def measure(directory: Path, arguments: Arguments) -> list[Phase]:
    phases: list[Phase] = []
    objects = arguments.objects
    async with stage(directory, arguments) as found:
        print(HEADER, flush=True)
        async with found.phase("start", objects, phases):
            await found.start()
        for number in range(1, arguments.relists + 1):
            async with found.phase(f"relist {number}", objects, phases):
                await found.relist()
        async with found.phase("storm", arguments.updates, phases):
            await found.storm(arguments.updates)
        print(f"requests: {found.api.asked}; {found.api.bytes_sent / _MIB:,.0f} MiB sent", flush=True)
    return phases


def main(arguments: Arguments) -> int:
    with tempfile.TemporaryDirectory(prefix="isvc-sync-bench-") as directory:
        phases = asyncio.run(measure(Path(directory), arguments))
    peak = max(phase.memory.peak for phase in phases) / _MIB
    holds = peak <= arguments.limit_mib
    print(f"{'ok' if holds else 'TOO MUCH'}: peak {peak:.1f} MiB, limit {arguments.limit_mib} MiB")
    return 0 if holds else 1


def parsed(argv: list[str]) -> Arguments:
    parser = argparse.ArgumentParser(prog="python -m bench.producer_scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--relists", type=int, default=10)
    parser.add_argument("--updates", type=int, default=50_000, help="status updates in the storm; half of them matter")
    parser.add_argument("--limit-mib", type=int, default=150, help="of resident memory")
    parser.add_argument("--pages", action="store_true", help="an API server without WatchList: lists come in pages")
    return Arguments(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main(parsed(sys.argv[1:])))
