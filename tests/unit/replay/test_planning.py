"""The planner decides a capture as the consumer would have, whatever the capture calls the ids of its records."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from consumer.delivery.work import receive
from consumer.discovery import DiscoverySettings
from replay.capture import Captured, Deciding, Facts, Header, RecordFact
from replay.planning import Planner, received
from replay.steps import Step
from shared import events
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects
from tests.unit.consumer.fakes import FakeMessage
from tests.unit.replay.replayed import CLUSTER_ID, HEADER, KEY, START, captured, isvc, ready

PREFIX = "modelregistry.kubeflow.org/"
WATCHED = replace(HEADER, source="watch-file")
DISCOVERING = replace(
    HEADER,
    deciding=Deciding(
        discovery=DiscoverySettings(prefix=PREFIX, url="http://a.example.com", allowed_hosts=("b.example.com",))
    ),
)


def planner(header: Header = HEADER, *facts: Facts, strict: bool = False) -> Planner:
    made = Planner(header, strict=strict)
    for each in facts or (START,):
        made.facts(each)
    return made


def kinds(step: Step) -> list[str]:
    return [taken.kind for taken in step.taken]


def seen(
    seq: int, *, at_s: float = 0.0, serves: bool = False, what=EventType.UPDATED, uid="u-1", **labels: str
) -> Captured:
    obj = isvc(KEY, uid, 100 + seq, **{"registered_model_id": "1", **labels})
    obj["metadata"]["annotations"]["serving.kserve.io/deploymentMode"] = "Standard"
    return captured(seq, ready(obj) if serves else obj, what, at_s=at_s)


def created(seq: int = 1, **labels: str) -> Captured:
    return seen(seq, what=EventType.CREATED, **labels)


def annotated(line: Captured, **annotations: str) -> Captured:
    body = msgspec.json.decode(line.data)
    body["metadata"]["annotations"] |= {PREFIX + name: value for name, value in annotations.items()}
    event = replace(line.event, digest=line.event.digest + "a")
    return Captured(event, msgspec.json.encode(body), line.position)


def last(made: Planner, *lines: Captured) -> Step:
    return [step for line in lines for step in made.decide(line)][-1]


# What a message is.


def other_body(line: Captured, body: bytes) -> Captured:
    return Captured(line.event, body, line.position)


@pytest.mark.parametrize(
    "line",
    [
        created(),
        seen(2),
        Captured(replace(created().event, corrects=7), created().data, created().position),
        Captured(replace(created().event, type=EventType.DELETED), created().data, created().position),
        Captured(replace(created().event, cluster_id="another"), created().data, created().position),
        Captured(replace(created().event, uid="another"), created().data, created().position),
        other_body(created(), b'{"kind": 7}'),
        other_body(created(), b'"text"'),
    ],
    ids=["created", "updated", "synthetic", "deleted", "another cluster's", "another uid", "no object", "a text"],
)
def test_an_event_of_a_capture_is_the_work_that_its_message_would_have_been(line):
    subject = Subjects("isvc", "prod-a", 16).event(line.event.key)
    headers = events.encode(line.event)
    message = FakeMessage(line.position.seq, subject=subject, headers=headers, body=line.data)
    ours, real = received(line, CLUSTER_ID), receive(message, CLUSTER_ID)
    assert (ours.key, ours.seen, ours.creates_first, ours.uid) == (real.key, real.seen, real.creates_first, real.uid)
    assert str(ours.failure) == str(real.failure)


# What is decided.


def test_an_object_is_recorded_and_gets_its_id():
    step = last(planner(), created(model_version_id="2"))
    assert (step.result, step.model, step.version, step.registry) == ("applied", "1", "2", "registry")
    create, patch = step.taken
    assert (create.kind, create.fields["version_id"], create.fields["deployed"]) == ("CreateRecord", "2", True)
    assert (patch.kind, patch.record, patch.fields["result"]) == ("PatchObject", create.record, "patched")
    assert step.notices == (
        f"Registered: registered model 1 is recorded as deployed: record {create.record} in registry",
    )


def test_a_record_that_facts_tell_of_is_updated_and_not_made_again():
    record = RecordFact(id="57", name="iris/u-1", external_id="kserve:u-1/1", environment="team-a", model_id="1")
    made = planner(HEADER, START, Facts(records=(record,)))
    step = last(made, created())
    assert kinds(step) == ["UpdateRecord", "PatchObject"], (
        "the create that collided is no decision that was carried out"
    )
    assert {taken.record for taken in step.taken} == {"57"}
    assert len(made.registry("registry").records()) == 1


def test_what_no_facts_name_does_not_exist_once_they_name_any():
    assert last(planner(), created(registered_model_id="9")).result == "dead"


def test_without_facts_what_labels_name_is_taken_to_exist_unless_it_is_strict():
    lenient, strict = Planner(HEADER), Planner(HEADER, strict=True)
    assert last(lenient, created(model_version_id="2")).taken[0].fields["version_id"] == "2"
    assert last(strict, created()).reason == "registered model 1 does not exist in the registry"
    assert (lenient.assuming, strict.assuming) == (True, False)


def test_what_the_registry_held_at_the_end_does_not_count():
    record = RecordFact(id="57", name="iris/u-1", external_id="kserve:u-1/1", environment="team-a", model_id="1")
    assert last(planner(HEADER, START, Facts(at="end", records=(record,))), created()).taken[0].kind == "CreateRecord"


def test_an_event_that_does_not_decode_is_among_the_dead_letters_with_its_reason():
    made = planner()
    step = last(made, other_body(created(), b"7"))
    assert step.result == "dead"
    assert "does not decode" in step.reason
    assert made.dead_letters == {KEY: step.reason}


def test_a_dead_letter_goes_when_its_object_is_well_again():
    made = planner()
    last(made, created(registered_model_id="9"), seen(2))
    assert made.dead_letters == {}


def test_the_same_event_again_is_a_duplicate_and_an_older_one_stale():
    made = planner()
    last(made, created(), seen(3, model_version_id="2"))
    assert last(made, seen(3, model_version_id="2")).result == "duplicate"
    assert last(made, seen(2, model_version_id="3")).result == "stale"


def test_it_decides_also_inside_of_a_running_loop():
    async def decide() -> Step:
        return await planner().step(created())

    assert asyncio.run(decide()).result == "applied"


# The id, which the capture calls otherwise.


def test_the_echo_of_the_recorded_write_is_no_news():
    made = planner()
    step = last(made, created(), seen(2, inference_service_id="4711"))
    assert (step.result, step.taken) == ("noop", ())


def test_events_that_do_not_know_of_our_write_yet_are_no_reason_for_another_one():
    made = planner()
    step = last(made, created(), seen(2), seen(3, model_version_id="2"))
    assert kinds(step) == ["UpdateRecord"]


def test_an_id_that_was_on_the_object_from_the_beginning_is_somebody_elses():
    step = last(planner(), created(inference_service_id="4711"))
    assert step.taken[1].reason == "the object carries '4711', not its id"
    assert step.notices[1].startswith("IdOfAnotherRecord")


def test_an_id_that_is_replaced_after_the_echo_is_somebody_elses():
    made = planner()
    last(made, created(), seen(2, inference_service_id="4711"))
    step = last(made, seen(3, inference_service_id="9"))
    assert [taken.reason for taken in step.taken] == ["the object carries '9', not its id"]


def test_where_no_consumer_of_ours_ran_every_id_is_somebody_elses():
    made = planner(replace(HEADER, consumed=False))
    last(made, created())
    step = last(made, seen(2, inference_service_id="4711"))
    assert [taken.reason for taken in step.taken] == ["the object carries '4711', not its id"]
    assert last(made, seen(3, inference_service_id="4711")).taken == (), "and does not know of our next write yet"


@pytest.mark.parametrize(("header", "decisions"), [(HEADER, []), (WATCHED, ["DeferPatch"])])
def test_an_id_without_a_write_of_ours_is_the_consumers_where_one_ran(header, decisions):
    made = planner(header)
    last(made, seen(1, serves=True))
    assert kinds(last(made, seen(2, serves=True, inference_service_id="4711"))) == decisions


def test_a_tool_that_removes_the_id_is_answered_three_times_and_then_the_id_waits():
    made = planner()
    last(made, created())
    results = []
    for turn in range(1, 5):
        made.decide(seen(10 * turn, at_s=turn, inference_service_id="4711"))
        step = last(made, seen(10 * turn + 1, at_s=turn + 0.5))
        results += [taken.fields["result"] for taken in step.taken]
    assert results == ["patched", "patched", "limited", "limited"]


def test_an_id_that_is_due_is_written_by_a_look_at_its_time():
    made = planner(WATCHED)
    last(made, created())
    for turn in range(1, 4):
        made.decide(seen(10 * turn, at_s=turn, inference_service_id="4711"))
        made.decide(seen(10 * turn + 1, at_s=turn + 0.5))
    other = captured(90, isvc(ObjectKey(Kind.ISVC, "team-a", "other"), "u-2", 190), EventType.CREATED, at_s=65.0)
    look, event = made.decide(other)
    assert (look.look, look.key, look.seq, look.result) == (True, KEY, 31, "applied")
    assert look.time.startswith("2026-11-30T10:01:00"), "a minute after the first write, before the other's event"
    assert event.key.name == "other"


def test_a_late_end_of_the_former_object_of_that_name_does_not_hide_the_present_one():
    made = planner()
    last(made, created(), seen(20, uid="u-2", what=EventType.CREATED), seen(21, what=EventType.DELETED))
    live = asyncio.run(made._cluster.get(KEY))
    assert live["metadata"]["uid"] == "u-2"


def test_the_live_object_carries_what_was_written_to_it():
    made = planner()
    step = last(made, created())
    live = asyncio.run(made._cluster.get(KEY))
    assert live["metadata"]["labels"][PREFIX + "inference-service-id"] == step.taken[0].record


def test_what_is_told_once_is_not_told_again_with_each_event():
    made = planner()
    first = last(made, seen(1, serves=True))
    second = last(made, seen(2, serves=True, model_version_id="2"))
    assert [notice.partition(":")[0] for notice in first.notices] == ["Registered", "WriteBackDeferred"]
    assert (kinds(second), second.notices) == (["UpdateRecord", "DeferPatch"], ())


def test_a_look_that_finds_nothing_new_is_no_step():
    made = planner()
    last(made, seen(1, serves=True))
    assert made.end() == ()


# Several registries.


def test_an_object_goes_to_the_registry_that_it_names_and_leaves_the_other():
    made = planner(DISCOVERING)
    here = annotated(created())
    moved = annotated(seen(2), url="http://b.example.com")
    for name in ("http://a.example.com", "http://b.example.com"):
        made.facts(msgspec.structs.replace(START, registry=name))
    last(made, here)
    step = last(made, moved)
    assert [(taken.kind, taken.registry) for taken in step.taken if taken.record and taken.kind != "PatchObject"] == [
        ("UpdateRecord", "http://a.example.com"),
        ("CreateRecord", "http://b.example.com"),
    ]
    states = {name: [record.deployed for record in made.registry(name).records()] for name in made.registries}
    assert (states["http://a.example.com"], states["http://b.example.com"]) == ([False], [True])


def test_a_registry_that_is_not_allowed_is_a_dead_letter():
    step = last(planner(DISCOVERING), annotated(created(), url="http://evil.example.com"))
    assert step.result == "dead"
    assert "REGISTRY_ALLOWED_HOSTS" in step.reason


def unsettled() -> Header:
    discovery = DiscoverySettings(prefix=PREFIX, url="http://a.example.com", namespaces=("kubeflow",))
    return replace(HEADER, deciding=Deciding(discovery=discovery))


@pytest.mark.parametrize("others", [Facts(), Facts(models=("2",))], ids=["nothing else is told", "others are there"])
def test_a_model_that_the_facts_tell_to_be_absent_is_a_dead_letter(others):
    step = last(planner(HEADER, others, Facts(absent_models=("1",))), created())
    assert (step.result, kinds(step)) == ("dead", ["Reject"])
    assert step.reason == "registered model 1 does not exist in the registry"


def test_a_version_that_the_facts_tell_to_be_absent_is_recorded_without_it_and_told():
    step = last(planner(HEADER, Facts(models=("1",), absent_versions=("7",))), created(model_version_id="7"))
    assert (step.result, kinds(step)) == ("dead", ["CreateRecord", "PatchObject", "Reject"])
    assert step.reason.startswith("model version 7 does not exist in the registry")


def test_what_a_waiting_event_carried_is_in_the_history_when_its_registry_is_found():
    made = planner(unsettled())
    made.facts(msgspec.structs.replace(START, registry="http://a.example.com"))
    waits = last(made, seen(1, model_version_id="2", name="nowhere"))
    assert (waits.result, waits.taken) == ("retry", ())
    assert "there is no such Service" in waits.reason
    assert last(made, seen(2, model_version_id="3")).result == "applied"
    (record,) = made.registry("http://a.example.com").records()
    assert [change.version for change in stamp_of(record).history] == ["2", "3"]


def stamp_of(record: Any) -> Any:
    assert record.stamp is not None
    return record.stamp
