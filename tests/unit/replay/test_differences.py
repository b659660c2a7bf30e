"""Two plans are compared by what they decide: ids of records never count, times and uids not between two captures."""

import msgspec
from msgspec.structs import replace

from replay.differences import END, Parting, Plan, compare
from replay.planning import Planner
from replay.steps import Step, Taken
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from tests.unit.replay.replayed import HEADER, START, captured, isvc, ready, story

IRIS, OTHER = (ObjectKey(Kind.ISVC, "team-a", name) for name in ("iris", "other"))


def step(seq: int, *taken: Taken, key: ObjectKey = IRIS, **changes: object) -> Step:
    told = Step(
        seq=seq,
        time=f"2026-11-30T10:00:{seq:02}Z",
        key=key,
        uid=f"uid-of-{key.name}",
        type=EventType.UPDATED,
        resource_version=str(seq),
        result="applied" if taken else "noop",
        taken=taken,
    )
    return replace(told, **changes)


def update(record: str, **fields: object) -> Taken:
    return Taken("UpdateRecord", "the record says otherwise in url", record, "registry", {"deployed": True, **fields})


def plans(left: list[Step], right: list[Step], *, exact: bool) -> list[Parting]:
    sides = []
    for steps in (left, right):
        sides.append(Plan(exact=exact))
        for each in steps:
            sides[-1].add(each)
    return compare(*sides)


def test_what_is_the_same_differs_nowhere():
    steps = [step(1, update("4")), step(2, key=OTHER)]
    assert plans(steps, steps, exact=True) == plans(steps, steps, exact=False) == []


def test_another_id_of_the_same_record_is_no_difference():
    told = "Registered: registered model 1 is recorded as deployed: record 4 in registry"
    left = step(1, update("4"), notices=(told,))
    right = step(1, update("9"), notices=(told.replace("record 4", "record 9"),))
    assert plans([left], [right], exact=True) == []


def test_a_write_to_another_record_of_the_object_is_a_difference():
    left = [step(1, update("4")), step(2, update("5")), step(3, update("4"))]
    right = [step(1, update("4")), step(2, update("5")), step(3, update("5"))]
    (parting,) = plans(left, right, exact=True)
    assert (parting.left.seq, parting.what, parting.left_value, parting.right_value) == (
        3,
        "decision.1.record",
        "#1",
        "#2",
    )


def test_the_first_thing_that_differs_is_named_and_the_rest_counted():
    left = [step(1, update("4", runtime="a")), step(2, update("4")), step(3, update("4", runtime="a"))]
    right = [step(1, update("4", runtime="b")), step(2, update("4")), step(3, update("4", runtime="b"))]
    (parting,) = plans(left, right, exact=True)
    assert (parting.key, parting.what, parting.left_value, parting.right_value) == (
        IRIS,
        "decision.1.runtime",
        "a",
        "b",
    )
    assert parting.more == 1


def test_objects_are_in_the_order_in_which_they_part():
    left = [step(1, update("4"), key=OTHER), step(2, update("5")), step(3, update("4"), key=OTHER)]
    right = [step(1, update("4"), key=OTHER), step(2), step(3, key=OTHER)]
    assert [parting.key for parting in plans(left, right, exact=True)] == [IRIS, OTHER]


def test_a_field_of_our_property_is_named():
    def written(**stamp: object) -> Step:
        text = msgspec.json.encode({"ready": True, **stamp}).decode()
        return step(1, update("4", properties={"isvc-sync": {"string_value": text}}))

    (parting,) = plans([written(modelFormat="onnx")], [written(modelFormat="sklearn")], exact=True)
    assert parting.what == "decision.1.properties.isvc-sync.modelFormat"
    assert plans([written(digest="a", uid="u")], [written(digest="b", uid="v")], exact=False) == []


def test_a_plan_that_ends_earlier_parts_there():
    (parting,) = plans([step(1, update("4")), step(2, update("4"))], [step(1, update("4"))], exact=False)
    assert (parting.left.seq, parting.right, parting.right_value) == (2, None, END)


def test_events_that_change_nothing_count_only_under_one_capture():
    left, right = [step(1), step(2, update("4"))], [step(2, update("4"))]
    assert plans(left, right, exact=False) == []
    assert len(plans(left, right, exact=True)) == 1


def test_dead_letters_and_what_waits_count_always():
    dead = step(1, result="dead", reason="registered model 9 does not exist in the registry")
    assert len(plans([dead], [], exact=False)) == 1


def test_two_runs_of_one_story_are_the_same_and_a_third_one_is_not():
    lived = plan_of(story())
    again = plan_of([later(line) for line in story()])
    assert compare(lived, again) == []
    *most, ends = story()
    obj = ready(isvc(IRIS, "u-1", 60, registered_model_id="1"))
    other = plan_of([*most, captured(16, obj, at_s=4.0), ends])
    assert [parting.key for parting in compare(lived, other)] == [IRIS]


def later(line):
    """Return the same event of another run: another uid, another time."""
    uid = line.event.uid + "-again"
    event = replace(line.event, uid=uid, time=line.event.time.replace("T10", "T11"))
    body = line.data.replace(f'"uid":"{line.event.uid}"'.encode(), f'"uid":"{uid}"'.encode())
    return type(line)(event, body, line.position)


def plan_of(lines) -> Plan:
    planner, plan = Planner(HEADER), Plan(exact=False)
    planner.facts(START)
    for line in lines:
        for each in planner.decide(line):
            plan.add(each)
    return plan
