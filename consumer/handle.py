"""Handle one message: find out what it shows, reconcile that, and settle the message with the broker.

The middle of the consumer. The work queue gives it one message of an object at a time; `reconcile` reads, lets `plan`
decide and `act` perform; `verdict` says what a failure means; the one `match` below carries that out.

Guarantees: a message is acknowledged after its effects, buried only for what can never succeed, and else comes again.
Assumptions: nobody else handles the same object at the same time (one owner for each shard).
Caveats: the registry has no conditional write. A request that was on the wire when this process was frozen may land
late; the next owner's redelivery, or the sweep, writes over it.
"""

import logging
from collections.abc import Callable
from typing import assert_never

import msgspec
from msgspec.structs import replace

from consumer.observation import Observation
from consumer.ports import DeadLetters, LastEvents, Live
from consumer.reconcile import How, Reconciler
from consumer.verdict import Ack, Bury, Retry, Verdict, verdict
from consumer.work import Work
from shared.errors import IsvcSyncError, PermanentError, TransientError

logger = logging.getLogger(__name__)


class Sources(msgspec.Struct, frozen=True):
    """Where a look finds what a message does not say: the object's last event, and the object itself."""

    events: LastEvents
    live: Live


class Hooks(msgspec.Struct, frozen=True):
    """What the shell lends: chance in [0, 1) for the spread of retries, the time (RFC 3339), and an ear for results."""

    chance: Callable[[], float]
    now: Callable[[], str]
    on_result: Callable[[Work, str], None]


class Handler:
    """Settles messages, one call each."""

    def __init__(self, reconciler: Reconciler, sources: Sources, dead_letters: DeadLetters, hooks: Hooks) -> None:
        self._reconciler = reconciler
        self._sources = sources
        self._dead_letters = dead_letters
        self._hooks = hooks

    async def handle(self, work: Work) -> Verdict:
        """Do what the message asks for and settle it. A Retry is left for the caller to schedule."""
        decision = Bury(work.burial) if work.burial else await self._decide(work)
        if isinstance(decision, Bury):
            decision = await self._bury(work, decision)
        match decision:
            case Ack():
                await work.message.ack()
            case Bury(reason):
                await work.message.terminate(reason)
                logger.error("dead letter", extra={"object": str(work.key), "reason": reason})
                self._hooks.on_result(work, "dead")
            case Retry(delay_s, reason):
                fields = {"object": str(work.key), "attempt": work.attempt, "delay_s": round(delay_s, 2)}
                logger.warning("will try again", extra=fields | {"reason": reason})
                self._hooks.on_result(work, "retry")
            case _:
                assert_never(decision)
        return decision

    async def _decide(self, work: Work) -> Verdict:
        failure: Exception | None = None
        try:
            await self._process(work)
        except IsvcSyncError as error:
            failure = error
        except Exception as error:  # the one of this process: a fault with one object must not stop the others
            logger.exception("fault in this program", extra={"object": str(work.key)})
            failure = error
        return verdict(failure, work.attempt, self._hooks.chance())

    async def _process(self, work: Work) -> None:
        if work.failure is not None:
            raise work.failure
        seen = work.seen or await self._look(work)
        if seen is None:
            self._hooks.on_result(work, "noop")
            return
        how = How(work.creates_first, work.forced, is_look=work.seen is None)
        result = await self._reconciler.reconcile(seen, how)
        if result.rejections:
            raise PermanentError("; ".join(result.rejections))
        work.settled = work.settled or result.settles  # the next try would find nothing to do, and not say it again
        if work.settled:
            await self._dead_letters.clear(work.key)
        self._hooks.on_result(work, result.word)

    async def _look(self, work: Work) -> Observation | None:
        """Return the live object; the last known state with its end when it is gone; None when nothing is known."""
        last = await self._sources.events.last(work.key)
        if last is None:
            return None
        live = await self._sources.live(last)
        if live is not None:
            return replace(live, time=self._hooks.now())
        if not work.forced:
            return None  # an id that is due on an object that is gone: its own event ends it
        return replace(last, freshness=replace(last.freshness, deleted=True), time=self._hooks.now())

    async def _bury(self, work: Work, decision: Bury) -> Bury | Retry:
        """Store the message among the dead letters before it is terminated: it must never be in neither place."""
        headers = work.message.headers | work.message.provenance
        try:
            await self._dead_letters.bury(work.key, headers, work.message.body, decision.reason)
        except TransientError as error:
            work.burial = decision.reason
            again = verdict(error, work.attempt, self._hooks.chance())
            assert isinstance(again, Retry), "a transient failure is tried again"
            return again
        return decision
