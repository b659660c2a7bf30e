"""A real producer that is killed twenty times while much happens, and the stream that it leaves in the end."""

import asyncio
import random
import statistics
import time
from collections import Counter

import pytest

from sandbox.cluster import ClusterSandbox
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from tests.cluster.chaos_stream import Stream, Truth, agreement, disagreements, disorder, following, living
from tests.e2e.role import Role
from tests.eventually import eventually
from tests.integration.producer.real_process import real_producer
from tests.integration.producer.worlds import isvc

SEED = 2026
OBJECTS = 1000
CHANGES, DELETES, CREATES = 2000, 500, 140
DEATHS = ["starting"] * 4 + ["comparing"] * 6 + ["watching"] * 10
LAST_S = 0.4  # a life goes on for at most so long after the producer has come so far
STRUCK_TURNS = 100  # and ends so soon, at most, after a burst of changes, or the producer would mostly be idle
BURSTS, BURST = 4, 33
VERSION = "modelregistry.kubeflow.org/model-version-id"


class Churn:
    """What happens to the cluster: a fixed number of label changes, deletes and creates, in the order of a seed.

    Deleted are only objects that were there from the beginning, and so were published: each must get its tombstone.
    More than a quarter of their names are taken again, by other objects.
    """

    def __init__(self, cluster: ClusterSandbox, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        keys = [ObjectKey(tuple(Kind)[number % 2], "ns", f"m{number}") for number in range(OBJECTS)]
        for key in keys:
            self._create(key)
        self._alive = dict.fromkeys(keys)
        self._victims = chance.sample(keys, DELETES)
        self._free: list[ObjectKey] = []
        self.deleted: set[str] = set()
        self.left = ["change"] * CHANGES + ["delete"] * DELETES + ["create"] * CREATES
        chance.shuffle(self.left)

    def happen(self, count: int) -> None:
        for what in self.left[:count]:
            self._happen(what)
        del self.left[:count]

    def _happen(self, what: str) -> None:
        match what:
            case "delete":
                key = self._victims.pop()
                metadata = self._cluster.get(key.kind.kubernetes_kind, key.namespace, key.name)["metadata"]
                self._cluster.delete(key.kind.kubernetes_kind, key.namespace, key.name)
                self.deleted.add(metadata["uid"])
                del self._alive[key]
                self._free.append(key)
            case "create" if self._free:
                key = self._free.pop(self._chance.randrange(len(self._free)))
                self._create(key)
                self._alive[key] = None
            case _:
                key = self._chance.choice([*self._alive])
                labels = {VERSION: str(self._chance.randrange(1_000_000))}
                where = (key.namespace, key.name)
                self._cluster.patch(key.kind.kubernetes_kind, where, {"metadata": {"labels": labels}})

    def _create(self, key: ObjectKey) -> None:
        self._cluster.create(isvc(key.name, key.namespace, model="1", kind=key.kind.kubernetes_kind))


async def truth(cluster: ClusterSandbox) -> Truth:
    return {key: found for kind in Kind for key, found in living(kind, cluster.list(kind.kubernetes_kind)).items()}


@pytest.fixture
async def producer(world, tmp_path):
    async with real_producer(world, tmp_path / "producer.log") as role:
        yield role


async def live_and_die(producer: Role, churn: Churn, until: str, chance: random.Random) -> None:
    """Start the producer, and kill it when it has come so far; let a share of the changes happen meanwhile."""
    await producer.launch()
    churn.happen(BURST)
    await eventually(lambda: has_come(producer, until), f"it is {until}")
    last_s = chance.uniform(0, LAST_S)
    for _ in range(BURSTS - 1):
        await asyncio.sleep(last_s / BURSTS)
        churn.happen(BURST)
    for _ in range(chance.randrange(STRUCK_TURNS)):  # of the loop that also serves its watch: on a busy machine, too
        await asyncio.sleep(0)
    producer.strike()
    await producer.kill()


def has_come(producer: Role, until: str) -> bool:
    said = Counter(entry["message"] for entry in producer.entries(since=producer._log_start))
    match until:
        case "starting":
            return True
        case "comparing":
            return said["connected to NATS"] > 0
        case _:
            return said["list is complete"] == len(Kind)


async def unsaid(cluster: ClusterSandbox, stream: Stream) -> int:
    """Return of how many objects the stream does not say what the cluster says."""
    await eventually(stream.is_read)
    return len(disagreements(await truth(cluster), stream))


async def test_R31_killed_twenty_times_under_two_thousand_changes_and_five_hundred_deletes(
    world, producer, record_property
):
    chance = random.Random(SEED)
    churn = Churn(world.cluster, chance)
    deaths = chance.sample(DEATHS, len(DEATHS))
    await producer.start()
    async with following(world.broker.url) as stream:
        await agreement(lambda: truth(world.cluster), stream, 20.0)
        await producer.kill()
        began = time.monotonic()
        left_behind = []
        for until in deaths:
            await live_and_die(producer, churn, until, chance)
            left_behind.append(await unsaid(world.cluster, stream))
        assert not churn.left
        killed_s = time.monotonic() - began
        await producer.start()
        await agreement(lambda: truth(world.cluster), stream, 20.0)
        total_s = time.monotonic() - began
        figures = (
            f"seed {SEED}: {sum(map(bool, left_behind))} of {len(deaths)} kills left something unsaid, of "
            f"{statistics.median(left_behind):.0f} objects in the median and {max(left_behind)} at most; "
            f"{len(stream.events)} events; right again {total_s - killed_s:.1f} s after the last start"
        )
        record_property("figures", figures)
        assert sum(map(bool, left_behind)) >= 15, left_behind
        assert {event.uid for event in stream.of(EventType.DELETED)} == churn.deleted
        assert len(churn.deleted) == DELETES
        assert disorder(stream.events) == []
        assert len({event.epoch for event in stream.events}) == 1
        assert len({event.id for event in stream.events}) == len(stream.events), "nothing is stored twice"
