"""A connection to the broker for as long as a command takes: it does not wait for a broker that may come some time."""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

import nats.js.errors

from shared.broker import Broker, BrokerSettings
from shared.broker_errors import translated
from shared.errors import PermanentError, UnreachableError
from shared.logs import redact
from shared.objects import Kind
from shared.streams import require_shards, stream_names
from shared.subjects import Subjects

_CONNECT_S: Final = 5.0
_LAST_WORDS_S: Final = 1.0


def server_of(settings: BrokerSettings) -> str:
    """Return the broker's address for people, without credentials."""
    return redact(" or ".join(settings.nats_url))


def trouble_of(broker: Broker) -> str:
    """Return the last error of the connection, if there was any."""
    error = broker.client.last_error
    return f"{type(error).__name__}: {error}" if error is not None else ""


async def connected(settings: BrokerSettings, stack: AsyncExitStack) -> Broker:
    """Connect; `stack` closes. Raises UnreachableError when the broker does not let us in."""
    broker = Broker(settings, on_closed=lambda: None)  # the question under way fails by itself
    stack.push_async_callback(broker.close, _LAST_WORDS_S)
    try:
        async with asyncio.timeout(_CONNECT_S):
            await broker.connect()
    except TimeoutError as error:
        raise UnreachableError(
            f"NATS at {server_of(settings)} did not let us in within {_CONNECT_S:.0f} s "
            f"({trouble_of(broker) or 'no greeting'}): check NATS_URL, NATS_CREDS_FILE and NATS_CA_FILE."
        ) from error
    return broker


async def require_stream(broker: Broker, settings: BrokerSettings) -> None:
    """Make sure that the event stream is there, for our number of shards.

    Raises RefusedToStartError when it was made for another number, PermanentError when there is none.
    """
    try:
        await require_shards(broker.jetstream, settings)
    except PermanentError as error:
        if not isinstance(error.__cause__, nats.js.errors.NotFoundError):
            raise
        raise PermanentError(
            f"NATS at {server_of(settings)} has no stream {stream_names(settings.subject_prefix).events}: start the "
            "producer, which makes it; or, if one runs, give NATS_URL and SUBJECT_PREFIX as it has them."
        ) from error


async def is_known(broker: Broker, subjects: Subjects) -> bool:
    """Whether the event stream is there, and holds a sync marker or an event under this cluster's name."""
    stream = stream_names(subjects.prefix).events
    for subject in (*(subjects.sync(kind) for kind in Kind), *(subjects.all_events(kind) for kind in Kind)):
        with translated(f"reading the last message of {subject}"):
            try:
                await broker.jetstream.get_last_msg(stream, subject)
            except nats.js.errors.NotFoundError:  # the stream's absence, too
                continue
        return True
    return False
