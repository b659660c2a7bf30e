"""Consumers come and go under load: every change is recorded once, and nobody touches a shard that is not theirs."""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats

from consumer.ownership.targets import Lease, target
from tests.e2e.pipeline import STANDARD, SUBJECTS, Pipeline, isvc
from tests.e2e.role import Role
from tests.eventually import eventually

LEASE_S = 3.0
VERSIONS = [str(number) for number in range(101, 111)]
OBJECTS = 60
WITNESS, POISONED = "tests.e2e.witness", "tests.e2e.poisoned"


class Leases:
    """What the broker stored of each shard's lease, with the time: who owned it from when on."""

    def __init__(self) -> None:
        self.history: list[tuple[float, int, str]] = []

    async def note(self, message: Any) -> None:
        lease = msgspec.json.decode(message.data, type=Lease)
        shard = int(message.subject.rpartition(".")[2])
        self.history.append((message.metadata.timestamp.timestamp(), shard, lease.member))

    def owner(self, shard: int, at: float) -> str:
        """Return who held the lease at a moment, as the broker's own times say."""
        holders = [member for stored_at, of, member in self.history if of == shard and stored_at <= at]
        return holders[-1] if holders else ""


@asynccontextmanager
async def watched_leases(pipeline: Pipeline) -> AsyncIterator[Leases]:
    leases = Leases()
    client = await nats.connect(pipeline.broker.url)
    try:
        await client.jetstream().subscribe("isvc.*.lease.shard.*", cb=leases.note, ordered_consumer=True)
        yield leases
    finally:
        await client.close()


class Pods:
    """Consumers by name, with what each did."""

    def __init__(self, pipeline: Pipeline, directory: Path, module: str = WITNESS) -> None:
        self._pipeline = pipeline
        self._directory = directory
        self._module = module
        self.running: dict[str, Role] = {}

    async def start(self, *names: str) -> None:
        await asyncio.gather(*(self.new(name).start() for name in names))

    def new(self, name: str) -> Role:
        given = {"POD_NAME": name, "SHARD_LEASE_S": str(LEASE_S), "WITNESS": str(self._effects)}
        self.running[name] = self._pipeline.another(self._module, name, given)
        return self.running[name]

    async def owned(self) -> dict[str, int]:
        return {name: int(await pod.metric("isvc_sync_shards_owned")) for name, pod in self.running.items()}

    async def share_all(self) -> dict[str, int] | None:
        """Return how many shards each has, once each has exactly those that are meant for it."""
        owned = await self.owned()
        meant = Counter(target(shard, self.running) for shard in range(SUBJECTS.shards))
        return owned if owned == {name: meant[name] for name in self.running} else None

    async def total(self, metric: str, **labels: str) -> float:
        return sum([await pod.metric(metric, **labels) for pod in self.running.values()])

    @property
    def _effects(self) -> Path:
        return self._directory / "effects.jsonl"

    def effects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._effects.read_text().splitlines()]

    async def close(self) -> None:
        for pod in self.running.values():
            await pod.close()


@asynccontextmanager
async def pods_of(pipeline: Pipeline, directory: Path, module: str = WITNESS) -> AsyncIterator[Pods]:
    pods = Pods(pipeline, directory, module)
    try:
        yield pods
    finally:
        await pods.close()


