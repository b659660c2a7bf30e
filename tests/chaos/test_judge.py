"""The judge of a chaos run finds what is wrong, and nothing else."""

import json
from dataclasses import dataclass, replace

import pytest

from tests.chaos.judge import (
    Effect,
    Leases,
    Told,
    absent_faults,
    caught,
    environment_findings,
    fence_findings,
    history_findings,
    record_findings,
    waiting_findings,
)
from tests.chaos.weather import What
from tests.e2e.pipeline import ID, MODEL, STOP, VERSION

UID = "u-1"


@dataclass(frozen=True)
class Deployment:
    """An object as the cluster shows it, and the record that says the same, unless told otherwise."""

    model: str | None = "1"
    version: str = "101"
    stopped: bool = False
    url: str = "http://iris.example"
    ready: bool = True
    id: str = "7"
    resource_version: str = "50"

    @property
    def object(self):
        labels = {MODEL: self.model, VERSION: self.version, ID: self.id}
        return {
            "metadata": {
                "namespace": "team-a",
                "name": "iris",
                "uid": UID,
                "resourceVersion": "50",
                "labels": {name: value for name, value in labels.items() if value is not None},
                "annotations": {STOP: "true"} if self.stopped else {},
            },
            "status": {"url": self.url, "conditions": [{"type": "Ready", "status": str(self.ready)}]},
        }

    @property
    def record(self):
        stamp = {
            "uid": UID,
            "namespace": "team-a",
            "name": "iris",
            "epoch": 1,
            "resourceVersion": self.resource_version,
            "ready": self.ready,
            "modelVersion": self.version,
            "history": [{"version": self.version}],
            "undeployedAt": "now" if self.stopped else "",
        }
        return {
            "id": self.id,
            "name": f"iris/{UID}",
            "externalId": f"kserve:{UID}/{self.model}",
            "servingEnvironmentId": "1",
            "registeredModelId": self.model,
            "modelVersionId": self.version,
            "desiredState": "UNDEPLOYED" if self.stopped else "DEPLOYED",
            "customProperties": {
                "url": {"string_value": self.url},
                "isvc-sync": {"string_value": json.dumps(stamp)},
            },
        }


RIGHT = Deployment()
FORMER = replace(RIGHT, model="2", version="201", id="8")
CLOSED = replace(FORMER, stopped=True).record | {"name": f"iris/{UID}/2"}


@pytest.mark.parametrize("deployment", [RIGHT, replace(RIGHT, stopped=True), replace(RIGHT, ready=False)])
def test_a_right_record_is_right(deployment):
    assert record_findings([deployment.object], [deployment.record, CLOSED]) == []


@pytest.mark.parametrize(
    ("recorded", "named"),
    [
        pytest.param(replace(RIGHT, version="102"), "modelVersionId is '102', should be '101'", id="version"),
        pytest.param(replace(RIGHT, stopped=True), "desiredState", id="state"),
        pytest.param(replace(RIGHT, url=""), "url", id="url"),
        pytest.param(replace(RIGHT, ready=False), "ready", id="ready"),
        pytest.param(replace(RIGHT, id="9"), "the object's id label", id="label"),
        pytest.param(replace(RIGHT, resource_version="51"), "of version 51", id="from-the-future"),
    ],
)
def test_a_record_that_says_something_else_is_named(recorded, named):
    found = record_findings([RIGHT.object], [recorded.record])
    assert any(named in finding for finding in found), found


def test_an_object_without_record_is_named():
    assert record_findings([RIGHT.object], []) == [f"team-a/iris ({UID}): has no record of model 1"]


def test_two_records_of_one_deployment_are_named():
    found = record_findings([RIGHT.object], [RIGHT.record, RIGHT.record | {"id": "9", "name": "another"}])
    assert f"kserve:{UID}/1 is there 2 times" in found


