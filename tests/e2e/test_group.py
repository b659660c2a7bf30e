"""What a group of four consumers must hold: together they do the work once, whoever of them dies, whatever is away."""

import asyncio
import time
from collections import Counter

import pytest
import pytest_asyncio

from sandbox.faults import Fault
from shared.objects import Kind, ObjectKey
from tests.e2e.pipeline import STANDARD, STREAMS, SUBJECTS, Pipeline, isvc
from tests.e2e.role import Role
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

PODS = 4
LEASE_S = 3.0
FLEET = 500


class Group:
    """Four consumers and their world."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.pods = [self._pod(f"pod-{number}") for number in range(PODS)]

    def _pod(self, name: str) -> Role:
        return self.pipeline.another("consumer", name, {"POD_NAME": name, "SHARD_LEASE_S": str(LEASE_S)})

    async def start(self) -> None:
        await asyncio.gather(*(pod.start() for pod in self.pods))

    async def shared_out(self) -> list[float] | None:
        """Return how many shards each pod has, once all are owned and nobody has none."""
        owned = await asyncio.gather(*(pod.metric("isvc_sync_shards_owned") for pod in self.pods))
        return owned if sum(owned) == SUBJECTS.shards and all(owned) else None

    async def handled(self) -> list[float]:
        return await asyncio.gather(*(pod.metric("isvc_sync_events_total") for pod in self.pods))

    def errors(self) -> list[str]:
        """Return all that the pods have complained of."""
        entries = [entry for pod in self.pods for level in ("WARNING", "ERROR") for entry in pod.entries(level)]
        return [f"{entry['message']} {entry.get('reason', '')}" for entry in entries]

    def create(self, namespace: str, count: int) -> list[str]:
        names = [f"{namespace}/iris-{number:03}" for number in range(count)]
        for name in names:
            self.pipeline.cluster.create(isvc(name, model="1", annotations=STANDARD))
        return names

    def states(self, namespace: str) -> Counter[tuple[str, str]]:
        """Return how many records of a namespace's objects there are, by model and state."""
        environments = {each["id"]: each["name"] for each in self.pipeline.registry.records("serving_environments")}
        return Counter(
            (record["registeredModelId"], record["desiredState"])
            for record in self.pipeline.registry.records("inference_services")
            if environments[record["servingEnvironmentId"]] == namespace
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def group(tmp_path_factory, guard):
    async with Pipeline(tmp_path_factory.mktemp("group"), guard, consumer=False) as pipeline:
        group = Group(pipeline)
        try:
            await group.start()
            await eventually(group.shared_out, "four share the shards")
            yield group
        finally:
            for pod in group.pods:
                await pod.close()


def tell(record_property, text: str) -> None:
    record_property("figures", text)


async def test_fifty_objects_of_a_new_environment_make_it_once_and_fifty_records(group, record_property):
    told, before = len(group.errors()), await group.handled()
    began = time.monotonic()
    names = group.create("new", 50)
    await eventually(lambda: all(map(group.pipeline.id_label, names)), "all are linked")
    took_s = time.monotonic() - began
    await group.pipeline.settled()
    environments = [each["name"] for each in group.pipeline.registry.records("serving_environments")]
    assert environments.count("new") == 1
    assert group.states("new") == {("1", "DEPLOYED"): 50}
    assert group.errors()[told:] == []
    shares = [now - then for now, then in zip(await group.handled(), before, strict=True)]
    assert all(shares), "each pod had a part in it"
    tell(record_property, f"50 objects of a new environment in {took_s:.2f} s, events by pod {shares}")


async def test_a_restart_of_all_consumers_writes_nothing_where_everything_is_right(group, record_property):
    """Each object is looked at anew, by consumers that remember nothing: 500 times registry and object are read."""
    names = group.create("fleet", FLEET)
    await eventually(lambda: all(map(group.pipeline.id_label, names)), "all are linked", 60.0)
    await group.pipeline.settled()
    writes, patches, reads = (
        count() for count in (group.pipeline.writes, group.pipeline.patches, group.pipeline.reads)
    )
    began = time.monotonic()
    await asyncio.gather(*(pod.stop() for pod in group.pods))
    await group.start()
    started_s = time.monotonic() - began
    for name in names:
        look = SUBJECTS.look(ObjectKey(Kind.ISVC, *name.split("/")))
        await group.pipeline.client.jetstream().publish(look, b"")
    await eventually(lambda: group.pipeline.reads() - reads >= FLEET, "each is looked at", 60.0)
    looked_s = time.monotonic() - began - started_s
    await group.pipeline.settled()
    assert (group.pipeline.writes() - writes, group.pipeline.patches() - patches) == (0, 0)
    assert group.states("fleet") == {("1", "DEPLOYED"): FLEET}
    tell(record_property, f"{FLEET} objects: restart {started_s:.1f} s, all looked at in {looked_s:.1f} s, 0 writes")


async def test_deletes_in_an_outage_are_not_held_up_and_all_recorded_after_it(group, record_property):
    """Ten minutes, scaled: every circuit is open, every delete has arrived, and the probes go on in vain."""
    count, registry = 200, group.pipeline.registry
    names = group.create("outage", count)
    await eventually(lambda: all(map(group.pipeline.id_label, names)), "all are linked", 60.0)
    await group.pipeline.settled()
    registry.faults.set(Fault(outage=True))
    began = time.monotonic()
    for name in names:
        group.pipeline.cluster.delete("InferenceService", *name.split("/"))
    left = {each["metadata"]["namespace"] for each in group.pipeline.cluster.list("InferenceService")}
    assert "outage" not in left, "nothing held them"

    async def waits_for_the_registry() -> bool:
        closed = await asyncio.gather(*(pod.metric("isvc_sync_registry_circuit", state="closed") for pod in group.pods))
        infos = await group.pipeline.client.jetstream().consumers_info(STREAMS.events)
        return not any(closed) and sum(info.num_ack_pending for info in infos) == count

    await eventually(waits_for_the_registry, "all deletes wait in consumers whose circuits are open", 30.0)
    refused = registry.faults.injected["outage"]
    await eventually(lambda: registry.faults.injected["outage"] >= refused + PODS, "the probes go on")
    away_s = time.monotonic() - began
    assert group.states("outage") == {("1", "DEPLOYED"): count}
    registry.faults.clear()
    began = time.monotonic()
    await eventually(lambda: group.states("outage") == {("1", "UNDEPLOYED"): count}, "all are recorded", 30.0)
    healed_s = time.monotonic() - began
    assert await group.pipeline.dead_letters() == {}
    tell(record_property, f"{count} deletes in an outage of {away_s:.1f} s: recorded {healed_s:.1f} s after it")


async def test_whatever_model_label_comes_while_consumers_are_killed_only_the_last_is_deployed(group, record_property):
    """A -> B -> C, then no label for some and the end for some; in the middle of each step one consumer is killed.

    Every single request of a step is struck in tests/simulation/consumer/test_model_changes.py; here by real deaths.
    """
    names = group.create("labels", 40)
    await eventually(lambda: all(map(group.pipeline.id_label, names)), "all are linked", 30.0)

    async def step(victim: int, **labels: str | None) -> None:
        before = group.pipeline.writes()
        for name in names:
            group.pipeline.set_labels(name, **labels)
        await eventually(lambda: group.pipeline.writes() - before >= 10, "the step is in its middle")
        await group.pods[victim].kill()
        await group.pods[victim].start()

    began = time.monotonic()
    await step(0, registered_model_id="2")
    await step(1, registered_model_id="3")
    unlabelled, deleted, kept = names[:15], names[15:25], names[25:]
    for name in unlabelled:
        group.pipeline.set_labels(name, registered_model_id=None, inference_service_id=None)
    for name in (*unlabelled[:5], *deleted):
        group.pipeline.cluster.delete("InferenceService", *name.split("/"))
    await group.pods[2].kill()
    await group.pods[2].start()
    await group.pipeline.settled(40.0)
    states = group.states("labels")
    assert {model: count for (model, state), count in states.items() if state == "DEPLOYED"} == {"3": len(kept)}
    assert sum(count for (model, _), count in states.items() if model == "1") == len(names)
    for name in kept:
        (record,) = [
            each
            for each in group.pipeline.records(group.pipeline.object(name)["metadata"]["uid"])
            if each["desiredState"] == "DEPLOYED"
        ]
        assert group.pipeline.id_label(name) == record["id"]
    tell(record_property, f"3 consumers killed in {time.monotonic() - began:.1f} s of label changes: {dict(states)}")
