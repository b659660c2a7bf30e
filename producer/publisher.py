"""The keyed publisher: pipelined over objects, in order within each, and stubborn.

Not nats-py's `publish_async`: there, an error reply is raised in the wrong place and the future never resolves, and a
broker that dies with a full window takes the free places with it. Here nothing is tied to one attempt.

Guarantees: a message of a key is sent only after the one before it was acknowledged; a message is sent again, with the
same id, until it is acknowledged, so the broker stores it once (inside its dedupe window); nothing is dropped.
Back-pressure: `put` waits while the window or the queues are full, as they are while the broker is away or refuses.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.decoding import UNDECODABLE

logger = logging.getLogger(__name__)

WINDOW: Final = 512  # attempts in flight; more brings no throughput
QUEUE_FACTOR: Final = 4  # messages waiting, as a multiple of the window
ACK_TIMEOUT_S: Final = 2.0
SWEEP_INTERVAL_S: Final = 0.1
RETRY_MIN_S: Final = 0.25
RETRY_MAX_S: Final = 5.0
ALARM_AFTER: Final = 4  # refusals of one message in a row; a leader election costs one to three
ALARM_INTERVAL_S: Final = 30.0


class Message(msgspec.Struct, frozen=True):
    """One message. `acknowledged` is called once, with its sequence in the stream; it must not raise."""

    key: str
    subject: str
    body: bytes
    headers: dict[str, str]
    acknowledged: Callable[[int], None] = lambda _: None


class Observer(Protocol):
    """Counts what the publisher meets."""

    def sent(self, duration_s: float) -> None:
        """Note that a message was acknowledged, so long after its first attempt."""

    def refused(self, code: str) -> None:
        """Note that the broker answered an attempt with an error."""


class _Waiting(msgspec.Struct):
    """A message in its key's queue."""

    message: Message
    ticket: int
    refusals: int = 0
    first_sent_at: float = 0.0


class _Attempt(msgspec.Struct):
    """The head of a key's queue, on its way (`due_at` is when it is given up) or waiting to be sent again."""

    key: str
    due_at: float


class _PubAck(msgspec.Struct):
    """JetStream's answer to a publish."""

    seq: int = 0
    error: dict[str, Any] | None = None


