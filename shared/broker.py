"""The connection to NATS: options that survive a broker's bad day, and an honest answer to "is it alive?".

Producer and consumer each hold one `Broker`. It hides two faults of nats-py 2.16 from everybody above:

- A ping that times out leaves a cancelled future behind; the late PONG then ends the read loop silently, and
  `is_connected` stays true. So liveness is a round trip of our own (`round_trip_age_s`), and a round trip that fails
  forces a reconnect.
- A half-open connection with unsent data makes the reconnect wait for minutes. So each new socket gets
  TCP_USER_TIMEOUT, and a forced reconnect aborts the old one.

Two more are kept out by `shared/nats_client.py`.
"""

import asyncio
import contextlib
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable
from typing import Annotated, Any, Self

import nats.errors
from msgspec import Meta, Struct
from nats.aio.client import Client, ServerVersion
from nats.js import JetStreamContext

from shared.errors import RefusedToStartError
from shared.nats_client import GuardedClient, check_addresses, socket_info, writer_of
from shared.running import ended, surely_cancelled
from shared.settings import READABLE

logger = logging.getLogger(__name__)

# 2.14 brought the reset of a consumer to its ack floor; without it a shard's new owner sees events out of order.
MINIMUM_SERVER_VERSION = (2, 14)

_RECONNECT_WAIT_S = 0.25  # a restart of the broker is over in a second
_CONNECT_TIMEOUT_S = 2
_PING_INTERVAL_S = 2  # nats-py's own detector; its default takes up to six minutes
_PENDING_BYTES = 32 * 1024 * 1024  # what may wait for the socket; the publisher's window is far below
_DRAIN_TIMEOUT_S = 10
_CLOSE_TIMEOUT_S = 5.0
_ROUND_TRIP_INTERVAL_S = 2.0
_ROUND_TRIP_TIMEOUT_S = 2
_TCP_USER_TIMEOUT_MS = 6000  # sent and unanswered for so long: the kernel gives the connection up
_API_TIMEOUT_S = 5.0
_ERROR_LOG_INTERVAL_S = 30.0


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """Where the broker is and what is ours there."""

    nats_url: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1,
            description="NATS servers of one cluster; tls:// demands TLS",
            extra={"check": check_addresses},
        ),
    ] = ("nats://127.0.0.1:4222",)
    nats_creds_file: Annotated[
        str | None,
        Meta(description="NATS credentials file (JWT and NKey), read again at each connect", extra=READABLE),
    ] = None
    nats_ca_file: Annotated[
        str | None, Meta(description="CA certificates for NATS in PEM; setting it demands TLS", extra=READABLE)
    ] = None
    subject_prefix: Annotated[
        str,
        Meta(pattern="^[a-z0-9][a-z0-9-]*$", description="First token of all subjects; names the streams, too"),
    ] = "isvc"
    shards: Annotated[
        int,
        Meta(
            ge=1, le=1024, description="Number of shards, fixed for the life of the stream: at most so many consumers"
        ),
    ] = 16
    stream_max_bytes: Annotated[
        int, Meta(ge=1024 * 1024, description="Size limit of the event stream in bytes, used when it is created")
    ] = 2 * 1024 * 1024 * 1024
    stream_replicas: Annotated[int, Meta(ge=1, le=5, description="Replicas of each stream when it is created")] = 1


