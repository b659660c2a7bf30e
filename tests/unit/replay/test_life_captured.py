"""The life of an object as a capture tells it."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from consumer.discovery import DiscoverySettings
from replay.capture import ONLY_REGISTRY, Action, Captured, Deciding, Facts, Header, Line, RecordFact
from replay.life.captured import Decided, found_in
from replay.life.conclusion import Life, life
from replay.life.pending import Cause
from replay.planning import Planner
from replay.steps import Step, Taken
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from tests.unit.replay import replayed
from tests.unit.replay.captures import HEADER as WATCHED
from tests.unit.replay.captures import story
from tests.unit.replay.replayed import HEADER, KEY, START, captured, isvc

KNOWN = Facts(models=("1", "2"), versions={"11": "1"})
OTHER = ObjectKey(Kind.ISVC, "team-b", "rose")
WROTE = Step(
    seq=1,
    time="2026-11-30T10:00:05Z",
    key=KEY,
    uid="u-iris",
    type=EventType.UPDATED,
    resource_version="11",
    look=True,
    result="applied",
    taken=(Taken("PatchObject", "the object does not carry the record's id", "2"),),
)


def lives(lines: Iterable[Line], keys: Sequence[ObjectKey], header: Header = HEADER) -> list[Life]:
    found = asyncio.run(found_in(lines, keys, Planner(header), header.plan_settings))
    return [life(each) for each in found]


def of(*lines: Line, key: ObjectKey = KEY) -> Life:
    return lines_of(list(lines), key)


def lines_of(lines: Iterable[Line], key: ObjectKey, header: Header = HEADER) -> Life:
    return lives(lines, (key,), header)[0]


def created(seq: int = 1, key: ObjectKey = KEY, **labels: str) -> Captured:
    given = labels or {"registered_model_id": "1"}
    models = tuple(value for name, value in given.items() if name == "registered_model_id")
    return captured(seq, isvc(key, f"u-{key.name}", 10 + seq, **given), EventType.CREATED, models=models)


def test_what_a_story_ends_with_is_what_the_registry_would_hold():
    found = lines_of(story("delete-recreate"), ObjectKey(Kind.ISVC, "life", "model"), WATCHED)
    told = "life/model is gone; its record 4 would be UNDEPLOYED, version 2, and up to date"
    assert found.verdict == f"{told} (planned: the capture does not tell what the registry held)"
    assert [each.records[0].id for each in found.sections] == ["4", "3"]
    assert [[each.type for each in section.moments][-1] for section in found.sections] == ["deleted", "deleted"]


def test_the_ids_of_records_are_those_of_the_whole_plan():
    found = of(KNOWN, created(1, OTHER), created(2))
    alone = of(KNOWN, created(2))
    assert found.sections[0].records[0].id != alone.sections[0].records[0].id


def test_each_event_has_its_decisions_with_reasons():
    found = of(KNOWN, created())
    [moment] = found.sections[0].moments
    assert moment.decided[0].kind == "CreateRecord"
    assert moment.decided[0].reason == "no record says that this object deploys registered model 1"


def test_a_model_that_the_facts_do_not_name_is_a_dead_letter():
    found = of(KNOWN, created(4, registered_model_id="9"))
    assert (found.cause, found.agrees) == (Cause.DEAD_LETTER, False)
    assert "registered model 9 does not exist in the registry (dead letter of event 4)" in found.verdict


def test_an_object_without_a_label_is_not_indexed():
    found = of(KNOWN, captured(1, isvc(KEY, "u", 10), EventType.CREATED, models=()))
    assert (found.cause, found.agrees) == (Cause.NOT_INDEXED, True)


def test_an_object_that_is_not_in_the_capture_is_said_to_be_missing_there():
    found = of(KNOWN, created(), key=OTHER)
    assert found.verdict.endswith("because the capture has no event of an isvc of that name")


def test_several_objects_are_followed_in_one_reading():
    found = lives([KNOWN, created(1, OTHER), created(2)], (KEY, OTHER))
    assert [len(each.sections[0].moments) for each in found] == [1, 1]


def test_what_a_consumer_did_stands_beside_its_event():
    done = Action(event=2, object=str(KEY), kind="CreateRecord", status=201, ms=12.0, member="consumer-0")
    others = Action(event=1, object=str(OTHER), kind="CreateRecord", status=201)
    found = of(KNOWN, created(1, OTHER), others, created(2), done)
    assert found.sections[0].moments[0].done == (done,)


CREATED = Action(event=2, object=str(KEY), kind="CreateRecord", status=201, member="a")
TRIED = Action(event=2, object=str(KEY), kind="retry", member="a")
ACKED = Action(event=2, object=str(KEY), kind="ack", member="a")


@pytest.mark.parametrize(
    ("told", "at_hand"),
    [
        ((), False),
        ((CREATED,), True),
        ((CREATED, ACKED), False),
        ((CREATED, TRIED), True),
        ((CREATED, TRIED, CREATED), True),
        ((CREATED, Action(event=2, object=str(KEY), kind="dead", member="a")), False),
    ],
)
def test_an_event_that_was_begun_and_not_settled_is_pending(told, at_hand):
    acknowledges = Action(event=1, object=str(OTHER), kind="ack", member="a")
    found = of(KNOWN, created(1, OTHER), acknowledges, created(2), *told)
    assert (Cause.NOT_HANDLED in {each.cause for each in found.sections[0].pending}) == at_hand


@pytest.mark.parametrize("other", [(), (Action(event=1, object=str(OTHER), kind="dead", member="a"),)])
def test_a_consumer_that_tells_of_no_acknowledgement_has_ended_what_it_does_not_try_again(other):
    another = Action(event=1, object=str(OTHER), kind="ack", member="b")
    for told, at_hand in (((CREATED,), False), ((CREATED, TRIED), True)):
        found = of(KNOWN, created(1, OTHER), another, *other, created(2), *told)
        assert (Cause.NOT_HANDLED in {each.cause for each in found.sections[0].pending}) == at_hand


def test_what_a_look_did_stands_beside_the_last_event_before_it():
    looked = Action(event=0, object=str(KEY), kind="PatchObject", time="2126-01-01T00:00:00Z")
    before = Action(event=0, object=str(KEY), kind="PatchObject", time="1926-01-01T00:00:00Z")
    assert of(KNOWN, created(2), before, looked).sections[0].moments[-1].done == (looked,)


@pytest.mark.parametrize(("second", "place"), [(5, 0), (9, 1)])
def test_of_two_events_a_look_stands_beside_the_last_one_before_it(second, place):
    looked = Action(event=0, object=str(KEY), kind="PatchObject", time=f"2026-12-01T10:00:0{second}.5Z")
    events = [
        replace(line, position=replace(line.position, time=f"2026-12-01T10:00:0{at}Z"))
        for line, at in ((created(1), 1), (created(2), 9))
    ]
    found = [moment.done for moment in of(KNOWN, *events, looked).sections[0].moments]
    assert (found[place], found[1 - place]) == ((looked,), ())


def test_records_at_the_end_of_the_capture_are_the_ones_that_count():
    agreeing = lines_of([START, *replayed.story(), replayed.end()], KEY)
    assert (agreeing.agrees, agreeing.verdict.startswith("team-a/iris is gone; its record")) == (True, True)
    differing = lines_of([START, *replayed.story(), replayed.end(deleted=False, undeployed_at="")], KEY)
    assert differing.cause == Cause.DIFFERS
    assert "but the registry at the end of the capture differs" in differing.verdict


def test_a_record_that_the_plan_has_and_the_end_of_the_capture_lacks_is_missing():
    found = of(KNOWN, created(), Facts(at="end"))
    assert (found.cause, found.planned) == (Cause.DIFFERS, False)
    assert "is not in the registry, because the registry at the end of the capture differs (no record)" in found.verdict
    assert [each.records for each in found.sections] == [()]


def test_a_registry_that_nobody_looked_at_is_planned_beside_one_that_was_read():
    discovery = DiscoverySettings(prefix=HEADER.deciding.prefix, url="http://a", allowed_hosts=("b",))
    header = replace(HEADER, deciding=Deciding(discovery=discovery))
    read = lines_of([created(), Facts(at="end", registry="http://b")], KEY, header)
    assert (read.planned, [each.planned for each in read.sections[0].records]) == (True, [True])
    assert "would be in the registry as record" in read.verdict
    told = lines_of([created(), Facts(at="end", registry="http://a")], KEY, header)
    assert (told.planned, told.cause) == (False, Cause.DIFFERS)


def test_what_a_planned_registry_would_not_have_is_said_so():
    found = of(KNOWN, created(4, registered_model_id="9"))
    assert found.verdict.startswith("team-a/iris would not be in the registry, because registered model 9 does not")


def test_what_a_planned_registry_would_have_closed_is_said_so():
    unlabelled = isvc(KEY, "u-iris", 12)
    found = of(KNOWN, created(1), captured(2, unlabelled, models=("1",)))
    assert "; what it deployed before would be closed (record" in found.verdict


def test_an_id_that_the_object_carries_is_compared_with_the_records_that_were_there_at_the_end():
    carried = isvc(KEY, "u-iris", 12, registered_model_id="1", inference_service_id="71")
    events = (created(1), captured(2, carried))
    planner = Planner(HEADER)
    planner.facts(KNOWN)
    for line in events:
        planner.decide(line)
    [record] = planner.registry(ONLY_REGISTRY).records()
    assert record.id != "71", "the plan counts otherwise"
    held = RecordFact(
        id="71",
        name=record.name,
        external_id=record.external_id,
        environment="team-a",
        model_id=record.model_id,
        deployed=record.deployed,
        properties=record.properties,
    )
    found = of(KNOWN, *events, Facts(at="end", records=(held,)))
    assert found.verdict.endswith("as record 71 (DEPLOYED), without a version, and up to date")
    assert {taken.record for moment in found.sections[0].moments for taken in moment.decided} == {"71"}


def test_a_record_that_was_there_before_the_events_keeps_its_id():
    before = RecordFact(
        id="70", name="iris/u-iris", external_id="kserve:u-iris/1", environment="team-a", model_id="1", deployed=True
    )
    found = of(Facts(models=("1",), records=(before,)), captured(1, isvc(KEY, "u-iris", 11, registered_model_id="1")))
    assert [each.id for each in found.sections[0].records] == ["70"]


def test_each_uid_stands_where_its_own_last_event_left_it():
    first = isvc(KEY, "u-1", 10, registered_model_id="1")
    second = isvc(KEY, "u-2", 12, registered_model_id="1")
    story = [
        captured(1, first, EventType.CREATED),
        captured(2, first | {"metadata": first["metadata"] | {"resourceVersion": "11"}}, EventType.DELETED),
        captured(3, second, EventType.CREATED),
    ]
    found = of(KNOWN, *story)
    assert [(each.uid, each.state) for each in found.sections] == [("u-2", "lives"), ("u-1", "is gone")]


def test_an_object_that_has_moved_is_in_the_registry_where_it_is_now():
    discovery = DiscoverySettings(prefix=HEADER.deciding.prefix, url="http://a", allowed_hosts=("b",))
    header = replace(HEADER, deciding=Deciding(discovery=discovery))
    moved = isvc(KEY, "u-iris", 12, registered_model_id="1")
    moved["metadata"]["annotations"][f"{HEADER.deciding.prefix}url"] = "http://b"
    found = lines_of([created(1), captured(2, moved)], KEY, header)
    there = {each.registry.partition("//")[2][0]: each.deployed for each in found.sections[0].records}
    assert there == {"a": False, "b": True}
    assert " (DEPLOYED), without a version, and up to date" in found.verdict


def test_a_registry_that_is_not_allowed_is_the_reason():
    discovery = DiscoverySettings(prefix=HEADER.deciding.prefix, url="http://a")
    header = replace(HEADER, deciding=Deciding(discovery=discovery))
    asks = isvc(KEY, "u-iris", 12, registered_model_id="1")
    asks["metadata"]["annotations"][f"{HEADER.deciding.prefix}url"] = "http://evil"
    found = lines_of([captured(2, asks, EventType.CREATED)], KEY, header)
    assert (found.cause, "not allowed" in found.verdict) == (Cause.NOT_ALLOWED, True)


def test_a_record_of_an_earlier_object_is_found_by_what_it_says():
    found = lines_of([replayed.end()], KEY)
    assert [(each.uid, each.records[0].id) for each in found.sections] == [("u-1", "71")]


def test_an_action_on_another_object_is_not_this_ones():
    others = Action(event=1, object=str(OTHER), kind="CreateRecord", status=201)
    assert of(KNOWN, created(1), others).sections[0].moments[0].done == ()


def test_a_look_for_an_id_that_was_due_stands_after_the_event_before_it():
    decided, planner = Decided(KEY), Planner(HEADER)
    first, second = created(1), created(2, OTHER)
    decided.take(first, planner.decide(first))
    [step] = planner.decide(second)
    decided.take(second, (replace(WROTE, key=OTHER), WROTE, step))
    assert [each.looks for each in decided.past] == [(WROTE,)]


def test_a_look_after_the_last_event_is_told_too():
    class Ending(Planner):
        def end(self) -> tuple[Step, ...]:
            return (replace(WROTE, key=OTHER), WROTE)

    [found] = asyncio.run(found_in([KNOWN, created(1)], (KEY,), Ending(HEADER), HEADER.plan_settings))
    [event, look] = life(found).sections[0].moments
    assert (event.look, look.look, look.decided) == (False, True, WROTE.taken)
