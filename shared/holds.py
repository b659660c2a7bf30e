"""Holds: what looks like a mistake is kept back until a person says that it is true.

The producer's leader holds back deletes, the consumer's sweep undeployments, when there are too many at once. Nothing
of that is stored: a hold lives in the process that has it, which answers questions over plain NATS (no JetStream).

    <prefix>.<cluster>.holds      no body                every holder answers with an `Answer`
    <prefix>.<cluster>.release    the id of a hold       every holder answers with a `ReleaseAnswer`

A holder registers what it keeps back as `Held`, and runs a `HoldServer`. `isvc-sync release` asks by a `HoldClient`.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, get_args

import msgspec
import nats.js.api
from msgspec import Struct
from nats.aio.msg import Msg

from shared.broker import Broker
from shared.broker_errors import translated
from shared.decoding import UNDECODABLE
from shared.errors import PermanentError
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

logger = logging.getLogger(__name__)

T = TypeVar("T")

Part = Literal["producer", "sweep"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)

_ID_DIGITS: Final = 12  # of a SHA-256 in hex: short enough to type, and two holds never meet by chance
_SAMPLE: Final = 20
_NAMESPACES_NAMED: Final = 5
_NO_RESPONDERS: Final = "503"


class Held(Struct, frozen=True, kw_only=True):
    """What a holder keeps back, in its own terms.

    `objects` are keys with what identifies each besides (the uid); `known` is how many there were before; `scope` are
    the namespaces that were looked at, empty for all of them; `since_s` is in Unix seconds. `why` is one sentence
    without full stop. It is part of the hold's id, so it holds no number that changes while the situation does not.
    """

    kind: Kind
    why: str
    objects: frozenset[tuple[ObjectKey, str]]
    known: int
    since_s: float
    scope: tuple[str, ...] = ()

    def continued(self, before: "Held | None") -> "Held":
        """Return this with the age of `before`, if that kept back the same for the same reason."""
        if before is None or (before.kind, before.why, before.objects) != (self.kind, self.why, self.objects):
            return self
        return msgspec.structs.replace(self, since_s=before.since_s)


class Hold(Struct, frozen=True, kw_only=True, rename="camel"):
    """A hold as people see it. `id` stands for exactly this: the cluster, who, the kind, why, and each single object.

    So the release of an id is a release of what was shown, and of nothing that came later. `count` of `known` objects
    are held, `sample` are the first of them as `<namespace>/<name>`; `since` is RFC 3339.
    """

    id: str
    by: Part
    cluster_id: str
    kind: Kind
    why: str
    count: int
    known: int
    since: str
    scope: str
    sample: tuple[str, ...]


class Answer(Struct, frozen=True, rename="camel"):
    """What one process says about holds. `parts` are the parts of isvc-sync that it speaks for."""

    holder: str
    cluster_id: str
    parts: tuple[Part, ...]
    holds: tuple[Hold, ...]


class ReleaseAnswer(Struct, frozen=True, rename="camel"):
    """Whether the hold that was named was held by this process, and is not any more."""

    holder: str
    released: bool


class Outcome(StrEnum):
    """What became of a release: done; nobody holds that (any more); or not known, as who may hold it did not answer."""

    RELEASED = "released"
    CHANGED = "changed"
    UNKNOWN = "unknown"


def hold_of(held: Held, by: Part, cluster_id: str) -> Hold:
    """Return the hold that people see. The same `held` has the same id in every process and at every time."""
    objects = sorted(held.objects)
    identity = msgspec.json.encode((cluster_id, by, held.kind, held.why, [(str(key), uid) for key, uid in objects]))
    return Hold(
        id=hashlib.sha256(identity).hexdigest()[:_ID_DIGITS],
        by=by,
        cluster_id=cluster_id,
        kind=held.kind,
        why=held.why,
        count=len(objects),
        known=held.known,
        since=datetime.fromtimestamp(held.since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        scope=_scope_text(held.scope),
        sample=tuple(f"{key.namespace}/{key.name}" for key, _ in objects[:_SAMPLE]),
    )


def _scope_text(namespaces: tuple[str, ...]) -> str:
    if not namespaces:
        return "all namespaces"
    named, more = ", ".join(namespaces[:_NAMESPACES_NAMED]), len(namespaces) - _NAMESPACES_NAMED
    word = "namespace" if len(namespaces) == 1 else "namespaces"
    return f"{word} {named} and {more} more" if more > 0 else f"{word} {named}"


class Holder(Struct, frozen=True):
    """One part's side of the bargain: `held` says what is held now, `release` ends it and says whether it did."""

    held: Callable[[], Sequence[Held]]
    release: Callable[[Held], bool]


