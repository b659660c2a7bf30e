"""The log of consumers becomes action lines: which lines count, what belongs together, and to which capture."""

import json

import msgspec
import pytest

from replay.capture import Action, Captured, Position
from replay.recording.consumer_log import ConsumerLog, Recorded
from tests.unit.replay import captures

EVENT = captures.first_event()
ABOUT = str(EVENT.event.key)
CREATE = {"method": "POST", "route": "/api/model_registry/v1alpha3/inference_services"}
UPDATE = {"method": "PATCH", "route": "/api/model_registry/v1alpha3/inference_services/{id}"}
PATCH = {"method": "PATCH", "route": "/apis/serving.kserve.io/v1beta1/namespaces/{namespace}/inferenceservices/{name}"}


def stored(seq: int, time: str = "2026-12-01T10:00:00.000000Z") -> Captured:
    return msgspec.structs.replace(EVENT, position=Position(seq, EVENT.position.subject, time))


def line(message: str, second: float = 1.0, **fields: object) -> bytes:
    """One line of a log about message 7, `second` seconds after it was stored."""
    told = {"time": f"2026-12-01T10:00:{second:06.3f}Z", "level": "INFO", "logger": "consumer.x", "message": message}
    return json.dumps(told | {"object": ABOUT, "sequence": 7, "member": "pod-0"} | fields).encode() + b"\n"


def actions(*lines: bytes, recorded: tuple[Captured, ...] = (stored(7),)) -> list[Action]:
    known = Recorded()
    for each in recorded:
        known.take(each)
    log = ConsumerLog(known)
    log.read(lines)
    return list(log.actions())


def kinds(found: list[Action]) -> list[str]:
    return [action.kind for action in found]


def test_a_decision_and_the_request_that_carried_it_out_are_one_action():
    [found] = actions(
        line("decided", 1.0, action="CreateRecord", reason="its model is registered"),
        line("request", 1.014, **CREATE, status="201", ms=12.5),
    )
    assert found == Action(
        event=7,
        object=ABOUT,
        kind="CreateRecord",
        reason="its model is registered",
        time="2026-12-01T10:00:01.000Z",
        status=201,
        ms=14.0,
        member="pod-0",
    )


@pytest.mark.parametrize(
    ("request_of", "kind"), [(CREATE, "CreateRecord"), (UPDATE, "UpdateRecord"), (PATCH, "PatchObject")]
)
def test_each_write_carries_out_the_action_of_its_kind(request_of, kind):
    [found] = actions(line("decided", action=kind), line("request", **request_of, status="200"))
    assert (found.kind, found.status) == (kind, 200)


@pytest.mark.parametrize(
    "other",
    [
        {"method": "GET", "route": CREATE["route"], "status": "503"},
        {"method": "POST", "route": "/api/model_registry/v1alpha3/serving_environments", "status": "409"},
        {"method": "POST", "route": "/api/v1/namespaces/{namespace}/events", "status": "403"},
        {"method": "PATCH", "route": "/api/v1/namespaces/{namespace}/events/{name}", "status": "403"},
    ],
)
def test_what_is_asked_or_written_beside_it_is_not_its_end(other):
    [found] = actions(
        line("decided", action="CreateRecord"), line("request", **other), line("request", 1.5, **CREATE, status="201")
    )
    assert (found.status, found.ms) == (201, 500.0)


def test_a_patch_that_was_tried_again_ended_with_its_last_request():
    [found] = actions(
        line("decided", 1.0, action="PatchObject"),
        line("request", 1.1, **PATCH, status="409"),
        line("request", 1.3, **PATCH, status="200"),
    )
    assert (found.status, found.ms) == (200, 300.0)


@pytest.mark.parametrize("status", ["unreachable", "failed"])
def test_a_request_without_an_answer_has_no_status(status):
    [found] = actions(line("decided", action="UpdateRecord"), line("request", 6.0, **UPDATE, status=status, ms=5000.0))
    assert (found.status, found.ms) == (0, 5000.0)


def test_an_action_that_nothing_carried_out_stays_without_status_and_time():
    [found] = actions(line("decided", action="DeferPatch", reason="it would restart pods"))
    assert (found.kind, found.status, found.ms) == ("DeferPatch", 0, 0.0)