@pytest.mark.parametrize(
    "living",
    [
        pytest.param([], id="gone"),
        pytest.param([replace(RIGHT, model=None).object], id="unlabelled"),
        pytest.param([RIGHT.object], id="another-model"),
    ],
)
def test_a_record_that_is_nobodys_and_still_deployed_is_named(living):
    others = [RIGHT.record] if living == [RIGHT.object] else []
    former = FORMER.record | {"name": f"iris/{UID}/2"}
    assert [f for f in record_findings(living, [former, *others]) if "its record is DEPLOYED" in f]
    assert record_findings(living, [CLOSED, *others]) == []


def test_a_second_environment_of_a_namespace_is_named():
    assert environment_findings([{"name": "a"}, {"name": "b"}], ["b", "a"]) == []
    assert environment_findings([{"name": "a"}, {"name": "a"}, {"name": "b"}], ["a", "b"])


def test_what_waits_is_named():
    assert waiting_findings({"shard-1": (0, 0), "shard-2": (0, 0)}) == []
    assert len(waiting_findings({"shard-1": (1, 0), "shard-2": (0, 1)})) == 2


@pytest.mark.parametrize(
    ("told", "named"),
    [
        pytest.param(Told(UID, 50, "1", "101"), "", id="recorded"),
        pytest.param(Told(UID, 50, "", ""), "", id="not-indexed"),
        pytest.param(Told(UID, 49, "1", "100"), "the history lacks 100", id="version"),
        pytest.param(Told(UID, 49, "3", "301"), "deployed model 3", id="model"),
        pytest.param(Told("u-2", 49, "1", "101"), "u-2 deployed model 1", id="object"),
    ],
)
def test_what_the_stream_tells_and_no_record_says_is_named(told, named):
    found = history_findings([told], [RIGHT.record])
    assert (named in found[0]) if named else found == []


def test_what_a_buried_message_said_is_not_asked_for_and_all_else_of_its_object_is():
    told = [Told(UID, 48, "1", "100", sequence=7), Told(UID, 49, "1", "100", sequence=8)]
    assert history_findings(told, [RIGHT.record], frozenset({8})) == []
    assert history_findings(told, [RIGHT.record], frozenset({9})) != []
    more = [*told, Told(UID, 47, "1", "99", sequence=6)]
    assert "lacks 99" in history_findings(more, [RIGHT.record], frozenset({8}))[0]


def effect(at: float, pod: str = "pod-0", shard: int | None = 3, pause_s: float = 0.0) -> Effect:
    return Effect(asked_at=at, sent_at=at + pause_s, pod=pod, shard=shard, what="PATCH /x")


LEASES = Leases([(10.0, 3, "pod-0"), (20.0, 3, ""), (21.0, 3, "pod-1")])


@pytest.mark.parametrize(
    ("one", "is_right"),
    [
        pytest.param(effect(10.0), True, id="own"),
        pytest.param(effect(9.9), False, id="before"),
        pytest.param(effect(20.5), False, id="given-away"),
        pytest.param(effect(21.5), False, id="another-one's"),
        pytest.param(effect(21.5, "pod-1"), True, id="successor's"),
        pytest.param(effect(15.0, shard=None), False, id="outside-of-any-term"),
        pytest.param(effect(15.0, shard=4), False, id="never-taken"),
    ],
)
def test_an_effect_without_its_lease_is_named(one, is_right):
    assert (fence_findings([one], LEASES) == []) is is_right


def test_what_a_pause_caught_between_fence_and_wire_is_counted_and_not_judged():
    late = effect(19.0, pause_s=6.0)
    assert fence_findings([late], LEASES) == []
    assert caught([late, effect(19.0)], LEASES) == 1


def test_a_fault_that_has_not_happened_is_named():
    planned = {What.POD_KILLED: 2, What.REGISTRY_AWAY: 1}
    injected = {"error": 1, "lost_reply": 1, "outage": 1}
    assert absent_faults(planned, planned, injected) == []
    assert absent_faults(planned, planned | {What.POD_KILLED: 1}, injected)
    for ending in injected:
        assert absent_faults(planned, planned, injected | {ending: 0}) == [f"the registry: no request met {ending}"]
