"""Handle one message: find out what it shows, reconcile that, and settle the message with the broker.

The middle of the consumer. The work queue gives it one message of an object at a time; `reconcile` reads, lets `plan`
decide and `act` perform; `verdict` says what a failure means; the one `match` below carries that out.

Guarantees: a message is acknowledged after its effects, buried only for what can never succeed, and else comes again.
Assumptions: nobody else handles the same object at the same time (one owner for each shard).
Caveats: the registry has no conditional write. A request that was on the wire when its sender lost the shard may land
late; the next owner's redelivery, or the sweep, writes over it.
"""

import logging
from collections.abc import Callable
from typing import assert_never

import msgspec
from msgspec.structs import replace

from consumer.act import Tell, tell_nobody
from consumer.delivery.work import Work
from consumer.notices import About, registry_not_found, sync_failed
from consumer.observation import LastEvent, Observation
from consumer.ports import DeadLetters, LastEvents, Live
from consumer.reconcile import How, Reconciler, Result
from consumer.retelling import retold
from consumer.verdict import Ack, Bury, Retry, Verdict, verdict
from shared.errors import ConflictError, IsvcSyncError, NotFoundError, PermanentError, TransientError

logger = logging.getLogger(__name__)


class Sources(msgspec.Struct, frozen=True):
    """Where a look finds what a message does not say: the object's last event, and the object itself."""

    events: LastEvents
    live: Live


class Hooks(msgspec.Struct, frozen=True):
    """What the shell lends: chance in [0, 1) for the spread of retries, and the time (RFC 3339).

    And ears: `on_result` for what came of each work, `tell` for what an object's owner should know.
    """

    chance: Callable[[], float]
    now: Callable[[], str]
    on_result: Callable[[Work, str], None]
    tell: Tell = tell_nobody


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
                logger.debug("acknowledged", extra={"object": str(work.key), "sequence": work.message.sequence})
            case Bury(reason):
                await work.message.terminate(reason)
                self._reconciler.memory.bury(work.about.uid if work.about else "")
                about = {"object": str(work.key), "sequence": work.message.sequence}
                logger.error("dead letter", extra=about | {"reason": reason})
                self._hooks.tell(work.about or About(work.key), sync_failed(reason))
                self._hooks.on_result(work, "dead")
            case Retry(delay_s, reason, held, yields):
                work.yields = yields
                fields = {"object": str(work.key), "attempt": work.attempt, "delay_s": round(delay_s, 2)}
                # That a registry is away is said once, not for each object that waits for it.
                logger.log(
                    logging.DEBUG if held else logging.WARNING, "will try again", extra=fields | {"reason": reason}
                )
                if yields and (work.seen is None or work.seen.lives):
                    self._hooks.tell(work.about or About(work.key), registry_not_found(reason))
                if held:  # nothing was tried: however long a registry is away, what follows begins with a short delay
                    work.attempt = max(1, work.attempt - 1)
                self._hooks.on_result(work, "held" if held else "retry")
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
        if work.seen is not None:
            result = await self._see(work, work.seen, How(work.creates_first))
        else:
            result = await self._look(work)
        if result.failure is not None:
            work.recorded = True
            raise result.failure
        if result.told and result.rejections and self._dead_letters.holds(work.key):
            self._hooks.on_result(work, result.word)  # the echo of our own write, say: still to be seen by a person
            return
        if result.rejections:
            if not await self._is_succeeded(work):
                raise PermanentError("; ".join(result.rejections))
        elif work.settled or result.settles:
            work.settled = True  # the next try would find nothing to do, and not say it again
            if self._dead_letters.holds(work.key) and not await self._is_succeeded(work):
                await self._dead_letters.clear(work.key)
        self._hooks.on_result(work, result.word)

    async def _is_succeeded(self, work: Work) -> bool:
        """Whether the name belongs to another uid by now, for whose events it is to bury or to clear.

        The owners of a name share a dead letter, and an earlier one's event may come again after the present one's.
        """
        last = await self._sources.events.last(work.key) if work.seen is not None else None
        if last is None or work.seen is None:
            return False
        return last.seen.uid != work.seen.uid and last.sequence > work.message.sequence

    async def _see(self, work: Work, seen: Observation, how: How) -> Result:
        work.about = seen.about
        return await self._reconciler.reconcile(seen, how)

    async def _look(self, work: Work) -> Result:
        """Close the records that a look names and that are not the object's; then do what its last event asks for.

        A registry that refuses the former for good does not hold up the latter.
        """
        last = await self._sources.events.last(work.key)
        work.about = last.seen.about if last is not None else None
        closed, refusals = False, tuple[str, ...]()
        try:
            closed = await self._close_named(work, last)
        except (PermanentError, ConflictError, NotFoundError) as error:
            refusals = (f"a record that was left behind cannot be closed: {error}",)
        result = await self._follow(work, last, Result("applied" if closed else "noop"))
        return replace(result, rejections=refusals + result.rejections)

    async def _follow(self, work: Work, last: LastEvent | None, nothing: Result) -> Result:
        """Do what the last event of an object asks for; return `nothing` where there is nothing to do."""
        if last is None:
            return nothing
        if not work.forced:
            live = await self._sources.live(last.seen)
            return nothing if live is None else await self._see(work, live, How(is_look=True))
        if last.sequence > work.message.sequence and not self._reconciler.has_handled(last.seen):
            self._reconciler.memory.doubt(last.seen.uid)  # its turn comes after this: then it does what we would do
            return nothing
        told = retold(last.seen, await self._sources.live(last.seen), self._reconciler.prefix)
        if told is None:
            return nothing
        return await self._see(work, told.seen, How(forced=True, is_look=True, moved_on=told.moved_on))

    async def _close_named(self, work: Work, last: LastEvent | None) -> bool:
        if not work.named:
            return False
        seen = last.seen if last is not None else None
        return await self._reconciler.strays.close(work.key, work.named, seen, self._hooks.now())

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
