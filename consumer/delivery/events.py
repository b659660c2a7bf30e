"""The event stream as a memory: the last event of an object, for looks that name the object only."""

import msgspec
import nats.js.errors

from consumer.observation import LastEvent, observe
from shared import events
from shared.broker import Broker
from shared.broker_errors import translated
from shared.decoding import UNDECODABLE
from shared.errors import BadEventError
from shared.objects import ObjectKey, ReducedObject
from shared.subjects import Subjects


class EventStream:
    """Implements the port `LastEvents`."""

    def __init__(self, broker: Broker, subjects: Subjects, stream: str) -> None:
        self._broker = broker
        self._subjects = subjects
        self._stream = stream

    async def last(self, key: ObjectKey) -> LastEvent | None:
        """Return the last event of an object; None when there is none, or none that decodes."""
        subject = self._subjects.event(key)
        with translated(f"reading the last event of {key}"):
            try:
                message = await self._broker.jetstream.get_last_msg(self._stream, subject, direct=True)
            except nats.js.errors.NotFoundError:
                return None
        try:
            event = events.decode(message.headers)
            seen = observe(event, msgspec.json.decode(message.data or b"", type=ReducedObject))
        except (BadEventError, *UNDECODABLE):
            return None  # it is among the dead letters already
        assert message.seq is not None, "a stored message has a place"
        return LastEvent(seen, message.seq)
