"""A tool that removes our id each time, in virtual time, against the whole loop: queue, handler, reconciler, actor."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from consumer.act import WRITES_MAX, WRITES_PER_S, Actor
from consumer.delivery.workqueue import WorkQueue
from consumer.handle import Handler, Hooks, Sources
from consumer.notices import Topic
from consumer.reconcile import Reconciler
from consumer.worker import Worker
from consumer.writeback import WriteBack
from tests.unit.consumer.custody import sole_owner
from tests.unit.consumer.deliveries import event_work
from tests.unit.consumer.fakes import FakeDeadLetters, FakeEvents, FakeKubernetes, FakeRegistries, FakeRegistry
from tests.unit.consumer.worlds import ID, KEY, MODEL, PREFIX, READY, SETTINGS, VERSION, an_object, carrying

pytestmark = pytest.mark.looptime(start=0)

# Sums of these are exact in binary: the virtual clock stands still just before a time that it cannot show.
PAUSE_S, ANSWER_S = 0.25, 0.0625


class World(FakeKubernetes):
    """A cluster whose objects tell the consumer of each change; `tool` is asked after each write of ours."""

    def __init__(self, settings):
        super().__init__()
        self.registry = FakeRegistry()
        self.told = []
        self.words = []
        self.patched_at = []
        self.sequence = 0
        self.tool = None
        self.events = FakeEvents()
        self.worker = Worker(WorkQueue(PREFIX, PAUSE_S), sole_owner())
        actor = Actor(self, settings, lambda _: None, self.words.append, lambda _, notice: self.told.append(notice))
        registries = FakeRegistries(settings, only=self.registry)
        self.reconciler = Reconciler(actor, registries, settings, self.worker.look_again)
        hooks = Hooks(lambda: 0.5, lambda: "2026-11-30T12:00:00Z", lambda *_: None)
        self.handler = Handler(self.reconciler, Sources(self.events, actor.live), FakeDeadLetters(), hooks)

    async def patch(self, key, operations):
        await super().patch(key, operations)
        self.patched_at.append(now())
        self._tell()
        if self.tool is not None:
            asyncio.get_running_loop().call_later(ANSWER_S, self.tool)

    def write(self, obj):
        """Write as somebody else."""
        version = int(self.objects[KEY]["metadata"]["resourceVersion"]) + 1 if KEY in self.objects else 10
        self.put(replace(obj, metadata=replace(obj.metadata, resource_version=str(version))))
        self._tell()

    def remove_label(self):
        """Do what a GitOps tool does: put the object back to what stands in its repository."""
        raw = self.objects[KEY]
        if ID in raw["metadata"]["labels"]:
            del raw["metadata"]["labels"][ID]
            raw["metadata"]["resourceVersion"] = str(int(raw["metadata"]["resourceVersion"]) + 1)
            self._tell()

    def _tell(self):
        raw = self.objects[KEY]
        obj = replace(self.shape, metadata=replace(
            self.shape.metadata, labels=dict(raw["metadata"]["labels"]),
            resource_version=raw["metadata"]["resourceVersion"],
        ))  # fmt: skip
        self.sequence += 1
        work = event_work(obj, sequence=self.sequence, digest=f"v1:{self.sequence:016x}")
        self.events.by_key[KEY] = work.seen
        self.worker.offer(work)

    def put(self, obj):
        self.shape = obj
        super().put(obj)


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def running(settings=SETTINGS):
    world = World(settings)
    task = asyncio.create_task(world.worker.run(world.handler.handle))
    try:
        yield world
        assert not task.done(), "the worker ended"
    finally:
        task.cancel()
        await world.worker.drain(0)
        await asyncio.wait([task])


def most_within(times: list[float], per_s: float) -> int:
    """Return how many of the times lie in the fullest window."""
    return max((sum(start <= each < start + per_s for each in times) for start in times), default=0)


async def test_a_tool_that_removes_the_label_is_answered_three_times_a_minute_and_the_label_stays_when_it_ends():
    async with running() as world:
        world.tool = world.remove_label
        world.write(an_object())
        await asyncio.sleep(600)
        assert most_within(world.patched_at, WRITES_PER_S) == WRITES_MAX == 3
        assert len(world.patched_at) >= 10 * WRITES_MAX, "it does not give up"
        assert world.words.count("limited") >= 9
        assert world.reconciler.memory.deferred() == 1
        world.tool = None
        await asyncio.sleep(2 * WRITES_PER_S)
        assert world.labels(KEY)[ID] == world.registry.only.id
        assert world.reconciler.memory.deferred() == 0
        assert world.registry.writes == 2, "the environment and the record: nothing of the fight reaches the registry"
        assert Topic.WRITE_BACK_LIMITED in {notice.topic for notice in world.told}
        writes = len(world.patched_at)
        await asyncio.sleep(600)
        assert len(world.patched_at) == writes


async def test_while_it_waits_a_storm_of_events_costs_no_write_and_one_look_when_it_is_due():
    async with running() as world:
        world.tool = world.remove_label
        world.write(an_object())
        await asyncio.sleep(5)
        assert len(world.patched_at) == WRITES_MAX
        world.calls.clear()
        for version in range(200):
            world.write(an_object({MODEL: "1", VERSION: "11"}, status=replace(READY, url=f"http://{version}")))
            await asyncio.sleep(0.125)
        world.write(an_object())
        assert now() < world.patched_at[0] + WRITES_PER_S
        assert len(world.patched_at) == WRITES_MAX
        assert world.calls["get"] == 0
        world.tool = None
        await asyncio.sleep(WRITES_PER_S)
        assert len(world.patched_at) == WRITES_MAX + 1
        assert world.calls["get"] <= 5
        assert world.labels(KEY)[ID] == world.registry.only.id


async def test_an_object_that_goes_while_its_id_waits_is_not_written_to():
    async with running() as world:
        world.tool = world.remove_label
        world.write(an_object())
        await asyncio.sleep(5)
        assert world.reconciler.memory.deferred() == 1
        world.write(an_object(going=True))
        await asyncio.sleep(2 * WRITES_PER_S)
        assert len(world.patched_at) == WRITES_MAX
        assert not world.registry.only.deployed
        assert world.reconciler.memory.deferred() == 0


async def test_a_tool_that_writes_an_id_of_its_own_is_answered_as_seldom():
    async with running(replace(SETTINGS, write_back=WriteBack.ALWAYS)) as world:
        world.tool = lambda: world.write(carrying(an_object(status=READY), "99"))
        world.write(an_object(status=READY))
        await asyncio.sleep(300)
        assert most_within(world.patched_at, WRITES_PER_S) == WRITES_MAX
        world.tool = None
        await asyncio.sleep(2 * WRITES_PER_S)
        assert world.labels(KEY)[ID] == world.registry.only.id


async def test_another_object_has_three_writes_of_its_own():
    async with running() as world:
        world.tool = world.remove_label
        world.write(an_object())
        await asyncio.sleep(5)
        assert len(world.patched_at) == WRITES_MAX
        newer = an_object()
        world.write(replace(newer, metadata=replace(newer.metadata, uid="another")))
        await asyncio.sleep(5)
        assert len(world.patched_at) == 2 * WRITES_MAX
