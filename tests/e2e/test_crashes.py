"""Whatever dies, and whenever: one record for each deployment, the right state in it, the right label on the object."""

import asyncio
import json
import time

import pytest
import pytest_asyncio

from sandbox.cluster.store import Event
from sandbox.faults import Fault
from tests.e2e.pipeline import ID, STANDARD, Pipeline, isvc
from tests.e2e.role import Role
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSIONS = [str(number) for number in range(101, 111)]
OBJECTS, CHANGES = 50, 1000

ANY_PATCH = {"method": "PATCH", "path": ".*/inferenceservices/.*"}
ANY_CREATE = {"method": "POST", "path": ".*/inference_services"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory, guard):
    async with Pipeline(tmp_path_factory.mktemp("crashes"), guard) as pipeline:
        pipeline.seed(dict.fromkeys(VERSIONS, "1"))
        yield pipeline


@pytest_asyncio.fixture(loop_scope="module")
async def shared(world):
    """The world as every test may expect it: nothing hurts, both processes run."""
    yield world
    world.cluster.faults.clear()
    world.registry.faults.clear()
    for role in (world.producer, world.consumer):
        if not role.runs:
            await role.start()


def create(pipeline: Pipeline, name: str, version: str = "101") -> None:
    pipeline.cluster.create(isvc(name, model="1", version=version, annotations=STANDARD))


async def linked(pipeline: Pipeline, name: str) -> dict[str, str]:
    """Wait until an object carries its record's id, and nothing is left to do; return its one record."""

    def is_linked() -> bool:
        record = pipeline.record_of(name)
        return record is not None and pipeline.id_label(name) == record["id"]

    await eventually(is_linked, f"{name} carries its record's id")
    await pipeline.settled()
    record = pipeline.record_of(name)
    assert record is not None
    return record


def history(record) -> list[str]:
    return [c["version"] for c in json.loads(record["customProperties"]["isvc-sync"]["string_value"])["history"]]


async def test_a_consumer_that_dies_between_record_and_patch_leaves_one_record_and_the_right_label(shared):
    hung = shared.cluster.faults.injected["hang"]
    shared.cluster.faults.set(Fault(**ANY_PATCH, hang=True))
    create(shared, "crash/before-patch")
    await eventually(lambda: shared.cluster.faults.injected["hang"] > hung, "the patch hangs")
    assert shared.record_of("crash/before-patch") is not None
    await shared.consumer.kill()
    shared.cluster.faults.clear()
    assert shared.id_label("crash/before-patch") is None
    await shared.consumer.start()
    assert (await linked(shared, "crash/before-patch"))["desiredState"] == "DEPLOYED"


async def test_a_consumer_that_dies_between_patch_and_ack_leaves_one_record_and_the_right_label(shared):
    """It dies while the API server writes the label, before the answer: this loop is the API server's, too."""
    struck = []

    def strike(_resource: str, event: Event) -> None:
        if event.entry.key == "crash/before-ack" and ID in event.entry.labels:
            shared.consumer.strike()
            struck.append(event.version)

    shared.cluster.store.listeners.append(strike)
    create(shared, "crash/before-ack")
    await eventually(lambda: struck, "the label is written")
    await shared.consumer.kill()
    shared.cluster.store.listeners.remove(strike)
    assert not await shared.is_idle(), "the message was not acknowledged"
    sent = shared.patches()
    await shared.consumer.start()
    await linked(shared, "crash/before-ack")
    assert shared.patches() == sent, "a label that is right is not written again"


@pytest.mark.parametrize("ending", ["hang", "lost_reply"])
async def test_a_consumer_that_dies_between_environment_and_record_leaves_one_of_each(shared, ending):
    """Hang: the record was not made. Lost reply: it was, and nobody was told."""
    before, name = shared.registry.faults.injected[ending], f"{ending.replace('_', '-')}/between"
    fault = Fault(**ANY_CREATE, hang=True) if ending == "hang" else Fault(**ANY_CREATE, lost_reply_rate=1.0)
    shared.registry.faults.set(fault)
    create(shared, name)
    await eventually(lambda: shared.registry.faults.injected[ending] > before, f"the create meets {ending}")
    if ending == "lost_reply":  # counted when it is decided, before the work is done
        await eventually(lambda: shared.record_of(name), "the record is made")
    await shared.consumer.kill()
    shared.registry.faults.clear()
    assert (shared.record_of(name) is not None) == (ending == "lost_reply")
    await shared.consumer.start()
    await linked(shared, name)
    environments = [environment["name"] for environment in shared.registry.records("serving_environments")]
    assert environments.count(name.partition("/")[0]) == 1


async def test_a_change_that_a_dead_producer_never_saw_is_published_by_the_next(shared):
    create(shared, "crash/unseen")
    await linked(shared, "crash/unseen")
    events = len(await shared.events_of("crash/unseen"))
    shared.set_labels("crash/unseen", model_version_id="102")
    await shared.producer.kill()  # before the API server, which runs in this very loop, could tell it
    assert len(await shared.events_of("crash/unseen")) == events
    await shared.producer.start()
    await eventually(lambda: shared.record_of("crash/unseen")["modelVersionId"] == "102")
    assert (await shared.events_of("crash/unseen"))[-1].headers["ce-synthetic"] == "true"
    assert history(await linked(shared, "crash/unseen")) == ["101", "102"]