def test_a_record_that_a_look_closes_was_changed_though_nobody_decided_it_here():
    [found] = actions(line("request", 1.5, **UPDATE, status="200", ms=8.0))
    assert (found.kind, found.status, found.ms) == ("UpdateRecord", 200, 8.0)


@pytest.mark.parametrize(
    ("message", "kind"), [("acknowledged", "ack"), ("will try again", "retry"), ("dead letter", "dead")]
)
def test_what_became_of_a_message_is_an_action(message, kind):
    assert actions(line(message, reason="because")) == [
        Action(event=7, object=ABOUT, kind=kind, reason="because", time="2026-12-01T10:00:01.000Z", member="pod-0")
    ]


def test_two_tries_of_a_message_are_told_one_by_one():
    found = actions(
        line("decided", 1.0, action="CreateRecord"),
        line("request", 1.1, **CREATE, status="503"),
        line("will try again", 1.2),
        line("decided", 2.0, action="CreateRecord"),
        line("request", 2.1, **CREATE, status="201"),
        line("acknowledged", 2.2),
    )
    assert [(each.kind, each.status) for each in found] == [
        ("CreateRecord", 503),
        ("retry", 0),
        ("CreateRecord", 201),
        ("ack", 0),
    ]


def test_the_lines_of_two_consumers_do_not_get_into_each_other():
    found = actions(
        line("decided", 1.0, action="CreateRecord", member="pod-0"),
        line("decided", 1.1, action="UpdateRecord", member="pod-1"),
        line("request", 1.2, **CREATE, status="201", member="pod-0"),
        line("request", 1.3, **UPDATE, status="200", member="pod-1"),
    )
    assert [(each.member, each.kind, each.status) for each in found] == [
        ("pod-0", "CreateRecord", 201),
        ("pod-1", "UpdateRecord", 200),
    ]


def test_actions_come_in_the_order_of_time_whatever_the_order_of_the_files():
    assert [each.time[-7:] for each in actions(line("acknowledged", 3.0), line("acknowledged", 2.0))] == [
        "02.000Z",
        "03.000Z",
    ]


def test_a_line_that_stands_in_two_files_is_told_once():
    assert kinds(actions(line("dead letter"), line("dead letter"))) == ["dead"]


@pytest.mark.parametrize("before", [b"[pod/isvc-sync-consumer-0/consumer] ", b"2026-12-01T10:00:01.1Z ", b"\xff "])
def test_what_a_carrier_put_before_a_line_is_passed_over(before):
    assert kinds(actions(before + line("acknowledged"))) == ["ack"]


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"Traceback (most recent call last):\n",
        b"{",
        b"[1]",
        b"null",
        b'{"time": 3}',
        b'{"message": "acknowledged"}',
        b'{"time": "now", "message": "acknowledged", "sequence": 7}',
        b'{"time": "2026-12-01T10:00:01Z", "message": "acknowledged", "sequence": "7"}',
        b"{" * 100_000,
        b'{"time": "\xff"}',
    ],
)
def test_what_is_no_line_of_ours_counts_for_nothing(foreign):
    log = ConsumerLog(Recorded())
    log.take(foreign)
    assert (log.lines, list(log.actions())) == (0, [])


@pytest.mark.parametrize("other", [{"sequence": 8}, {"object": "isvc/credit/other"}, {"object": ""}])
def test_what_was_done_about_other_messages_is_left_out(other):
    assert actions(line("acknowledged", **other)) == []


def test_an_older_streams_message_of_that_number_is_another_one():
    assert actions(line("acknowledged", 1.0), recorded=(stored(7, "2026-12-01T10:01:01.001Z"),)) == []
    assert kinds(actions(line("acknowledged", 1.0), recorded=(stored(7, "2026-12-01T10:01:01.000Z"),))) == ["ack"]


def test_a_look_that_a_consumer_asked_of_itself_belongs_to_its_object():
    found = actions(
        line("decided", sequence=0, action="PatchObject"), line("request", sequence=0, **PATCH, status="200")
    )
    assert [(each.event, each.kind, each.status) for each in found] == [(0, "PatchObject", 200)]
    assert actions(line("decided", sequence=0, action="PatchObject", object="isvc/a/other")) == []
    later = (stored(7, "2026-12-01T10:05:00Z"),)
    assert actions(line("decided", sequence=0, action="PatchObject"), recorded=later) == []
