"""A connection to the broker for as long as a command takes: it does not wait for a broker that may come some time."""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from shared.broker import Broker, BrokerSettings
from shared.errors import UnreachableError
from shared.logs import redact

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
