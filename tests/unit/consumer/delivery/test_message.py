"""Reply subjects are read in every form; answers are what the server understands."""

from types import SimpleNamespace

import nats.errors
import pytest

from consumer.delivery.message import Delivery, Origin, parse_reply
from shared.errors import BadEventError, UnreachableError

SHORT = "$JS.ACK.ISVC_EVENTS.isvc-c-3.2.41.7.1764531492000000001.5"
LONG = "$JS.ACK.hub.Hx3.ISVC_EVENTS.isvc-c-3.2.41.7.1764531492000000001.5"
ORIGIN = Origin("ISVC_EVENTS", "isvc-c-3", num_delivered=2, sequence=41, timestamp_ns=1764531492000000001)


@pytest.mark.parametrize("reply", [SHORT, LONG, LONG + ".random", LONG.replace("hub", "_")])
def test_a_reply_subject_is_read_in_every_form(reply):
    assert parse_reply(reply) == ORIGIN


@pytest.mark.parametrize(
    "reply",
    ["", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.S.C.1.2.3.4.5.6", "$JS.ACK.S.C.1.two.3.4.5", "$JS.ACK.d.h.S.C.1.2.3.now.5"],
)
def test_a_reply_subject_of_another_form_is_refused(reply):
    with pytest.raises(BadEventError, match="reply subject"):
        parse_reply(reply)


class RecordingClient:
    def __init__(self, error=None):
        self.published = []
        self._error = error

    async def publish(self, subject, payload):
        if self._error is not None:
            raise self._error
        self.published.append((subject, payload))


def delivery(client):
    message = SimpleNamespace(subject="isvc.c.evt.3.isvc.ns.a", headers=None, data=b"{}", reply=SHORT)
    return Delivery.of(message, ORIGIN, client)


@pytest.mark.parametrize(
    ("answer", "payload"),
    [
        (Delivery.ack, b"+ACK"),
        (Delivery.in_progress, b"+WPI"),
        (lambda d: d.terminate("model 7 ist nicht da: é"), "+TERM model 7 ist nicht da: é".encode()),
    ],
)
async def test_an_answer_goes_to_the_reply_subject(answer, payload):
    client = RecordingClient()
    await answer(delivery(client))
    assert client.published == [(SHORT, payload)]


async def test_an_answer_that_cannot_be_buffered_is_an_unreachable_broker():
    with pytest.raises(UnreachableError, match="answering message 41 of ISVC_EVENTS"):
        await delivery(RecordingClient(nats.errors.OutboundBufferLimitError())).ack()


def test_a_message_without_headers_has_an_empty_dict():
    assert delivery(RecordingClient()).headers == {}


def test_provenance_says_where_the_message_was():
    assert delivery(RecordingClient()).provenance == {
        "isvc-subject": "isvc.c.evt.3.isvc.ns.a",
        "isvc-stream": "ISVC_EVENTS",
        "isvc-seq": "41",
        "isvc-deliveries": "2",
    }
