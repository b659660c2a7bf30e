"""The log of consumers becomes action lines: which lines count, what belongs together, and to which capture."""

import json
from collections.abc import Sequence

import msgspec
import pytest

from replay.capture import Action, Captured, Position
from replay.moments import micros
from replay.recording.consumer_log import ConsumerLog, Recorded
from tests.unit.replay import captures

EVENT = captures.first_event()
ABOUT = str(EVENT.event.key)
CREATE = {"method": "POST", "route": "/api/model_registry/v1alpha3/inference_services"}
UPDATE = {"method": "PATCH", "route": "/api/model_registry/v1alpha3/inference_services/{id}"}
PATCH = {"method": "PATCH", "route": "/apis/serving.kserve.io/v1beta1/namespaces/{namespace}/inferenceservices/{name}"}


def stored(seq: int, time: str = "2026-12-01T10:00:00.000000Z") -> Captured:
    return msgspec.structs.replace(EVENT, position=Position(seq, EVENT.position.subject, time))


VERSION = EVENT.event.resource_version


def line(message: str, second: float = 1.0, **fields: object) -> bytes:
    """One line of a log about message 7, `second` seconds after it was stored."""
    told = {"time": f"2026-12-01T10:00:{second:06.3f}Z", "level": "INFO", "logger": "consumer.x", "message": message}
    about = {"object": ABOUT, "sequence": 7, "resource_version": VERSION, "member": "pod-0"}
    return json.dumps(told | about | fields).encode() + b"\n"


def actions(*lines: bytes, recorded: tuple[Captured, ...] = (stored(7),)) -> list[Action]:
    return actions_of(lines, recorded=recorded)


def actions_of(
    *files: Sequence[bytes], recorded: tuple[Captured, ...] = (stored(7),), until: int | None = None
) -> list[Action]:
    known = Recorded()
    for each in recorded:
        known.take(each)
    known.until = until
    log = ConsumerLog(known)
    for lines in files:
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


@pytest.mark.parametrize("status", ["²⁰⁰", "9" * 5000, "20", "-20", ""])
def test_what_can_be_no_status_is_none(status):
    [found] = actions(line("decided", action="UpdateRecord"), line("request", **UPDATE, status=status))
    assert found.status == 0


@pytest.mark.parametrize("ms", [-1.0, 1e308, 86_400_001.0])
def test_what_can_be_no_duration_is_none(ms):
    [found] = actions(line("request", 1.5, **UPDATE, status="200", ms=ms))
    assert (found.time, found.ms) == ("2026-12-01T10:00:01.500Z", 0.0)


def test_an_action_that_nothing_carried_out_stays_without_status_and_time():
    [found] = actions(line("decided", action="DeferPatch", reason="it would restart pods"))
    assert (found.kind, found.status, found.ms) == ("DeferPatch", 0, 0.0)


def test_a_record_that_a_look_closes_was_changed_though_nobody_decided_it_here():
    [found] = actions(line("request", 1.5, **UPDATE, status="200", ms=8.0))
    assert (found.kind, found.status) == ("UpdateRecord", 200)
    assert (found.time, found.ms) == ("2026-12-01T10:00:01.492Z", 8.0), "it began before its end"


def test_a_request_of_another_kind_does_not_carry_out_what_was_decided():
    found = actions(line("decided", 1.0, action="PatchObject"), line("request", 1.5, **UPDATE, status="200", ms=8.0))
    assert [(each.kind, each.status) for each in found] == [("PatchObject", 0), ("UpdateRecord", 200)]


def test_what_is_no_decision_of_ours_is_none():
    assert actions(line("decided", action="CANARY")) == []


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


WHOLE = (
    line("decided", 1.0, action="UpdateRecord"),
    line("request", 1.0, **UPDATE, status="200"),
    line("decided", 1.0, action="PatchObject"),
    line("request", 1.2, **PATCH, status="409"),
    line("request", 1.4, **PATCH, status="503"),
    line("will try again", 1.4),
    line("decided", 3.0, action="PatchObject"),
    line("request", 3.5, **PATCH, status="200"),
    line("acknowledged", 3.6),
)


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_the_parts_of_a_log_may_come_in_any_order(cut):
    assert actions_of(WHOLE[cut:], WHOLE[:cut]) == actions(*WHOLE)


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_lines_that_stand_in_two_files_are_told_once(cut):
    assert actions_of(WHOLE[: cut + 2], WHOLE[cut - 1 :]) == actions(*WHOLE)


@pytest.mark.parametrize(
    "before", [b"[pod/isvc-sync-consumer-0/consumer] ", b"2026-12-01T10:00:01.1Z stderr F ", b"\xff "]
)
def test_what_a_carrier_put_before_a_line_is_passed_over(before):
    assert kinds(actions(before + line("acknowledged"))) == ["ack"]


def test_docker_keeps_a_line_as_text_in_an_object():
    [found] = actions(json.dumps({"log": line("acknowledged").decode(), "stream": "stderr", "time": "x"}).encode())
    assert (found.kind, found.event) == ("ack", 7)


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
    log.read([foreign])
    assert (log.lines, list(log.actions())) == (0, [])


def test_what_is_left_of_a_line_of_ours_is_counted():
    log = ConsumerLog(Recorded())
    log.read([b'{"time": "2026-12-01T10:00:01Z", "mess\n', b"{}\n", b"text\n", b'{"time": "20'])
    assert log.damaged == 1, "the last one is still being written"


@pytest.mark.parametrize(
    "other",
    [{"sequence": 8}, {"object": "isvc/credit/other"}, {"object": ""}, {"resource_version": "1"}],
    ids=["another message", "another object", "no object", "of a stream that was wiped"],
)
def test_what_was_done_about_other_messages_is_left_out(other):
    assert actions(line("acknowledged", **other)) == []


def test_an_older_streams_message_of_that_number_is_another_one():
    assert actions(line("acknowledged", 1.0), recorded=(stored(7, "2026-12-01T10:01:01.001Z"),)) == []
    assert kinds(actions(line("acknowledged", 1.0), recorded=(stored(7, "2026-12-01T10:01:01.000Z"),))) == ["ack"]


LOOK = {"look": True, "resource_version": ""}


@pytest.mark.parametrize("sequence", [0, 9], ids=["its own", "a message"])
def test_a_look_concerns_its_object_and_no_event(sequence):
    found = actions(
        line("decided", sequence=sequence, **LOOK, action="PatchObject"),
        line("request", sequence=sequence, **LOOK, **PATCH, status="200"),
    )
    assert [(each.event, each.kind, each.status) for each in found] == [(0, "PatchObject", 200)]


@pytest.mark.parametrize(
    ("told", "bounds"),
    [
        ({"object": "isvc/a/other"}, {}),
        ({}, {"recorded": (stored(7, "2026-12-01T10:05:00Z"),)}),
        ({}, {"until": micros("2026-12-01T10:00:00.999Z")}),
    ],
    ids=["of another object", "before the recording", "after it"],
)
def test_a_look_at_something_else_is_left_out(told, bounds):
    look = line("decided", 1.0, **LOOK | {"sequence": 9, "action": "PatchObject"} | told)
    assert len(actions_of([look], recorded=(stored(7),))) == (not told)
    assert actions_of([look], **bounds) == []
