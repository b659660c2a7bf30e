"""The last event of an object, as looks read it; on a real nats-server."""

import pytest

from consumer.delivery.events import EventStream
from consumer.observation import observe
from shared.events import encode
from tests.unit.consumer.deliveries import SUBJECTS, an_event, delivered
from tests.unit.consumer.worlds import KEY, an_object


@pytest.fixture
def stream(broker) -> EventStream:
    return EventStream(broker, SUBJECTS, "ISVC_EVENTS")


async def publish(broker, obj):
    message = delivered(an_event(obj), obj)
    return (await broker.jetstream.publish(message.subject, message.body, headers=encode(an_event(obj)))).seq


async def test_it_is_the_newest_of_its_subject_with_its_place(broker, stream):
    for version in ("10", "20"):
        sequence = await publish(broker, an_object(version=version))
    await broker.jetstream.publish(SUBJECTS.look(KEY), b"")
    last = await stream.last(KEY)
    assert last.seen == observe(an_event(an_object(version="20")), an_object(version="20"))
    assert last.sequence == sequence == 2


async def test_there_is_none_of_an_object_without_events(stream):
    assert await stream.last(KEY) is None


async def test_one_that_does_not_decode_counts_as_none(broker, stream):
    await broker.jetstream.publish(SUBJECTS.event(KEY), b"{", headers={"ce-type": "x"})
    assert await stream.last(KEY) is None
