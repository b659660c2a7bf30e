"""From a change to a message: what a tombstone says."""

import msgspec
import pytest
from opentelemetry.trace import NoOpTracer

from producer.changes import Change
from producer.ledger import Stored
from producer.outbox import Outbox, Source
from shared.events import EventType, decode
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects

KEY = ObjectKey(Kind.ISVC, "ns", "a")
GONE = Change(EventType.DELETED, KEY, "u1", 1, "20", "v1:00", (), 5)


class Broker:
    """Publisher and ledger over one last message."""

    def __init__(self, uid):
        self.stored = Stored(7, msgspec.json.encode({"metadata": {"uid": uid}, "spec": {"last": True}}))
        self.messages = []

    async def barrier(self):
        pass

    async def last(self, key):
        return self.stored

    async def put(self, message):
        self.messages.append(message)


async def tombstone(uid):
    broker = Broker(uid)
    source = Source("c", Subjects("isvc", "east", 4), NamingSettings(cluster_name="east").api_version, lambda: 1 << 20)
    await Outbox(source, broker, broker, NoOpTracer()).publish(GONE, lambda _: None)
    [message] = broker.messages
    return decode(message.headers), msgspec.json.decode(message.body)


async def test_R27_a_tombstone_has_the_body_of_the_last_message_and_corrects_that():
    event, body = await tombstone("u1")
    assert event.corrects == 7
    assert body == {"metadata": {"uid": "u1"}, "spec": {"last": True}}


@pytest.mark.parametrize("uid", ["u2", None], ids=["another owner", "nobody"])
async def test_R28_a_tombstone_never_has_the_body_of_another_owner_of_the_name(uid):
    _, body = await tombstone(uid)
    assert (body["metadata"]["uid"], body["spec"]) == ("u1", {})
