"""The pull loop: takes the messages of one shard's durable consumer and hands them to the keyed worker, in order.

It stands between the broker and the worker, one instance per shard. It is our own because nats-py's `fetch` hangs for
its whole timeout when the broker dies under it, and costs three times as much per message. What it adds:

- Overlapping pulls: the next one leaves while half of the previous one is still being delivered.
- A watchdog: heartbeats that stay away mean that the server has forgotten the pull. It is sent again within a second.
- Stop and reset, at the start and after every reconnect: the old inbox is closed, the consumer is set back to its ack
  floor, a new inbox pulls. So whatever was lost on the wire, or is held by a dead owner, comes again at once and in
  stream order, instead of out of order after `ack_wait`.
- A durable that somebody deleted is created anew.

Protocol of the reset: ADR-60 of the NATS architecture decisions; pulls are in `delivery/pulls.py`.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.msg import Msg

from consumer.delivery.message import Delivery, parse_reply
from consumer.delivery.pulls import InboxStats, PullSettings, Session, Source
from shared.broker import Broker
from shared.broker_errors import translated
from shared.errors import IsvcSyncError

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S: Final = 2.0  # of a reset: it takes 1 to 2 ms, and the next attempt is the better bet
_CHECK_TIMEOUT_S: Final = 1.0
_REFUSED_PAUSE_S: Final = 0.1  # before the next pull after 409, 423, 503: a new leader is found within about a second
_LONGEST_REFUSED_PAUSE_S: Final = 1.0
_RETRY_S: Final = 0.25  # after a failed reset, doubled up to the next
_LONGEST_RETRY_S: Final = 5.0


def _for_good() -> float:
    return math.inf


class Durable(Struct, frozen=True):
    """The consumer to pull from, and how; `ensure` creates it when it is absent.

    `left_s`: for how many seconds it will be ours, asked right before each pull and each reset.
    """

    stream: str
    name: str
    ensure: Callable[[], Awaitable[object]]
    pull: PullSettings = PullSettings()
    left_s: Callable[[], float] = _for_good

    @property
    def source(self) -> Source:
        return Source(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.name}", self.pull, self.left_s)


class PullLoop:
    """Delivers the messages of one durable consumer to `on_message`, from its ack floor on, in stream order.

    `on_message` runs in the connection's read path: it must return at once, and only enqueue. `on_death` is told of a
    fault that has ended the loop: nobody reads the shard then.

    Guarantees: between two resets each message is handed over in stream order, and again only when `ack_wait` passes
    without an answer; an exception in `on_message` is logged, counted, and costs only its own message.
    Assumptions: nobody else pulls from the durable (one owner per shard).
    Caveat: a reset also brings again what was acked above the ack floor; freshness drops it.

    A loop may be stopped and started again any number of times.
    """

    def __init__(
        self,
        broker: Broker,
        durable: Durable,
        on_message: Callable[[Delivery], None],
        *,
        on_death: Callable[[BaseException], None] = lambda _: None,
        stats: InboxStats | None = None,
    ) -> None:
        self._broker = broker
        self._durable = durable
        self._on_message = on_message
        self._on_death = on_death
        self._stats = stats or InboxStats()
        self._session: Session | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._seen_reconnects = -1
        self._highest = 0
        broker.on_reconnect(self._wake.set)

    def start(self) -> None:
        """Begin, with a reset, and return at once. A broker that is away is waited for."""
        assert self._supervisor is None, "the pull loop runs already"
        self._supervisor = asyncio.create_task(self._supervise(), name=f"pull loop {self._durable.name}")
        self._supervisor.add_done_callback(self._report_death)

    async def stop(self) -> None:
        """Stop. Afterwards nothing is handed over, and the server has read our farewell and every ack before it.

        Without a connection there is nobody to tell: the server's side of the pulls ends with the connection.
        """
        if self._supervisor is None:
            return
        supervisor, self._supervisor = self._supervisor, None
        while not supervisor.done():
            supervisor.cancel()
            # Again until it is done: wait_for of Python 3.11, inside nats-py, swallows a cancellation that comes in the
            # same moment as the answer.
            await asyncio.wait([supervisor], timeout=self._durable.pull.tick_s)
        await self._close_session()
        await self.flush()

    async def _supervise(self) -> None:
        while True:
            await self._watch(await self._reset_until_done())

    async def _reset_until_done(self) -> Session:
        pause_s = _RETRY_S
        while True:
            try:
                return await self._reset()
            except IsvcSyncError as error:
                self._stats.failed_resets += 1
                logger.warning(
                    "a consumer could not be reset, trying again",
                    extra={"consumer": self._durable.name, "error": str(error), "pause_s": pause_s},
                )
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    async def _reset(self) -> Session:
        """Close the inbox, set the consumer back to its ack floor, pull into a new inbox. Raises IsvcSyncError.

        The order matters: messages that the server sends into the old inbox after the reset would be lost until
        ack_wait. It reads our unsubscription before the reset, as both travel on one connection.
        """
        await self._close_session()
        source = self._durable.source
        while not (self._broker.client.is_connected and source.permitted):
            await self._tick()
        self._seen_reconnects = self._reconnects()
        await self._recreate_if_gone()  # first: the server leaves the reset of a consumer that is gone unanswered
        durable = self._durable
        with translated(f"resetting the consumer {durable.name} of {durable.stream}"):
            await self._broker.jetstream.reset_consumer(durable.stream, durable.name, timeout=_REQUEST_TIMEOUT_S)
        self._stats.resets += 1
        session = Session(self._broker.client, source, self._deliver, self._stats)
        self._session = session
        with translated(f"pulling from {self._durable.name}"):
            await session.open()
        return session

    async def _recreate_if_gone(self) -> None:
        if not await self._consumer_exists():
            self._stats.consumers_recreated += 1
            logger.warning("a consumer is gone and is created anew", extra={"consumer": self._durable.name})
            await self._durable.ensure()

    async def _watch(self, session: Session) -> None:
        """Keep the pulls going; return when only a reset helps."""
        pause_s = _REFUSED_PAUSE_S
        while True:
            await self._tick()
            if self._reconnects() != self._seen_reconnects:
                return
            if not self._broker.client.is_connected:
                continue
            if session.refused:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_REFUSED_PAUSE_S)
            elif session.silent_s() > self._durable.pull.longest_silence_s:
                self._stats.heartbeats_missed += 1
            else:
                pause_s = _REFUSED_PAUSE_S
                continue
            await session.pull_anew()  # first, so that the check costs no time
            if not await self._consumer_exists():
                return

    async def _consumer_exists(self) -> bool:
        """Say no only when the server does: while it does not answer, nothing is known."""
        try:
            await self._broker.jetstream.consumer_info(
                self._durable.stream, self._durable.name, timeout=_CHECK_TIMEOUT_S
            )
        except nats.js.errors.NotFoundError:
            return False
        except nats.errors.Error as error:
            logger.debug("a consumer could not be checked", extra={"error": str(error)})
        return True

    async def _tick(self) -> None:
        """Sleep for a tick, or until the connection is back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._durable.pull.tick_s):
                await self._wake.wait()
        self._wake.clear()

    def _deliver(self, message: Msg) -> None:
        delivery = Delivery.of(message, parse_reply(message.reply), self._broker.client)
        self._stats.delivered += 1
        # A reset begins the server's count of deliveries anew, hence our own memory.
        if delivery.num_delivered > 1 or delivery.sequence <= self._highest:
            self._stats.redelivered += 1
        self._highest = max(self._highest, delivery.sequence)
        self._on_message(delivery)

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def flush(self) -> None:
        """Wait until the server has read all that we sent, acknowledgements included."""
        if self._broker.client.is_connected:
            # Shielded, since the late answer to a cancelled ping would end nats-py's read loop.
            await asyncio.shield(_both_ways(self._broker))

    def _reconnects(self) -> int:
        return int(self._broker.client.stats["reconnects"])

    def _report_death(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.error("the pull loop died", extra={"consumer": self._durable.name}, exc_info=fault)
            self._on_death(fault)


async def _both_ways(broker: Broker) -> None:
    try:
        await broker.round_trip()
    except nats.errors.Error as error:
        logger.debug("the connection ended while it was flushed", extra={"error": str(error)})