class Broker:
    """One connection to NATS for the whole life of the process.

    Guarantees: it reconnects without limit; hooks run on the event loop after each reconnect, and an error in one harms
    nobody else; a connection that stops answering is replaced within about 4 s.
    Caveats: `on_closed` means that nats-py has given up for good, as it does when the server ends a connection with an
    error (credentials expired, say): the process must end. Credentials refused at a connect are tried again for ever.
    """

    def __init__(self, settings: BrokerSettings, *, on_closed: Callable[[], None]) -> None:
        self._settings = settings
        self._client = GuardedClient()
        self._on_closed = on_closed
        self._reconnect_hooks: list[Callable[[], None]] = []
        self._event_hooks: list[Callable[[str], None]] = []
        self._watchdog: asyncio.Task[None] | None = None
        self._answered_at = float("-inf")
        self._error_logged_at = float("-inf")
        self._closing = False

    @property
    def client(self) -> Client:
        return self._client

    @property
    def jetstream(self) -> JetStreamContext:
        return self._client.jetstream(timeout=_API_TIMEOUT_S)

    @property
    def max_payload_bytes(self) -> int:
        """The largest message that the connected server takes, headers included."""
        return int(self._client.max_payload)

    def on_reconnect(self, hook: Callable[[], None]) -> None:
        """Run `hook` after each reconnect; it must return at once."""
        self._reconnect_hooks.append(hook)

    def on_event(self, hook: Callable[[str], None]) -> None:
        """Tell `hook`, for counting: `disconnected`, `reconnected`, `stalled`, or the class name of an error."""
        self._event_hooks.append(hook)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect, waiting for the broker as long as it takes.

        Raises RefusedToStartError when the server is too old, or the credentials cannot be used here.
        """
        try:
            await surely_cancelled(self._client.connect(list(self._settings.nats_url), **self._options()))
        except ModuleNotFoundError as error:
            raise RefusedToStartError(
                f"NATS_CREDS_FILE needs the package {error.name}: install nats-py[nkeys]."
            ) from error
        try:
            require_version(self._client.connected_server_version, self._address())
        except RefusedToStartError:
            await self.close()
            raise
        self._tune_socket()
        self._answered_at = time.monotonic()
        self._watchdog = asyncio.create_task(self._watch(), name="broker watchdog")
        logger.info("connected to NATS", extra={"server": self._address()})

    async def close(self, within_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Send what is buffered, end the subscriptions, close; a broker that does not answer gets `within_s`."""
        self._closing = True
        if self._watchdog is not None:
            await ended(self._watchdog)  # its ping may swallow a cancellation
        if self._client.is_connected:
            try:
                async with asyncio.timeout(within_s):
                    await self._client.rtt()  # asked first: the drain of a frozen broker cannot be cut short
                    await self._client.drain()
            except (nats.errors.Error, TimeoutError) as error:
                logger.warning("NATS did not take all that was buffered", extra={"error": type(error).__name__})
                self._abort()
        if self._answered_at == float("-inf"):
            self._abort()  # never connected: nats-py has nothing to close but the socket of its last attempt
        elif not self._client.is_closed:
            with contextlib.suppress(OSError):  # the socket was aborted with data left: known, and told above
                await self._client.close()

    def round_trip_age_s(self) -> float:
        """Seconds since the broker last answered a ping: the only honest sign of life (`is_connected` can lie).

        May be called from any thread: readiness asks from the health server's.
        """
        return time.monotonic() - self._answered_at

    async def round_trip(self) -> bool:
        """Ping the broker. False, and the connection is replaced, when no answer comes in time."""
        reconnects = self._client.stats["reconnects"]
        try:
            # Not flush(): with a dead read loop it returns without having waited for an answer.
            await self._client.rtt(timeout=_ROUND_TRIP_TIMEOUT_S)
        except nats.errors.TimeoutError:
            if self._client.stats["reconnects"] != reconnects:
                return False  # it was the old connection that did not answer
            self._tell("stalled")
            await self._replace_connection()
            return False
        self._answered_at = time.monotonic()
        return True

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_ROUND_TRIP_INTERVAL_S)
            if self._client.is_connected:
                try:
                    await self.round_trip()
                except (nats.errors.Error, OSError) as error:
                    # The connection broke in mid ping; nats-py is replacing it already.
                    self._log_error(error)

    async def _replace_connection(self) -> None:
        await self._client.force_reconnect()
        self._abort()  # else the reconnect waits until all unsent data has left

    def _abort(self) -> None:
        writer = writer_of(self._client)
        if writer is not None:
            writer.transport.abort()

    def _tune_socket(self) -> None:
        connection = socket_info(self._client, "socket")
        # A private attribute of nats-py leads here (hence its pinned version): it must not vanish unseen.
        assert connection is not None, "nats-py hides its socket: shared/broker.py must learn its new place"
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)

    def _options(self) -> dict[str, Any]:
        return {
            "name": "isvc-sync",
            "max_reconnect_attempts": -1,
            # nats-py has no jitter: processes that lost the same broker come back out of step
            "reconnect_time_wait": _RECONNECT_WAIT_S * random.uniform(1, 2),  # noqa: S311 - no secret
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "ping_interval": _PING_INTERVAL_S,
            "max_outstanding_pings": 2,
            "pending_size": _PENDING_BYTES,
            "drain_timeout": _DRAIN_TIMEOUT_S,
            "error_cb": self._error_cb,
            "disconnected_cb": self._disconnected_cb,
            "reconnected_cb": self._reconnected_cb,
            "closed_cb": self._closed_cb,
            "user_credentials": self._settings.nats_creds_file,
            "tls": _tls_context(self._settings),
        }

    def _address(self) -> str:
        url = self._client.connected_url
        return f"{url.hostname}:{url.port}" if url is not None else "nowhere"

    def _tell(self, event: str) -> None:
        for hook in self._event_hooks:
            asyncio.get_running_loop().call_soon(hook, event)

    def _log_error(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._error_logged_at >= _ERROR_LOG_INTERVAL_S:
            self._error_logged_at = now
            logger.warning("trouble with NATS", extra={"error": f"{type(error).__name__}: {error}"})

    # nats-py's callbacks: coroutine functions by its contract, and an exception in one would kill its tasks. Hence
    # hooks are scheduled on the loop instead of being called.

    async def _error_cb(self, error: Exception) -> None:
        self._tell(type(error).__name__)
        self._log_error(error)

    async def _disconnected_cb(self) -> None:
        self._tell("disconnected")
        if not self._closing:
            logger.warning("NATS connection lost")

    async def _reconnected_cb(self) -> None:
        self._tune_socket()
        self._answered_at = time.monotonic()
        self._error_logged_at = float("-inf")
        self._tell("reconnected")
        logger.info("reconnected to NATS", extra={"server": self._address()})
        for hook in self._reconnect_hooks:
            asyncio.get_running_loop().call_soon(hook)

    async def _closed_cb(self) -> None:
        if not self._closing:
            logger.error("NATS connection closed for good", extra={"error": str(self._client.last_error)})
            asyncio.get_running_loop().call_soon(self._on_closed)


def require_version(version: ServerVersion, address: str) -> None:
    """Raise RefusedToStartError when a server of `version` cannot do what we need."""
    if (version.major, version.minor) < MINIMUM_SERVER_VERSION:
        wanted = ".".join(map(str, MINIMUM_SERVER_VERSION))
        raise RefusedToStartError(
            f"The NATS server at {address} is version {version.major}.{version.minor}.{version.patch}, and isvc-sync "
            f"needs {wanted} or later (reset of consumers): upgrade it, or point NATS_URL to a newer one."
        )


def _tls_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    if settings.nats_ca_file is None and not any(url.startswith("tls://") for url in settings.nats_url):
        return None
    try:
        return ssl.create_default_context(cafile=settings.nats_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise RefusedToStartError(
            f"NATS_CA_FILE {settings.nats_ca_file} holds no CA certificates in PEM that can be read: {error}."
        ) from error
