"""The event stream as the sweep reads it, and where its looks go; on a real nats-server."""

import pytest

from consumer import looks
from consumer.looks import RecordRef
from consumer.sweep.stream import SweptStream, require_still_ours
from shared.errors import RefusedToStartError
from shared.events import SyncMarker, encode_marker
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects

SUBJECTS = Subjects("isvc", "eu.prod", 16)
STREAM = "ISVC_EVENTS"
COUNT = 2500  # more than two batches


def key(number: int, kind: Kind = Kind.ISVC) -> ObjectKey:
    return ObjectKey(kind, "ns", f"o{number}")


@pytest.fixture
def stream(broker) -> SweptStream:
    return SweptStream(broker, SUBJECTS, STREAM, "c-1")


async def mark(broker, cluster_id: str) -> None:
    headers, body = encode_marker(SyncMarker(("ns",), "7", 3), kind=Kind.ISVC, cluster_id=cluster_id, time="t")
    await broker.jetstream.publish(SUBJECTS.sync(Kind.ISVC), body, headers=headers)


async def test_the_last_event_of_each_object_is_read_with_its_body_and_place(broker, stream):
    for version in (1, 2):
        for number in range(COUNT):
            await broker.client.publish(SUBJECTS.event(key(number)), str(version).encode(), headers={"n": str(number)})
    await broker.jetstream.publish(SUBJECTS.event(key(0, Kind.LLMISVC)), b"other kind")
    await broker.jetstream.publish(SUBJECTS.look(key(0)), b"no event")
    told = [each async for each in stream.last_events(Kind.ISVC)]
    assert {each.body for each in told} == {b"2"}
    assert {each.subject for each in told} == {SUBJECTS.event(key(number)) for number in range(COUNT)}
    assert [each.sequence for each in told] == list(range(COUNT + 1, 2 * COUNT + 1))
    assert (await stream.state()).last_sequence == 2 * COUNT + 2


async def test_reading_leaves_no_consumer_behind(broker, stream):
    await broker.jetstream.publish(SUBJECTS.event(key(0)), b"1")
    assert len([each async for each in stream.last_events(Kind.ISVC)]) == 1
    assert await broker.jetstream.consumers_info(STREAM) == []


async def test_only_the_marker_of_this_cluster_counts(broker, stream):
    assert await stream.marker(Kind.ISVC) is None
    await mark(broker, "c-2")
    assert await stream.marker(Kind.ISVC) is None
    await mark(broker, "c-1")
    assert await stream.marker(Kind.ISVC) == SyncMarker(("ns",), "7", 3)


async def test_a_marker_that_cannot_be_read_is_none(broker, stream):
    await broker.jetstream.publish(SUBJECTS.sync(Kind.ISVC), b"{", headers={"ce-source": "/clusters/c-1"})
    assert await stream.marker(Kind.ISVC) is None


async def test_a_look_is_stored_each_time_and_names_its_records(broker, stream):
    refs = (RecordRef("http://r.example", "u", "1"),)
    for _ in range(2):
        await stream.look(key(1), refs)
    await stream.look(key(2), ())
    message = await broker.jetstream.get_last_msg(STREAM, SUBJECTS.look(key(1)))
    assert (message.data or b"", looks.decode(message.headers)) == (b"", refs)
    info = await broker.jetstream.stream_info(STREAM, SUBJECTS.look(key(1)))
    assert info.state.subjects == {SUBJECTS.look(key(1)): 2}
    bare = await broker.jetstream.get_last_msg(STREAM, SUBJECTS.look(key(2)))
    assert looks.HEADER not in (bare.headers or {})


# --- whose it is ----------------------------------------------------------------------------------------------------


async def tell(broker, number: int, cluster_id: str) -> None:
    await broker.jetstream.publish(SUBJECTS.event(key(number)), b"{}", headers={"ce-source": f"/clusters/{cluster_id}"})


async def is_ours(broker) -> bool:
    try:
        await require_still_ours(broker, STREAM, SUBJECTS, "c-1")
    except RefusedToStartError:
        return False
    return True


@pytest.mark.parametrize(
    ("events", "marked_by", "ours"),
    [
        pytest.param(["c-2"], [], False, id="theirs alone"),
        pytest.param(["c-1", "c-2"], [], True, id="a stray before the first marker"),
        pytest.param(["c-2", "c-1", "c-2"], [], False, id="theirs, and strays of ours"),
        pytest.param(["c-1", "c-2"], ["c-1"], True, id="a stray"),
        pytest.param(["c-2", "c-2"], ["c-1"], True, id="a stray, and ours are purged"),
        pytest.param(["c-1", "c-2"], ["c-2"], False, id="theirs, and strays of ours before"),
    ],
)
async def test_an_event_of_another_cluster_is_a_stray_where_marker_or_first_event_are_ours(
    broker, events, marked_by, ours
):
    for number, cluster_id in enumerate(events):
        await tell(broker, number, cluster_id)
    for cluster_id in marked_by:
        await mark(broker, cluster_id)
    assert await is_ours(broker) is ours


async def test_an_empty_stream_is_ours(broker):
    assert await is_ours(broker)
