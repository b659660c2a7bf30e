"""A replay's own streams on a NATS server: made for it, filled by it, and removed at its end.

They are what producer and consumers would make under SUBJECT_PREFIX=isvc-replay-<name>, so a real consumer that is
given this prefix reads them, and none that is not given it does.
"""

import logging
from typing import Final
from urllib.parse import unquote

import nats.js.errors
from msgspec import Struct
from msgspec.structs import replace

from replay.capture import Captured
from replay.target.choice import Guise, headers_of
from shared.broker import Broker, BrokerSettings
from shared.broker_errors import translated
from shared.errors import RefusedToStartError, UnreachableError
from shared.streams import ensure_streams, stream_names
from shared.subjects import Subjects, unescape

logger = logging.getLogger(__name__)

STREAM_BYTES: Final = 256 * 1024 * 1024  # servers reserve the limit of a stream: 2 GiB is much for a replay
_CONSUMERS_PAGE: Final = 256  # the server lists no more at once
_TRIES: Final = 3  # of 5 s each; the message id makes it one event all the same


class Reading(Struct, frozen=True):
    """How far the consumers of the events are.

    `unsettled`: messages that one of them has still to deal with. `arriving`: some shards have their durable consumer,
    and others have not yet.
    """

    consumers: int = 0
    unsettled: int = 0
    arriving: bool = False


class ReplayStreams:
    """The streams of one replay, on a connected broker. Methods raise UnreachableError and PermanentError."""

    def __init__(self, broker: Broker, settings: BrokerSettings, guise: Guise) -> None:
        self._broker = broker
        self._settings = replace(settings, subject_prefix=guise.prefix)
        self._subjects = Subjects(guise.prefix, guise.cluster, settings.shards)
        self.names = stream_names(guise.prefix)

    @property
    def all_names(self) -> tuple[str, str, str]:
        return self.names.events, self.names.dlq, self.names.lease

    async def open(self) -> None:
        """Make the streams, unless a consumer that waits for the events has made them.

        Raises RefusedToStartError when another replay of that name has left something in them.
        """
        await ensure_streams(self._broker.jetstream, self._settings)
        if held := await self._held():
            raise RefusedToStartError(
                f"The stream {self.names.events} holds {held} events of another replay: give another --name, or remove "
                f"its streams: {', '.join(self.all_names)}."
            )

    async def _held(self) -> int:
        """Return how many events there are; 0 without a stream, too."""
        with translated(f"reading the stream {self.names.events}"):
            try:
                return (await self._broker.jetstream.stream_info(self.names.events)).state.messages
            except nats.js.errors.NotFoundError:
                return 0

    async def publish(self, captured: Captured) -> bool:
        """Publish an event, marked as replayed; return whether the broker took it for news."""
        for attempt in range(1, _TRIES):
            try:
                return await self._publish(captured) or attempt > 1  # what is known then is so from the try before
            except UnreachableError as error:
                logger.warning("publishing once more", extra={"reason": str(error)})
        await self._publish(captured)
        return True

    async def _publish(self, captured: Captured) -> bool:
        subject = self._subjects.event(captured.event.key)
        with translated(f"publishing to {subject}"):
            ack = await self._broker.jetstream.publish(
                subject, captured.data, stream=self.names.events, headers=headers_of(captured)
            )
        return not ack.duplicate

    async def reading(self) -> Reading:
        """Return how far those are who read the events."""
        durables = {self._subjects.durable(shard) for shard in range(self._settings.shards)}
        missing, count, unsettled = set(durables), 0, 0
        while True:
            with translated(f"reading the consumers of {self.names.events}"):
                page = await self._broker.jetstream.consumers_info(self.names.events, count)
            count += len(page)
            unsettled += sum((each.num_pending or 0) + (each.num_ack_pending or 0) for each in page)
            missing -= {each.name for each in page}
            if len(page) < _CONSUMERS_PAGE:
                return Reading(count, unsettled, arriving=bool(missing) and missing != durables)

    async def dead_letters(self) -> dict[str, str]:
        """Return what was buried: the reason by object, `<kind>/<namespace>/<name>`."""
        jetstream, stream = self._broker.jetstream, self.names.dlq
        found = {}
        with translated(f"reading the stream {stream}"):
            info = await jetstream.stream_info(stream, subjects_filter=self._subjects.all_dead_letters())
            for subject in info.state.subjects or {}:
                message = await jetstream.get_last_msg(stream, subject)
                key = "/".join(unescape(token) for token in subject.split(".")[3:])
                found[key] = unquote((message.headers or {}).get("isvc-reason", ""))
        return found

    async def remove_unused(self) -> None:
        """Remove the streams if there is no event in them: what was made by a replay that ends before it begins."""
        if not await self._held():
            await self.remove()

    async def remove(self) -> None:
        """Remove the streams and everything in them."""
        for name in self.all_names:
            with translated(f"removing the stream {name}"):
                try:
                    await self._broker.jetstream.delete_stream(name)
                except nats.js.errors.NotFoundError:
                    logger.info("somebody was faster", extra={"stream": name})