class Publisher:
    """Publishes to JetStream over one connection.

    `permitted` is asked before each attempt: while it says no, nothing is sent and everything is kept.

    Caveat: `close` gives up what is not acknowledged; wait with `barrier` before, if it matters.
    """

    def __init__(
        self,
        client: Client,
        observer: Observer,
        *,
        window: int = WINDOW,
        permitted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._observer = observer
        self._window = window
        self._permitted = permitted
        self._queues: dict[str, deque[_Waiting]] = {}
        self._attempts: dict[str, _Attempt] = {}  # by token; at most one per key
        self._tickets: dict[int, None] = {}  # of messages not acknowledged, oldest first
        self._barriers: list[tuple[int, asyncio.Future[None]]] = []
        self._last_ticket = 0
        self._last_token = 0
        self._room = asyncio.Event()
        self._inbox = ""
        self._subscription: Any = None
        self._sweeper: asyncio.Task[None] | None = None
        self._alarmed_at = float("-inf")
        self._refusing: dict[str, str] = {}  # keys whose head is refused again and again -> what the broker says

    async def start(self) -> None:
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._on_reply)
        self._sweeper = asyncio.create_task(self._sweep(), name="publisher")

    async def close(self) -> None:
        """End at once, whatever is unacknowledged."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        if self._subscription is not None and not self._client.is_closed:
            await self._subscription.unsubscribe()

    @property
    def task(self) -> asyncio.Task[None]:
        """The task without which nothing is sent again: for liveness."""
        assert self._sweeper is not None, "the publisher was not started"
        return self._sweeper

    @property
    def unacknowledged(self) -> int:
        return len(self._tickets)

    @property
    def refusal(self) -> str:
        """What the broker says to a message that it keeps refusing; empty when all is well."""
        return next(iter(self._refusing.values()), "")

    async def put(self, message: Message) -> None:
        """Queue a message; waits while there is no room."""
        while len(self._attempts) >= self._window or len(self._tickets) > QUEUE_FACTOR * self._window:
            self._room.clear()
            await self._room.wait()
        self._last_ticket += 1
        self._tickets[self._last_ticket] = None
        queue = self._queues.setdefault(message.key, deque())
        queue.append(_Waiting(message, self._last_ticket))
        if len(queue) == 1:
            await self._send(message.key)

    async def barrier(self) -> None:
        """Wait until everything that was put before is acknowledged."""
        if self._tickets:
            future = asyncio.get_running_loop().create_future()
            self._barriers.append((self._last_ticket, future))
            await future

    def kick(self) -> None:
        """Send everything unacknowledged again soon: the connection is new."""
        for attempt in self._attempts.values():
            attempt.due_at = 0.0

    async def _send(self, key: str) -> None:
        head = self._queues[key][0]
        now = asyncio.get_running_loop().time()
        token = self._next_token()
        self._attempts[token] = _Attempt(key, now + ACK_TIMEOUT_S)
        if not self._permitted():
            return  # the sweep asks again
        head.first_sent_at = head.first_sent_at or now
        message = head.message
        try:
            await self._client.publish(
                message.subject, message.body, reply=f"{self._inbox}.{token}", headers=message.headers
            )
        except nats.errors.Error as error:
            # Recorded above: the sweep sends it again, with the patience that a refusal gets.
            self._refused(token, head, type(error).__name__, str(error))

    def _next_token(self) -> str:
        self._last_token += 1
        return str(self._last_token)

    async def _on_reply(self, reply: Msg) -> None:
        token = reply.subject.rpartition(".")[2]
        attempt = self._attempts.get(token)
        if attempt is None:
            return  # the late reply to an attempt that was repeated: the newer one gets its own
        head = self._queues[attempt.key][0]
        match _decoded(reply.data):
            case int(sequence):
                del self._attempts[token]
                await self._acknowledge(attempt.key, head, sequence)
            case (code, description):
                self._refused(token, head, code, description)

    async def _acknowledge(self, key: str, head: _Waiting, sequence: int) -> None:
        queue = self._queues[key]
        queue.popleft()
        del self._tickets[head.ticket]
        self._refusing.pop(key, None)
        self._observer.sent(asyncio.get_running_loop().time() - head.first_sent_at)
        head.message.acknowledged(sequence)
        self._open_barriers()
        if queue:
            await self._send(key)
        else:
            del self._queues[key]
        self._room.set()

    def _open_barriers(self) -> None:
        oldest = next(iter(self._tickets), self._last_ticket + 1)
        while self._barriers and self._barriers[0][0] < oldest:
            _, future = self._barriers.pop(0)
            if not future.done():
                future.set_result(None)

    def _refused(self, token: str, head: _Waiting, code: str, description: str) -> None:
        """Keep the head and send it again after a pause; alarm when that does not help."""
        head.refusals += 1
        pause_s = min(RETRY_MAX_S, RETRY_MIN_S * 2.0 ** min(head.refusals - 1, 16))
        now = asyncio.get_running_loop().time()
        attempt = self._attempts.pop(token)
        attempt.due_at = now + pause_s
        self._attempts[self._next_token()] = attempt  # under a token that no reply can name
        self._observer.refused(code)
        if head.refusals >= ALARM_AFTER:
            self._refusing[attempt.key] = error = f"{code} {description}".strip()
            if now - self._alarmed_at >= ALARM_INTERVAL_S:
                self._alarmed_at = now
                fields = {"subject": head.message.subject, "error": error, "waiting": len(self._tickets)}
                logger.error("the broker keeps refusing a message; it is sent again until it is taken", extra=fields)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            if not self._client.is_connected:
                continue
            for token, attempt in list(self._attempts.items()):
                # An acknowledgement may arrive while another one is being sent.
                if attempt.due_at <= loop.time() and self._attempts.pop(token, None) is not None:
                    await self._send(attempt.key)


def _decoded(data: bytes) -> int | tuple[str, str]:
    """Return the sequence of a PubAck (of a duplicate: that of the original), or code and text of a refusal."""
    if not data:
        return "503", "no stream takes this subject, or it has no leader"
    try:
        answer = msgspec.json.decode(data, type=_PubAck)
    except UNDECODABLE:
        return "malformed", "the answer is no PubAck"
    if answer.error is None and answer.seq > 0:
        return answer.seq
    error = answer.error or {}
    return str(error.get("err_code") or error.get("code") or "unknown"), str(error.get("description", ""))
