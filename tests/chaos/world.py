"""A world for a chaos run: producer and four consumers as processes, a broker or three, sandbox API and registry here.

`run.py` lets traffic and weather loose on it; `judge.py` says what must be true in the end.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import assert_never

import nats
import nats.errors
from msgspec.structs import replace
from nats.aio.client import Client

from sandbox.faults import Fault
from sandbox.world import Options
from sandbox.world import World as Sandbox
from sandbox.world import world as sandbox_world
from shared.broker import BrokerSettings
from shared.streams import stream_configs
from tests.chaos.brokers import Brokers, brokers
from tests.chaos.traffic import MODELS
from tests.chaos.watching import Writes
from tests.chaos.weather import ERROR_RATE, LOST_REPLY_RATE, PODS, Strike, What
from tests.cluster.processes import Guard
from tests.e2e.pipeline import ID, STREAMS, SUBJECTS
from tests.e2e.role import Role
from tests.eventually import eventually

LEASE_S = 3.0
_START_WITHIN_S = 60.0
_ALWAYS = Fault(error_rate=ERROR_RATE, lost_reply_rate=LOST_REPLY_RATE)


class World:
    """Everything that runs, with the faults that can strike it. `struck` counts those that did, when they are over."""

    def __init__(self, directory: Path, sandbox: Sandbox, broker: Brokers, guard: Guard) -> None:
        self.sandbox = sandbox
        self.broker = broker
        self.writes = Writes(sandbox.registry)
        self.struck: Counter[What] = Counter()
        self.effects = directory / "effects.jsonl"
        self._directory = directory
        self._guard = guard
        self.producer = self._role("producer", "producer", {"POD_NAME": "producer-0"})
        lease = {"SHARD_LEASE_S": str(LEASE_S), "WITNESS": str(self.effects)}
        self.pods = {name: self._role("tests.chaos.witness", name, lease | {"POD_NAME": name}) for name in PODS}
        self._busy = {role: asyncio.Lock() for role in (self.producer, *self.pods.values())}

    def _role(self, module: str, name: str, environ: dict[str, str]) -> Role:
        given = {
            **self.sandbox.environ,
            "NATS_URL": self.broker.url,
            "STREAM_REPLICAS": str(self.broker.replicas),
            **environ,
        }
        return Role(module, given, self._directory / f"{name}.log", self._guard)

    async def start(self) -> None:
        """Start all processes, and wait until every shard has an owner."""
        roles = (self.producer, *self.pods.values())
        await asyncio.gather(*(role.launch() for role in roles))
        await eventually(self._all_owned, "every shard has an owner", _START_WITHIN_S)

    async def _all_owned(self) -> bool:
        if not all([await role.is_ready() for role in (self.producer, *self.pods.values())]):
            return False
        owned = [await pod.metric("isvc_sync_shards_owned") for pod in self.pods.values()]
        return sum(owned) == SUBJECTS.shards and all(owned)

    async def close(self) -> None:
        for role in (self.producer, *self.pods.values()):
            await role.close()

    def disturb_registry(self, *faults: Fault, seed: int | None = None) -> None:
        self.sandbox.registry.faults.set(*faults, _ALWAYS, seed=seed)

    async def strike(self, strike: Strike) -> None:
        """Let one fault strike; return when it is over."""
        match strike.what:
            case What.BROKER_KILLED:
                await self.broker.kill_leader(strike.lasts_s)
            case What.NODE_AWAY:
                await self.broker.send_one_away(strike.lasts_s)
            case What.POD_KILLED:
                await self._end(self.pods[strike.target], signal.SIGKILL)
            case What.POD_STOPPED:
                await self._end(self.pods[strike.target], signal.SIGTERM)
            case What.POD_PAUSED:
                await self._pause(strike.target, strike.lasts_s)
            case What.PRODUCER_KILLED:
                await self._end(self.producer, signal.SIGKILL)
            case What.REGISTRY_AWAY:
                await self._registry_away(strike.lasts_s)
            case _:
                assert_never(strike.what)
        self.struck[strike.what] += 1

    async def _end(self, role: Role, how: signal.Signals) -> None:
        """End a process and start it again."""
        async with self._busy[role]:
            if how is signal.SIGKILL:
                await role.kill()
            else:
                code = await role.stop()
                assert code in {0, -how}, (
                    f"a consumer that was told to stop ended with {code}"
                )  # -how: it had only begun
            await role.launch()

    async def _pause(self, name: str, pause_s: float) -> None:
        pod = self.pods[name]
        async with self._busy[pod]:
            os.kill(pod.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(pause_s)
            finally:
                with suppress(ProcessLookupError):  # somebody has ended it after all, and the next strike will say so
                    os.kill(pod.pid, signal.SIGCONT)

    async def _registry_away(self, away_s: float) -> None:
        self.disturb_registry(Fault(outage=True))
        try:
            await asyncio.sleep(away_s)
        finally:
            self.disturb_registry()

    def faults_of_our_own(self) -> list[str]:
        """Return what no fault from outside excuses: a process that ended by itself, an exception that was logged."""
        roles = {"producer": self.producer, **self.pods}
        found = [f"{name} has ended by itself" for name, role in roles.items() if role.has_died]
        logged = (
            (name, entry["exception"])
            for name, role in roles.items()
            for entry in role.entries()
            if "exception" in entry
        )
        return [*found, *(f"{name} logged: {exception.splitlines()[-1]}" for name, exception in logged)]

    def buried(self) -> frozenset[int]:
        """Return the sequences of messages that were buried unhandled, since their consumer died with them three times.

        Kills strike blindly, and a consumer that a busy machine leaves without a turn for longer than its lease is dead
        to the others. So one message may be at hand at three deaths that were not its fault.
        """
        errors = (entry for pod in self.pods.values() for entry in pod.entries("ERROR"))
        letters = (entry for entry in errors if entry["message"] == "dead letter")
        return frozenset(entry["sequence"] for entry in letters if entry["reason"].startswith("the consumer died"))

    async def waiting(self) -> dict[str, tuple[int, int]]:
        """Return what is pending and what is un-acked, by durable consumer. Raises nats.errors.Error."""
        client = await nats.connect(self.broker.url.split(","), connect_timeout=1, max_reconnect_attempts=1)
        try:
            infos = await client.jetstream(timeout=2).consumers_info(STREAMS.events)
        finally:
            await client.close()
        waits = {info.name: (info.num_pending or 0, info.num_ack_pending or 0) for info in infos}
        return {name: waits[name] for name in map(SUBJECTS.durable, range(SUBJECTS.shards))}


@asynccontextmanager
async def chaos_world(directory: Path, nodes: int, guard: Guard) -> AsyncIterator[World]:
    """Start a world; nothing of it outlives the block, or the guard."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(brokers(directory / "nats", nodes, guard))
        sandbox = await stack.enter_async_context(sandbox_world(directory, Options(broker=False, kserve=False)))
        lists = json.dumps({"serviceAnnotationDisallowedList": [], "serviceLabelDisallowedList": [ID]})
        where = ("kserve", "inferenceservice-config")
        sandbox.cluster.patch("ConfigMap", where, {"data": {"inferenceService": lists}})
        sandbox.registry.seed(
            registered_models=[{"id": model, "name": f"model-{model}"} for model in MODELS],
            model_versions=[
                {"id": version, "name": f"v{version}", "registeredModelId": model}
                for model, versions in MODELS.items()
                for version in versions
            ],
        )
        client = await nats.connect(broker.url.split(","))
        await _keep_leases(client, broker.replicas)
        await client.close()
        world = World(directory, sandbox, broker, guard)
        stack.push_async_callback(world.close)
        await world.start()
        yield world


async def _keep_leases(client: Client, replicas: int) -> None:
    """Make the stream of leases as isvc-sync does, but for its memory: the judge wants to see every lease there was."""
    settings = replace(BrokerSettings(), stream_replicas=replicas)
    config = next(each for each in stream_configs(settings) if each.name == STREAMS.lease)
    config.max_msgs_per_subject = -1
    await client.jetstream(timeout=10).add_stream(config)