class Load:
    """Changes of version, one every few milliseconds, until it is told to end."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self._pipeline = pipeline
        self._chance = random.Random(seed)
        self._ends = asyncio.Event()
        self.versions: dict[str, str] = {}
        self.changes = 0

    async def run(self) -> None:
        for number in range(OBJECTS):
            name = f"load/object-{number:02}"
            self._pipeline.cluster.create(isvc(name, model="1", version="101", annotations=STANDARD))
            self.versions[name] = "101"
        while not self._ends.is_set():
            self._change(self._chance.choice(list(self.versions)))
            await asyncio.sleep(0.008)

    def change_each(self) -> None:
        """Change every object once more."""
        for name in self.versions:
            self._change(name)

    def _change(self, name: str) -> None:
        version = self._chance.choice([each for each in VERSIONS if each != self.versions[name]])
        self._pipeline.set_labels(name, model_version_id=version)
        self.versions[name] = version
        self.changes += 1

    def end(self) -> None:
        self._ends.set()

    def wrong(self) -> dict[str, tuple[str | None, str]]:
        """Return the objects whose one record does not say what they said last."""
        seen = {name: self._pipeline.record_of(name) for name in self.versions}
        versions = {name: record and str(record["modelVersionId"]) for name, record in seen.items()}
        return {name: (versions[name], version) for name, version in self.versions.items() if versions[name] != version}


@asynccontextmanager
async def under_load(pipeline: Pipeline, seed: int) -> AsyncIterator[Load]:
    """Change objects meanwhile; at the end every record must be right, and every message acknowledged."""
    load = Load(pipeline, seed)
    running = asyncio.create_task(load.run())
    try:
        yield load
    finally:
        load.end()
        await running
    await pipeline.settled(20.0)
    assert load.wrong() == {}
    for name in load.versions:
        record = pipeline.record_of(name)
        assert record is not None
        assert pipeline.id_label(name) == record["id"]


def misplaced(effects: list[dict[str, Any]], leases: Leases) -> list[dict[str, Any]]:
    """Return the effects that began while the lease of their shard was not in the name of their pod."""
    return [each for each in effects if leases.owner(each["shard"], each["at"]) != each["pod"]]


async def test_scaling_from_one_to_four_to_two_under_load_loses_nothing(tmp_path, guard, record_property):
    async with Pipeline(tmp_path, guard, consumer=False) as pipeline:
        pipeline.seed(dict.fromkeys(VERSIONS, "1"))
        async with watched_leases(pipeline) as leases, pods_of(pipeline, tmp_path) as pods:
            await pods.start("pod-0")
            assert await pods.owned() == {"pod-0": SUBJECTS.shards}
            async with under_load(pipeline, seed=5) as load:
                await eventually(lambda: load.changes > 100)
                scaled_at = time.monotonic()
                await pods.start("pod-1", "pod-2", "pod-3")
                spread = await eventually(pods.share_all, "four share the shards")
                up_s = time.monotonic() - scaled_at
                settled = load.changes
                await eventually(lambda: load.changes > settled + 200)
                stopped_at = time.monotonic()
                gone = [pods.running.pop(name) for name in ("pod-0", "pod-2")]
                stopping = [asyncio.create_task(pod.stop()) for pod in gone]
                await eventually(pods.share_all, "two have all shards")
                down_s = time.monotonic() - stopped_at
                assert await asyncio.gather(*stopping) == [0, 0]
                settled = load.changes
                await eventually(lambda: load.changes > settled + 100)
            effects = pods.effects()
            assert misplaced(effects, leases) == []
            assert Counter(each["pod"] for each in effects).keys() == {f"pod-{number}" for number in range(4)}
            assert await pods.total("isvc_sync_shard_takeovers_total", how="clean") > 0
            assert await pods.total("isvc_sync_shard_takeovers_total", how="unclean") == 0
        record_property(
            "figures",
            f"{load.changes} changes, {len(effects)} effects; "
            f"1 to 4 pods in {up_s:.1f} s ({spread}), 4 to 2 in {down_s:.2f} s",
        )
        assert down_s < LEASE_S, "they were given away, and did not run out"


async def test_a_consumer_that_was_paused_starts_no_effect_when_it_wakes_up(tmp_path, guard, record_property):
    async with Pipeline(tmp_path, guard, consumer=False) as pipeline:
        pipeline.seed(dict.fromkeys(VERSIONS, "1"))
        async with watched_leases(pipeline) as leases, pods_of(pipeline, tmp_path) as pods:
            await pods.start("pod-0", "pod-1")
            await eventually(pods.share_all)
            async with under_load(pipeline, seed=6) as load:
                await eventually(lambda: load.changes > 100)
                paused = pods.running.pop("pod-0")
                os.kill(paused.pid, signal.SIGSTOP)
                paused_at = time.monotonic()
                await eventually(pods.share_all, "the other one has all shards")
                taken_s = time.monotonic() - paused_at
                seen = load.changes
                await eventually(lambda: load.changes > seen + 100)
                os.kill(paused.pid, signal.SIGCONT)
                woke_at = time.time()
                pods.running["pod-0"] = paused
                await eventually(pods.share_all, "it has a share again")
                # What it had fenced, and not yet sent, when it was stopped has left now, over what is newer
                # (docs/ownership.md); whatever comes next is written over that.
                load.change_each()
            effects = pods.effects()
            assert misplaced(effects, leases) == []
            assert any(each["pod"] == "pod-0" and each["at"] > woke_at for each in effects), "it works again"
            assert await paused.metric("isvc_sync_fences_lost_total") > 0
        record_property("figures", f"{load.changes} changes, {len(effects)} effects; taken over in {taken_s:.1f} s")
        assert LEASE_S * 0.7 < taken_s < LEASE_S * 2


async def test_a_message_that_kills_its_consumer_is_buried_at_the_third_death_and_the_others_go_on(tmp_path, guard):
    """Under one name, as a container that is started again, and in between under another one."""
    async with Pipeline(tmp_path, guard, consumer=False) as pipeline, pods_of(pipeline, tmp_path, POISONED) as pods:
        innocent = [f"mixed/object-{number:02}" for number in range(40)]
        for number, name in enumerate(innocent):
            pipeline.cluster.create(isvc(name, model="1", annotations=STANDARD))
            if number == len(innocent) // 2:
                pipeline.cluster.create(isvc("mixed/poison", model="1", annotations=STANDARD))
        await eventually(lambda: pipeline.events_of("mixed/poison"), "the poison is in the stream")
        for name in ("pod-0", "pod-0", "pod-1"):
            pod = pods.new(name)
            await pod.launch()
            await eventually(lambda pod=pod: pod.has_died, f"{name} dies")
            await pod.kill()
            assert await pipeline.dead_letters() == {}
        await pods.start("pod-0")
        await eventually(pipeline.dead_letters, "it is buried")
        await eventually(lambda: all(map(pipeline.record_of, innocent)), "all others are recorded")
        await pipeline.settled()
        reasons = await pipeline.dead_letters()
        assert list(reasons.values()) == ["the consumer died 3 times with this message at hand"]
        assert next(iter(reasons)).endswith(".mixed.poison")
        assert pipeline.record_of("mixed/poison") is None
        assert not pods.running["pod-0"].has_died
