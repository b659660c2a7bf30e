"""What an event costs, counted where it is paid: at the registry's and the API server's request counters."""

import json

import msgspec
import pytest
import pytest_asyncio

from sandbox.world import Options
from tests.e2e.pipeline import STOP, Pipeline, isvc
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


VERSION_LABEL = {"metadata": {"labels": {"modelregistry.kubeflow.org/model-version-id": "102"}}}
RELEVANT = {
    "version": (VERSION_LABEL, ""),
    "stop": ({"metadata": {"annotations": {STOP: "true"}}}, ""),
    "url": ({"status": {"url": "http://elsewhere.example.com"}}, "status"),
}
IRRELEVANT = {
    "foreign-label": ({"metadata": {"labels": {"team": "blue"}}}, ""),
    "foreign-annotation": ({"metadata": {"annotations": {"example.com/note": "hello"}}}, ""),
    "scaling": ({"spec": {"predictor": {"minReplicas": 1, "maxReplicas": 4}}}, ""),
    "noise": ({"status": {"observedGeneration": 99, "modelStatus": {"copies": {"totalCopies": 3}}}}, "status"),
}
QUICK = 0.05  # KServe's pace but for starts: there it must leave us the time to write the label before the pod serves
NEVER = 1e6
KNOWN = "costs/known"  # has version 102, so that its existence is known: checks of models and versions count apart


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory, guard):
    """A world with an object for each test, all Ready, recorded, and at rest."""
    async with Pipeline(tmp_path_factory.mktemp("costs"), guard, Options()) as pipeline:
        pipeline.seed({"101": "1", "102": "1"})
        names = [f"costs/{change}" for change in (*RELEVANT, *IRRELEVANT, "repeated")]
        for name in names:
            pipeline.cluster.create(isvc(name, model="1", version="101"))
        pipeline.cluster.create(isvc(KNOWN, model="1", version="102"))
        await eventually(lambda: all(is_told(pipeline, name) for name in (*names, KNOWN)), "all are recorded as Ready")
        pipeline.cluster.controller.pace = QUICK
        await rest(pipeline)
        yield pipeline


def is_told(pipeline: Pipeline, name: str) -> bool:
    """Whether the object is Ready, its record says so, and it carries the record's id."""
    record = pipeline.record_of(name)
    if record is None or pipeline.id_label(name) != record["id"]:
        return False
    stamp = json.loads(record["customProperties"]["isvc-sync"]["string_value"])
    return bool(stamp["ready"]) and "url" in record["customProperties"]


async def rest(pipeline: Pipeline) -> None:
    """Wait until KServe has nothing left to do, and all that it did is handled."""
    await eventually(lambda: not pipeline.cluster.controller._work, "KServe rests")
    await pipeline.settled()


class Spent(msgspec.Struct, frozen=True):
    """Requests from now on."""

    reads: int
    writes: int
    patches: int
    everything: int

    @classmethod
    def so_far(cls, pipeline: Pipeline) -> "Spent":
        requests = pipeline.registry.requests.total() + pipeline.patches()
        return cls(pipeline.reads(), pipeline.writes(), pipeline.patches(), requests)

    @classmethod
    def since(cls, before: "Spent", pipeline: Pipeline) -> "Spent":
        now = cls.so_far(pipeline)
        return cls(*(getattr(now, field) - getattr(before, field) for field in cls.__struct_fields__))


NOTHING = Spent(0, 0, 0, 0)


async def test_a_new_object_costs_at_most_three_writes_until_ready_and_one_successful_patch(shared):
    before, patched = Spent.so_far(shared), await shared.consumer.metric("isvc_sync_writeback_total", result="patched")
    shared.cluster.controller.pace = 1.0
    shared.cluster.create(isvc("costs/new", model="1", version="101"))
    await eventually(lambda: is_told(shared, "costs/new"), "the new one is recorded as Ready")
    shared.cluster.controller.pace = QUICK
    await rest(shared)
    assert 1 <= Spent.since(before, shared).writes <= 3
    assert await shared.consumer.metric("isvc_sync_writeback_total", result="patched") == patched + 1


@pytest.mark.parametrize("change", RELEVANT)
async def test_a_relevant_change_costs_at_most_one_read_and_one_write(shared, change):
    """Stopping is three: the annotation, then KServe takes url and runtime away and puts the runtime back."""
    name, (merge, part) = f"costs/{change}", RELEVANT[change]
    events, before = len(await shared.events_of(name)), Spent.so_far(shared)
    shared.cluster.patch("InferenceService", tuple(name.split("/")), merge, part=part)
    await rest(shared)
    spent, changes = Spent.since(before, shared), len(await shared.events_of(name)) - events
    assert changes == (3 if change == "stop" else 1)
    assert 1 <= spent.writes <= (2 if change == "stop" else 1), "a runtime that comes back is no news"
    assert spent.reads <= changes
    assert spent.everything == spent.reads + spent.writes


@pytest.mark.parametrize("change", IRRELEVANT)
async def test_an_irrelevant_change_costs_nothing(shared, change):
    name, (merge, part) = f"costs/{change}", IRRELEVANT[change]
    version, before = shared.object(name)["metadata"]["resourceVersion"], Spent.so_far(shared)
    shared.cluster.patch("InferenceService", tuple(name.split("/")), merge, part=part)
    await rest(shared)
    assert shared.object(name)["metadata"]["resourceVersion"] != version, "it was a change"
    assert Spent.since(before, shared) == NOTHING


async def test_an_event_that_is_repeated_costs_nothing(shared):
    events = await shared.events_of("costs/repeated")
    handled, before = await shared.consumer.metric("isvc_sync_events_total"), Spent.so_far(shared)
    for event in events:
        headers = event.headers | {"Nats-Msg-Id": f"again-{event.sequence}"}
        await shared.client.jetstream().publish(event.subject, event.body, headers=headers)
    await shared.settled()
    assert await shared.consumer.metric("isvc_sync_events_total") > handled
    assert Spent.since(before, shared) == NOTHING


async def test_the_echo_of_our_own_label_costs_nothing(shared):
    """Without KServe an object has two events: its creation, and our label. The first costs a write and a patch."""
    shared.cluster.controller.pace = NEVER
    before = Spent.so_far(shared)
    shared.cluster.create(isvc("costs/echoed", model="1", version="101"))
    shared.cluster.controller.pace = QUICK  # the first step is planned already
    await eventually(lambda: shared.id_label("costs/echoed"), "the label is written")
    await shared.settled()
    spent = Spent.since(before, shared)
    assert len(await shared.events_of("costs/echoed")) == 2
    assert (spent.reads, spent.writes, spent.patches) == (0, 1, 1)
    shared.cluster.delete("InferenceService", "costs", "echoed")  # with what KServe has planned for it
    await rest(shared)