async def test_an_object_deleted_while_no_producer_runs_ends_undeployed(shared):
    create(shared, "crash/deleted")
    record = await linked(shared, "crash/deleted")
    await shared.producer.kill()
    shared.cluster.delete("InferenceService", "crash", "deleted")
    await shared.producer.start()
    await eventually(lambda: _state(shared, record["id"]) == "UNDEPLOYED", "the record is UNDEPLOYED")
    await shared.settled()
    assert _state(shared, record["id"]) == "UNDEPLOYED"


def _state(pipeline: Pipeline, record_id: str) -> str:
    return next(str(r["desiredState"]) for r in pipeline.records() if r["id"] == record_id)


async def test_a_consumer_that_is_told_to_stop_under_load_ends_in_seconds_and_loses_nothing(shared):
    shared.registry.faults.set(Fault(latency_s=0.05))
    load = Load(shared, "stopped")
    load.create()
    await load.change(until=CHANGES // 2)
    await eventually(lambda: len(shared.records()) > 0)
    assert not await shared.is_idle(), "it is at work"
    started_s = time.monotonic()
    assert await shared.consumer.stop() == 0
    took_s = time.monotonic() - started_s
    assert took_s < 8, "one request may take 5 s; ours take 50 ms"
    assert not await shared.is_idle(), "work was left"
    await shared.consumer.start()
    shared.registry.faults.clear()
    await load.change(until=CHANGES)
    await load.ends_right()


@pytest.mark.parametrize("victim", ["producer", "consumer"])
async def test_a_process_killed_while_a_thousand_changes_flow_costs_nothing_of_the_end(shared, victim):
    load = Load(shared, f"killed-{victim}")
    role: Role = getattr(shared, victim)
    load.create()
    await load.change(until=300)
    await role.kill()
    told = await shared.last_sequence()
    await load.change(until=600)
    if victim == "producer":
        assert await shared.last_sequence() == told, "nobody tells of these changes"
    else:
        assert not await shared.is_idle(), "nobody handles these changes"
    restart = asyncio.create_task(role.start())
    await load.change(until=CHANGES)
    await restart
    await load.ends_right()


async def test_a_broker_killed_while_a_thousand_changes_flow_costs_nothing_of_the_end(shared):
    lost = [await role.metric("isvc_sync_broker_events_total", event="disconnected") for role in _roles(shared)]
    load = Load(shared, "broker")
    load.create()
    await load.change(until=300)
    await shared.broker.kill()
    await load.change(until=600)
    await shared.broker.start()
    await load.change(until=CHANGES)
    await load.ends_right()
    now = [await role.metric("isvc_sync_broker_events_total", event="disconnected") for role in _roles(shared)]
    assert all(after > before for before, after in zip(lost, now, strict=True)), "both lost their connection"


def _roles(pipeline: Pipeline) -> tuple[Role, Role]:
    return pipeline.producer, pipeline.consumer


class Load:
    """A thousand changes of version over fifty objects; the last ones delete every tenth object."""

    def __init__(self, pipeline: Pipeline, namespace: str) -> None:
        self._pipeline = pipeline
        self._namespace = namespace
        self._done = 0
        self._uids: dict[int, str] = {}
        self._versions: dict[int, str] = {}

    def create(self) -> None:
        for number in range(OBJECTS):
            create(self._pipeline, self._name(number))
            self._uids[number] = self._pipeline.object(self._name(number))["metadata"]["uid"]
            self._versions[number] = "101"

    def _name(self, number: int) -> str:
        return f"{self._namespace}/object-{number:02}"

    async def change(self, until: int) -> None:
        """Go on with the changes, as fast as the API server tells them."""
        for step in range(self._done, until):
            number, version = step % OBJECTS, VERSIONS[(step + step // OBJECTS) % len(VERSIONS)]
            if step >= CHANGES - OBJECTS and number % 10 == 0:
                self._pipeline.cluster.delete("InferenceService", self._namespace, f"object-{number:02}")
                self._versions.pop(number)
            else:
                self._pipeline.set_labels(self._name(number), model_version_id=version)
                self._versions[number] = version
            await asyncio.sleep(0.002)
        self._done = until

    async def ends_right(self) -> None:
        """Wait until every record says what its object said last."""
        assert self._done == CHANGES
        wanted = {
            uid: ("DEPLOYED", self._versions[number]) if number in self._versions else ("UNDEPLOYED", "any")
            for number, uid in self._uids.items()
        }
        await eventually(lambda: self._seen() == wanted, "all records are right", 30.0)
        await self._pipeline.settled(30.0)
        assert self._seen() == wanted
        for number in self._versions:
            assert self._pipeline.id_label(self._name(number)) == self._records(number)[0]["id"]

    def _seen(self) -> dict[str, tuple[str, str]]:
        seen = {}
        for number, uid in self._uids.items():
            records = self._records(number)
            assert len(records) <= 1, "one record for each"
            for record in records:
                state = record["desiredState"]
                seen[uid] = (state, record["modelVersionId"] if state == "DEPLOYED" else "any")
        return seen

    def _records(self, number: int) -> list[dict[str, str]]:
        return self._pipeline.records(self._uids[number])