class HoldServer:
    """Answers for the holders of one process, for as long as it is entered.

    Guarantees: a release reaches a holder only with what it holds at that moment and what the id stands for.
    Assumptions: `name` is unlike that of any other process; `held` and `release` return at once.
    Caveats: a released hold is forgotten with the process, as is the hold. Its successor finds and holds it again.
    """

    def __init__(self, broker: Broker, subjects: Subjects, cluster_id: str, name: str) -> None:
        self._broker = broker
        self._subjects = subjects
        self._cluster_id = cluster_id
        self._name = name
        self._holders: dict[Part, Holder] = {}
        self._subscriptions: list[Subscription] = []

    def register(self, part: Part, held: Callable[[], Sequence[Held]], release: Callable[[Held], bool]) -> None:
        """Speak for a part of isvc-sync. `release` gets one of what `held` has just returned."""
        self._holders[part] = Holder(held, release)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begin to answer. Waits for nothing: without a connection it begins at the next one.

        Raises UnreachableError when the connection is closed for good.
        """
        with translated("beginning to answer for holds"):
            for subject, answer in ((self._subjects.holds(), self._tell), (self._subjects.release(), self._release)):
                self._subscriptions.append(await self._broker.client.subscribe(subject, cb=answer))

    async def stop(self) -> None:
        """Answer no more. Does nothing on a connection that has ended; doing it twice does no harm."""
        subscriptions, self._subscriptions = self._subscriptions, []
        client = self._broker.client
        for subscription in subscriptions:
            if not (client.is_closed or client.is_draining):
                await subscription.unsubscribe()

    def _current(self) -> list[tuple[Hold, Held, Holder]]:
        return [
            (hold_of(held, part, self._cluster_id), held, holder)
            for part, holder in self._holders.items()
            for held in holder.held()
        ]

    # nats-py's callbacks. What they raise goes to the broker's `_error_cb`, is logged and counted, and the question
    # stays without answer: whoever asked says so.

    async def _tell(self, question: Msg) -> None:
        holds = tuple(hold for hold, _, _ in self._current())
        await self._answer(question, Answer(self._name, self._cluster_id, tuple(self._holders), holds))

    async def _release(self, request: Msg) -> None:
        wanted, released = request.data.decode(errors="replace").strip(), False
        for hold, held, holder in self._current():
            if hold.id == wanted:
                released = holder.release(held)
                fields = {"hold": hold.id, "kind": hold.kind, "count": hold.count, "accepted": released}
                logger.warning("release of a hold by a person", extra=fields)
        await self._answer(request, ReleaseAnswer(self._name, released))

    async def _answer(self, question: Msg, answer: Struct) -> None:
        if question.reply:
            await self._broker.client.publish(question.reply, msgspec.json.encode(answer))


class Patience(Struct, frozen=True):
    """How long to wait for answers, whose number nobody knows.

    `within_s` in all, and only `quiet_s` more once every part of isvc-sync has answered: while leaders change, one part
    may answer twice.
    """

    within_s: float = 2.0
    quiet_s: float = 0.3


class HoldClient:
    """Asks all holders of a cluster."""

    def __init__(self, broker: Broker, subjects: Subjects, patience: Patience = Patience()) -> None:  # noqa: B008 - it is frozen
        self._broker = broker
        self._subjects = subjects
        self._patience = patience

    async def ask(self) -> tuple[Answer, ...]:
        """Return all answers: none when nobody is there.

        Raises UnreachableError when the connection has ended, PermanentError for an answer that cannot be read.
        """

        def wait_s(answers: list[Answer]) -> float:
            answered = {part for answer in answers for part in answer.parts}
            return self._patience.quiet_s if answered == set(PARTS) else math.inf

        return tuple(await self._answers(self._subjects.holds(), b"", Answer, wait_s))

    async def release(self, hold_id: str, shown_by: Collection[str]) -> Outcome:
        """End a hold that the holders `shown_by` have shown. Raises as `ask` does."""

        def refused(answers: list[ReleaseAnswer]) -> bool:
            return {answer.holder for answer in answers} >= set(shown_by)

        def wait_s(answers: list[ReleaseAnswer]) -> float:
            return 0.0 if any(answer.released for answer in answers) or refused(answers) else math.inf

        answers = await self._answers(self._subjects.release(), hold_id.encode(), ReleaseAnswer, wait_s)
        if any(answer.released for answer in answers):
            return Outcome.RELEASED
        return Outcome.CHANGED if refused(answers) else Outcome.UNKNOWN

    async def _answers(
        self, subject: str, body: bytes, expected: type[T], wait_s: Callable[[list[T]], float]
    ) -> list[T]:
        """Send a question and collect answers; `wait_s` says how much longer to wait, given those that have come."""
        loop, client = asyncio.get_running_loop(), self._broker.client
        arrived: asyncio.Queue[Msg] = asyncio.Queue()
        answers: list[T] = []
        inbox, deadline = client.new_inbox(), loop.time() + self._patience.within_s
        with translated(f"asking on {subject}"):
            subscription = await client.subscribe(inbox, cb=arrived.put)
            try:
                await client.publish(subject, body, reply=inbox)
                with contextlib.suppress(TimeoutError):
                    while deadline > loop.time():
                        async with asyncio.timeout_at(deadline):
                            message = await arrived.get()
                        if (message.headers or {}).get(nats.js.api.Header.STATUS) == _NO_RESPONDERS:
                            break
                        answers.append(_read(message, expected))
                        deadline = min(deadline, loop.time() + wait_s(answers))
            finally:
                await subscription.unsubscribe()
        return answers


def _read(message: Msg, expected: type[T]) -> T:
    try:
        return msgspec.json.decode(message.data, type=expected)
    except UNDECODABLE as error:
        raise PermanentError(
            f"A holder's answer cannot be read ({error}): use the isvc-sync of the version that runs in the cluster"
        ) from error
