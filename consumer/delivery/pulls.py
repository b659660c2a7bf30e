"""Pull requests on one inbox: how many messages to ask for, and what the server's answers mean.

The part of the pull loop that lives from one reset of the consumer to the next; `inbox.py` supervises it.

Protocol: ADR-13 (pull requests and status codes) and ADR-15 (subjects) of the NATS architecture decisions.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import msgspec
import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from consumer.delivery.message import ACK_PREFIX

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

logger = logging.getLogger(__name__)

_NANOSECONDS: Final = 1_000_000_000


class PullSettings(Struct, frozen=True):
    """How to pull. The defaults are measured: larger batches gain little and only hold more in flight.

    `expires_s` must be well below the fence of a shard: a pull leaves only if it ends before that, so that the pulls of
    a paused owner are dead before its successor resets the consumer.
    """

    batch: int = 256
    expires_s: float = 1.0
    heartbeat_s: float = 0.4

    @property
    def longest_silence_s(self) -> float:
        """Two heartbeats and some grace: whoever is silent for longer has forgotten our pull."""
        return 2 * self.heartbeat_s + 0.2

    @property
    def tick_s(self) -> float:
        return self.heartbeat_s / 4


class Source(Struct, frozen=True):
    """What to pull from: `subject` takes the pull requests. `left_s`: for how many seconds it will be ours.

    No pull leaves that could outlast that. A process that was paused wakes up with a pull that was due long ago: it
    would take what its successor's reset brings again, and the successor would meet newer messages first.
    """

    subject: str
    settings: PullSettings
    left_s: Callable[[], float]

    @property
    def permitted(self) -> bool:
        """Whether a pull may leave now."""
        return self.left_s() >= self.settings.expires_s


class InboxStats(Struct):
    """Counters, for metrics; any number of pull loops may share one instance.

    `redelivered` counts messages that came before, to this loop or to anybody since the last reset. `refused_pulls`
    are answers 409, 423 and 503. `failed_resets` counts attempts that the broker did not answer or refused.
    """

    delivered: int = 0
    redelivered: int = 0
    heartbeats_missed: int = 0
    refused_pulls: int = 0
    resets: int = 0
    failed_resets: int = 0
    consumers_recreated: int = 0
    callback_errors: int = 0


class Answer(Enum):
    """What a control message means for the pull that it answers."""

    ALIVE = auto()
    ENDED = auto()
    REFUSED = auto()


def read_status(code: str) -> Answer:
    """Decide by the code alone: the description differs between servers, and nats-py garbles it.

    100 is the idle heartbeat, 404 and 408 end a pull that found nothing or expired. 409 (no leader, consumer deleted),
    423 (pinned to others) and 503 (nobody listens) refuse it. A code that is not known ends the pull.
    """
    if code == "100":
        return Answer.ALIVE
    return Answer.REFUSED if code in {"409", "423", "503"} else Answer.ENDED


class Credit:
    """How many messages we have asked for and neither received nor been refused.

    Never below zero: after `forget`, messages and answers of older pulls may still arrive. For the same reason up to
    twice `batch` may be on the way for a moment; the consumer's `max_ack_pending` bounds what is held in all.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.outstanding = 0

    @property
    def due(self) -> bool:
        """Whether the next pull should leave: half of what was asked for has come."""
        return self.outstanding <= self._batch // 2

    def take(self) -> int:
        """Return how many messages to ask for now, possibly 0, and count them as asked for."""
        missing = self._batch - self.outstanding
        self.outstanding = self._batch
        return missing

    def give_back(self, count: int) -> None:
        self.outstanding = max(0, self.outstanding - count)

    def forget(self) -> None:
        self.outstanding = 0


class Session:
    """One inbox and its pulls, from one reset of the consumer to the next.

    `refused` is set when a pull was refused: no further one leaves until `pull_anew`.
    """

    def __init__(self, client: Client, source: Source, take: Callable[[Msg], None], stats: InboxStats) -> None:
        self._client = client
        self._source = source
        self._inbox = client.new_inbox()
        self._take = take
        self._stats = stats
        self._credit = Credit(source.settings.batch)
        self._subscription: Subscription | None = None
        self._closed = False
        self.arrived_at = 0.0
        self.refused = False

    async def open(self) -> None:
        self._touch()
        # Without limits, else nats-py drops messages unseen: what may arrive is bounded by batch x message size.
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        await self._pull()

    async def close(self) -> None:
        """End the subscription. No message is handed over after this, not even one that waits in nats-py."""
        self._closed = True
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError):
                await self._subscription.unsubscribe()

    def silent_s(self) -> float:
        return asyncio.get_running_loop().time() - self.arrived_at

    async def pull_anew(self) -> None:
        """Believe that all earlier pulls are lost, and ask for a full batch."""
        self.refused = False
        self._credit.forget()
        self._touch()
        await self._pull()

    async def _receive(self, message: Msg) -> None:
        """Take whatever comes. No exception may leave: nats-py would end the subscription's task."""
        if self._closed:
            return
        self._touch()
        try:
            if message.reply.startswith(ACK_PREFIX):
                self._credit.give_back(1)
                self._take(message)
            else:
                self._control(message.headers or {})
        except Exception:
            # The message stays un-acked and comes again after ack_wait; the others go on.
            self._stats.callback_errors += 1
            logger.exception("a message was not taken", extra={"subject": message.subject})
        if self._credit.due and not self.refused:
            await self._pull()

    def _control(self, headers: dict[str, str]) -> None:
        answer = read_status(headers.get("Status", ""))
        if answer is Answer.ENDED:
            pending = headers.get("Nats-Pending-Messages", "0")
            self._credit.give_back(int(pending) if pending.isdigit() else 0)
        elif answer is Answer.REFUSED:
            self._stats.refused_pulls += 1
            self._credit.forget()
            self.refused = True  # the watchdog pulls again, after a pause

    async def _pull(self) -> None:
        if not self._source.permitted:
            self._credit.forget()
            return
        count = self._credit.take()
        if count <= 0:
            return
        settings = self._source.settings
        body = {
            "batch": count,
            "expires": int(settings.expires_s * _NANOSECONDS),
            "idle_heartbeat": int(settings.heartbeat_s * _NANOSECONDS),
        }
        try:
            await self._client.publish(self._source.subject, msgspec.json.encode(body), reply=self._inbox)
        except nats.errors.Error as error:
            # Buffer full while reconnecting, or closing. Silence follows, and the watchdog asks again.
            self._credit.forget()
            logger.debug("a pull was not sent", extra={"error": str(error)})

    def _touch(self) -> None:
        self.arrived_at = asyncio.get_running_loop().time()
