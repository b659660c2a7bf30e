"""What there is to do with the shards that are ours: their pull loops feed the worker while a term lasts.

Between `shards.py`, which says when a term begins and ends, and the parts that do the work.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, Protocol

from msgspec import Struct

from consumer.delivery.work import Message
from consumer.ownership.fence import Fence, Held, Term
from shared.errors import RefusedToStartError, TransientError
from shared.events import cluster_id_of

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.25


class Feed(Protocol):
    """The pull loop of a shard; `inbox.PullLoop` says what each does."""

    def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def flush(self) -> None: ...


class Workers(Protocol):
    """The worker, as far as whole shards go."""

    def drop(self, shard: int) -> int:
        """Forget what waits, unanswered; return how many messages."""

    async def finish(self, shard: int, deadline_s: float) -> None:
        """Wait for what is at hand, and cancel it at the deadline."""


class Border(Struct, frozen=True):
    """Whose events are taken in. `require_ours` is asked when one of another cluster comes.

    It returns where the stream is ours, and raises RefusedToStartError where it is the other's.
    """

    cluster_id: str
    require_ours: Callable[[], Awaitable[None]]

    def is_foreign(self, message: Message) -> bool:
        return cluster_id_of(message.headers) not in {None, self.cluster_id}


class Intake:
    """The duty (`shards.Duty`) of a consumer. `feeds[n]` is that of shard n, and must hand its messages to `take`.

    `prepare`: learns, at the beginning of a term, what another owner may have done; raises TransientError. `drain_s`:
    how long what is at hand may take when a shard is given away.

    An event of another cluster is handed on, to be buried, only where the stream is ours. Where it is theirs, the
    process ends, and leaves the message for its rightful owner.
    """

    def __init__(
        self, fence: Fence, workers: Workers, prepare: Callable[[], Awaitable[None]], border: Border, drain_s: float
    ) -> None:
        self._fence = fence
        self._workers = workers
        self._prepare = prepare
        self._border = border
        self._require_ours = Once(self._ask)
        self._drain_s = drain_s
        self._feeds: Sequence[Feed] = ()
        self._open: dict[int, Term] = {}
        self._locks = [asyncio.Lock() for _ in range(fence.shards)]  # starts and stops of a feed, one after the other
        self._steps: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._failed = asyncio.Event()

    async def run(self) -> None:
        """Wait for a fault, and raise it: a shard that is ours and not read would look well, and starve."""
        await self._failed.wait()
        assert self._fault is not None, "that is what failed"
        raise self._fault

    def fail(self, fault: BaseException) -> None:
        """Let the process end with this: whoever takes the shard over reads it."""
        self._fault = self._fault or fault
        self._failed.set()

    def connect(self, feeds: Sequence[Feed]) -> None:
        assert len(feeds) == self._fence.shards, "one feed for each shard"
        self._feeds = feeds

    def take(self, shard: int, message: Message, hand_on: Callable[[Held], None]) -> None:
        """Hand a message on if it has come in the present term; else it is for the next owner, or comes again."""
        term = self._open.get(shard)
        if term is None or term.closing or self._fence.term(shard) is not term:
            return
        held = Held(message, term, self._fence)
        if self._border.is_foreign(message):
            self._step(self._examine(term, held, hand_on))
        else:
            hand_on(held)

    def begin(self, term: Term) -> None:
        self._step(self._begin(term))

    async def end(self, term: Term) -> None:
        shard = term.shard
        self._workers.drop(shard)
        async with self._locks[shard]:
            await self._feeds[shard].stop()
            await self._workers.finish(shard, self._drain_s)
            await self._feeds[shard].flush()

    def lost(self, term: Term) -> None:
        self._workers.drop(term.shard)
        self._step(self._stop(term.shard))

    async def close(self) -> None:
        """Wait until every feed has started or stopped."""
        while self._steps:
            await asyncio.wait(self._steps)

    async def _examine(self, term: Term, held: Held, hand_on: Callable[[Held], None]) -> None:
        """Hand on an event of another cluster when the stream is ours."""
        while self._fence.holds(term) and not term.closing:
            try:
                await self._require_ours()
            except TransientError as error:
                logger.warning("whose the stream is cannot be asked yet", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)
                continue
            if self._fault is None and self._fence.holds(term) and not term.closing:
                hand_on(held)
            return

    async def _ask(self) -> None:
        """Ask whose the stream is: where it is another cluster's, the process ends."""
        try:
            await self._border.require_ours()
        except RefusedToStartError as refusal:
            self.fail(refusal)

    async def _begin(self, term: Term) -> None:
        async with self._locks[term.shard]:
            await self._prepared(term)
            if self._fence.holds(term) and not term.closing:
                self._open[term.shard] = term
                self._feeds[term.shard].start()

    async def _prepared(self, term: Term) -> None:
        while self._fence.holds(term):
            try:
                await self._prepare()
            except TransientError as error:
                logger.warning("a shard cannot be begun yet", extra={"shard": term.shard, "reason": str(error)})
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _stop(self, shard: int) -> None:
        async with self._locks[shard]:
            await self._feeds[shard].stop()

    def _step(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._steps.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._steps.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.fail(fault)


class Once:
    """Does something for all who ask for it at the same time, once."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._lock = asyncio.Lock()
        self._began_at = float("-inf")

    async def __call__(self) -> None:
        asked_at = asyncio.get_running_loop().time()
        async with self._lock:
            if self._began_at < asked_at:
                began_at = asyncio.get_running_loop().time()
                await self._work()
                self._began_at = began_at
