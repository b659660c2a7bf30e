"""How long the producer takes to list and publish a cluster, against the sandbox's Kubernetes API.

    python -m bench.producer_start --objects 10000

From nothing to the sync marker, which says that everything is acknowledged: once with an empty stream, and once more
with all objects in it. The sandbox's API shares the processors with the producer; at this size it is fast enough. The
exit code is 1 when the first start took longer than the limit.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import nats
from nats.aio.client import Client

from bench.fleet import Fleet
from bench.process import producer, variables
from sandbox import cluster as kubernetes
from sandbox.broker import NatsServer
from sandbox.cluster import ClusterSandbox

_MIB = 1024 * 1024
_POLL_S = 0.005
_START_S_MAX = 300.0
_WATCH = re.escape("inferenceservices.serving.kserve.io?watch")


class Start(msgspec.Struct, frozen=True):
    """Seconds from the start of the process to the sync marker, and from its request for the list; peak memory."""

    whole_s: float
    listing_s: float
    processor_s: float
    peak: int


def fill(cluster: ClusterSandbox, size: int) -> None:
    """Create objects with their status, which the sandbox's API takes apart from the rest."""
    for found in Fleet(size).objects():
        obj = msgspec.json.decode(found)
        for given in ("resourceVersion", "uid"):  # the server's to give
            del obj["metadata"][given]
        where = obj["metadata"]["namespace"], obj["metadata"]["name"]
        cluster.create(obj)
        cluster.patch("InferenceService", where, {"status": obj["status"]}, part="status")


async def measure(directory: Path, cluster: ClusterSandbox, client: Client, nats_url: str) -> Start:
    """Start a producer, and end it after its sync marker."""
    marked = asyncio.Event()

    async def note(_: object) -> None:
        marked.set()

    subscription = await client.subscribe("isvc.bench.sync.isvc", cb=note)
    asked = cluster.requests.total(route=_WATCH)
    began = time.monotonic()
    environ = variables(cluster.write_kubeconfig(directory / "kubeconfig"), nats_url)
    async with producer(directory, environ) as process, asyncio.timeout(_START_S_MAX):
        while cluster.requests.total(route=_WATCH) == asked:
            process.require_alive()
            await asyncio.sleep(_POLL_S)
        listing = time.monotonic()
        await marked.wait()
        ended = time.monotonic()
        found = Start(ended - began, ended - listing, process.processor_s(), process.memory().peak)
    await subscription.unsubscribe()
    return found


async def starts(directory: Path, size: int) -> list[Start]:
    async with NatsServer(directory / "nats") as broker, kubernetes.serve() as cluster:
        fill(cluster, size)
        client = await nats.connect(broker.url)
        try:
            return [await measure(directory, cluster, client, broker.url) for _ in range(2)]
        finally:
            await client.close()


def main(size: int, limit_s: float) -> int:
    with tempfile.TemporaryDirectory(prefix="isvc-sync-bench-") as directory:
        found = asyncio.run(starts(Path(directory), size))
    print(f"{'stream':<10} {'seconds':>8} {'from the list':>14} {'cpu s':>8} {'peak MiB':>9}")
    for name, start in zip(("empty", "filled"), found, strict=True):
        print(
            f"{name:<10} {start.whole_s:>8.1f} {start.listing_s:>14.1f} {start.processor_s:>8.1f}"
            f" {start.peak / _MIB:>9.1f}"
        )
    holds = found[0].whole_s <= limit_s
    print(f"{'ok' if holds else 'TOO SLOW'}: {size:,} objects in {found[0].whole_s:.1f} s, limit {limit_s:.0f} s")
    return 0 if holds else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.producer_start", description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--limit-s", type=float, default=5.0)
    given = parser.parse_args()
    sys.exit(main(given.objects, given.limit_s))
