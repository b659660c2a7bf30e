"""Which objects are recorded, which records were there before, and what a recorder puts into a file."""

import pytest
from msgspec.structs import replace

from consumer.records import Record, Stamp, encode_stamp
from replay.capture import Captured, Facts, Position
from replay.files import reading, writing
from replay.recording.core import RECORDS_PER_LINE, Chosen, First, Recorder, record_facts, uid_of, was_before
from replay.upkeep.redaction import Redactor
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects, parse_object_subject
from tests.unit.replay.captures import CLUSTER_ID, HEADER, first_event

SUBJECTS = Subjects("isvc", "eu.prod", 16)
KEYS = [ObjectKey(kind, ns, name) for kind in Kind for ns in ("a", "b.c") for name in ("x", "y.z")]


def matches(pattern: str, subject: str) -> bool:
    pairs = zip(pattern.split("."), subject.split("."), strict=True)
    return all(token in {"*", word} for token, word in pairs)


CHOSEN = {
    "all": Chosen(),
    "a kind": Chosen(kinds=(Kind.LLMISVC,)),
    "a namespace": Chosen(namespaces=frozenset({"b.c"})),
    "an object": Chosen(objects=frozenset({("b.c", "y.z")})),
    "an object of a kind": Chosen(kinds=(Kind.ISVC,), objects=frozenset({("a", "x")})),
    "an object in a chosen namespace, and another": Chosen(
        namespaces=frozenset({"a"}), objects=frozenset({("a", "x"), ("b.c", "x")})
    ),
}


@pytest.mark.parametrize("chosen", CHOSEN.values(), ids=CHOSEN.keys())
def test_the_subjects_are_those_of_the_chosen_objects_and_no_two_overlap(chosen):
    for key in KEYS:
        subject = SUBJECTS.event(key)
        assert parse_object_subject(subject)[1] == key
        assert sum(matches(each, subject) for each in chosen.filters(SUBJECTS)) == int(chosen.takes(key))


def record(epoch: int = 1, version: str = "10", uid: str = "u1", **fields) -> Record:
    stamp = Stamp(
        cluster="c", cluster_id=CLUSTER_ID, kind="isvc", namespace="a", name="x", uid=uid, epoch=epoch,
        resource_version=version, deleted=fields.pop("deleted", False),
    )  # fmt: skip
    given = {"id": "7", "name": f"x/{uid}", "external_id": f"kserve:{uid}/1", "environment_id": "3", "model_id": "1"}
    return Record(**(given | {"properties": {"isvc-sync": encode_stamp(stamp)}} | fields))


@pytest.mark.parametrize(
    ("found", "first", "initial"),
    [
        (record(version="9"), First(1, "10", initial=False), True),
        (record(version="10"), First(1, "10", initial=False), False),  # written by that event
        (record(version="10"), First(1, "10", initial=True), True),  # by what was there
        (record(version="10", deleted=True), First(1, "10", initial=True), True),
        (record(version="11"), First(1, "10", initial=True), False),
        (record(version="9"), First(1, "10", initial=True), True),
        (record(epoch=0, version="999"), First(1, "10", initial=False), True),
        (record(epoch=2, version="1"), First(1, "10", initial=True), False),
        (record(properties={}), First(1, "10", initial=False), True),  # a predecessor's
    ],
)
def test_a_record_is_initial_unless_a_captured_event_wrote_it(found, first, initial):
    assert was_before(found, {"u1": first}) is initial


def test_a_record_of_an_object_that_is_not_recorded_is_none_of_ours():
    assert not was_before(record(), {"u2": First(1, "99", initial=True)})


@pytest.mark.parametrize(
    ("found", "uid"),
    [
        (record(), "u1"),
        (record(properties={}), "u1"),
        (record(properties={}, external_id=""), "u1"),
        (record(properties={}, external_id="", name="x/u1/2"), "u1"),
        (record(properties={}, external_id="", name="mine"), ""),
    ],
)
def test_whose_record_it_is_is_known_by_what_the_consumer_finds_it_by(found, uid):
    assert uid_of(found) == uid


def test_many_records_are_several_lines_and_each_names_its_environment():
    many = [record(id=str(number + 1), environment_id=str(3 + number % 2)) for number in range(RECORDS_PER_LINE + 1)]
    lines = list(record_facts("end", "r", many, {"3": "a"}))
    assert [len(each.records) for each in lines] == [RECORDS_PER_LINE, 1]
    assert [record.environment for record in lines[0].records[:2]] == ["a", "id 4"]
    assert lines[0].environments == {"a": "3"}


@pytest.mark.parametrize(("at", "lines"), [("end", [Facts(at="end", registry="r")]), ("start", [])])
def test_a_registry_that_holds_nothing_in_the_end_is_told_all_the_same(at, lines):
    assert list(record_facts(at, "r", [], {"3": "a"})) == lines


@pytest.fixture
def recorded(tmp_path):
    """Return what is read again of what a recorder is given."""

    def record_all(*lines):
        said = []
        with writing(tmp_path / "x", HEADER) as writer:
            recorder = Recorder(writer, Redactor(HEADER), Chosen(), said.append)
            for line in lines:
                recorder.write(line)
        with reading(tmp_path / "x") as capture:
            return list(capture)[:-1], recorder, said

    return record_all


def of_type(kind: EventType) -> Captured:
    event = first_event()
    return replace(event, event=replace(event.event, type=kind))


def test_the_first_event_of_an_object_is_initial_unless_it_is_its_creation(recorded):
    lines, recorder, _ = recorded(of_type(EventType.UPDATED), of_type(EventType.DELETED))
    assert [line.initial for line in lines] == [True, False]
    assert recorder.firsts[lines[0].event.uid].initial
    lines, _, _ = recorded(of_type(EventType.CREATED), of_type(EventType.UPDATED))
    assert [line.initial for line in lines] == [False, False]


def test_an_event_that_cannot_be_reduced_is_left_out_counted_and_told(recorded):
    broken = Captured(first_event().event, b"[]", Position(1))
    lines, recorder, said = recorded(broken, first_event())
    assert len(lines) == 1
    assert recorder.left_out == 1
    assert said == ["An event was left out: the object of isvc/credit/scorer does not decode."]
