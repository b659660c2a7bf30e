"""What is between a worker and its servers when a capture is explored: time, and what can happen to a request. Pure.

A request that its sender has given up, or whose sender was killed or lost the shard, has landed by then, or never
lands. One that lands later is what the consumer does not promise to survive (docs/consumer-simulation.md, `overtaken`).
"""

import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from consumer.actions import CreateRecord, UpdateRecord
from consumer.observation import LastEvent
from consumer.records import Record
from consumer.requests.exchange import REQUEST_MIN_S, REQUEST_TIMEOUT_S
from replay.exploring.scheduler import ANSWER_LOST, DIES_AFTER, DIES_BEFORE, DIES_WRITTEN, REFUSED, UNREACHABLE
from replay.exploring.servers import Servers
from replay.registry import MemoryRegistry
from shared.errors import ConflictError, IsvcSyncError, NotFoundError, TransientError, UnreachableError
from shared.objects import ObjectKey

if TYPE_CHECKING:
    import asyncio

    from consumer.ownership.fence import Fence

T = TypeVar("T")
AT_HAND: Final[ContextVar[str]] = ContextVar("the object at hand", default="")
"""Whose work the present task does: its requests' fate depends on that."""


class Asked(msgspec.Struct):
    """A request that is on the wire."""

    serve: Callable[[], Any]
    answer: "asyncio.Future[Any]"
    lands: bool  # should its sender be gone before it has arrived
    timer: "asyncio.TimerHandle | None" = None


class Sender:
    """Who sends requests, a process. `dies` lets a fault kill it; `dead`: nothing of it goes on."""

    def __init__(self, servers: Servers, fence: "Fence", dies: Callable[[], None]) -> None:
        self.servers = servers
        self.fence = fence
        self.dies = dies
        self.dead = False
        self.under_way: dict[int, Asked] = {}


class Wire:
    """The requests of one sender."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.servers = sender.servers
        self._loop = sender.servers.loop
        self._fate = sender.servers.scheduler

    async def ask(self, server: str, what: str, serve: Callable[[], T], refusal: Callable[[], IsvcSyncError]) -> T:
        """Return what the server answers, or raise that. Raises UnreachableError where no answer comes."""
        about = f"{server} {what} of {AT_HAND.get()}"
        answer: asyncio.Future[T] = self._loop.create_future()
        if self.sender.dead or self._fate.fault(f"{server}: {DIES_BEFORE}", about):
            self._loop.call_soon(self.sender.dies)
            await answer
        if self._fate.fault(f"{server}: {REFUSED}", about):
            serve = _raising(refusal())
        there_s, back_s = self._fate.delay_s(about), self._fate.delay_s(about)
        if self._fate.fault(f"{server}: {ANSWER_LOST}", about):
            back_s = math.inf
        if not self._fate.fault(f"{server}: {UNREACHABLE}", about):
            self._send(Asked(serve, answer, self._fate.draw(f"lands {about}") < 0.5), there_s, back_s)
        else:
            back_s = math.inf
        if back_s == math.inf:
            error = UnreachableError(f"{server}: no answer within {REQUEST_TIMEOUT_S} s")
            self._loop.call_later(REQUEST_TIMEOUT_S, _settle, answer, None, error)
        if self._fate.fault(f"{server}: {DIES_AFTER}", about):
            self._loop.call_soon(self.sender.dies)
        return await answer

    def _send(self, asked: Asked, there_s: float, back_s: float) -> None:
        asked.timer = self._loop.call_later(there_s, self._arrive, asked, back_s)
        self.sender.under_way[id(asked)] = asked

    def _arrive(self, asked: Asked, back_s: float) -> None:
        self.sender.under_way.pop(id(asked), None)
        result, failure = served(asked.serve)
        if back_s < math.inf:
            self._loop.call_later(back_s, _settle, asked.answer, result, failure)


def served(serve: Callable[[], T]) -> tuple[T | None, IsvcSyncError | None]:
    """Return what a server answers, or raises."""
    try:
        return serve(), None
    except IsvcSyncError as error:
        return None, error


def _settle(answer: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)


def _raising(error: IsvcSyncError) -> Callable[[], Any]:
    def serve() -> Any:
        raise error

    return serve


def _done(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration holds anything
    raise AssertionError("the registry in memory waits for nothing")


class RegistryWire(Wire):
    """Implements the port `Registry`, and `surroundings.Assuming`; the registry itself is everybody's."""

    def __init__(self, sender: Sender, registry: MemoryRegistry) -> None:
        super().__init__(sender)
        self._registry = registry

    @property
    def assuming(self) -> bool:
        return self._registry.assuming

    def assume(self, version_id: str, model_id: str) -> None:
        self._registry.assume(version_id, model_id)

    async def find_environment(self, name: str) -> str | None:
        return await self._call(f"find {name}", lambda: self._registry.find_environment(name))

    async def create_environment(self, name: str) -> str:
        about = f"create {name}"
        if self._fate.fault("another creates the environment", f"{about} of {AT_HAND.get()}"):
            served(lambda: _done(self._registry.create_environment(name)))
        return await self._call(about, lambda: self._registry.create_environment(name), writes=True)

    async def find_record(self, external_id: str) -> Record | None:
        return await self._call(f"find {external_id}", lambda: self._registry.find_record(external_id))

    async def find_record_by_name(self, name: str, environment_id: str) -> Record | None:
        return await self._call(f"find {name}", lambda: self._registry.find_record_by_name(name, environment_id))

    def all_records(self) -> AsyncGenerator[Record, None]:
        return self._registry.all_records()

    async def create_record(self, action: CreateRecord, environment_id: str) -> Record:
        about = f"create {action.external_id}"
        if self._fate.fault("environment not found", f"{about} of {AT_HAND.get()}"):
            missing = NotFoundError(f"no serving environment found for id {environment_id}")
            return await self.ask("registry", about, _raising(missing), _unavailable)
        return await self._call(about, lambda: self._registry.create_record(action, environment_id), writes=True)

    async def update_record(self, action: UpdateRecord) -> Record:
        return await self._call(f"update {action.id}", lambda: self._registry.update_record(action), writes=True)

    async def model_exists(self, model_id: str) -> bool:
        return await self._call(f"model {model_id}", lambda: self._registry.model_exists(model_id))

    async def model_of_version(self, version_id: str) -> str | None:
        return await self._call(f"version {version_id}", lambda: self._registry.model_of_version(version_id))

    async def _call(self, what: str, serve: Callable[[], Coroutine[Any, Any, T]], *, writes: bool = False) -> T:
        if self.sender.fence.budget_s() < REQUEST_MIN_S:
            raise TransientError(f"{what}: not sent, the ownership of its shard has ended")
        about = f"registry {what} of {AT_HAND.get()}"

        def serving() -> T:
            result = _done(serve())
            if writes and self._fate.fault(DIES_WRITTEN, about):
                self._loop.call_soon(self.sender.dies)
            return result

        return await self.ask("registry", what, serving, _unavailable)


class KubernetesWire(Wire):
    """Implements the port `Kubernetes`."""

    async def get(self, key: ObjectKey) -> Any | None:
        return await self.ask("Kubernetes", "get", lambda: self.servers.cluster.get(key), _unavailable)

    async def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        if self.sender.fence.budget_s() < REQUEST_MIN_S:
            raise TransientError("not sent, the ownership of the shard has ended")

        def serve() -> None:
            if self._fate.fault("conflict for nothing", str(key)):
                raise ConflictError(f"{key}: 409")
            self.servers.cluster.patch(key, operations)

        await self.ask("Kubernetes", "patch", serve, lambda: TransientError("500, failed calling webhook"))


class LastEventsWire(Wire):
    """Implements the port `LastEvents`."""

    async def last(self, key: ObjectKey) -> LastEvent | None:
        return await self.ask("broker", "last", lambda: self.servers.last(key), _unavailable)


class DeadLettersWire(Wire):
    """Implements the port `DeadLetters`."""

    async def bury(self, key: ObjectKey, headers: dict[str, str], body: bytes, reason: str) -> None:
        del headers, body
        await self.ask("broker", "bury", lambda: self.servers.dead.update({key: reason}), _unavailable)

    def holds(self, key: ObjectKey) -> bool:
        return key in self.servers.dead

    async def clear(self, key: ObjectKey) -> None:
        if key in self.servers.dead:
            await self.ask("broker", "clear", lambda: self.servers.dead.pop(key, None), _unavailable)


def _unavailable() -> IsvcSyncError:
    return TransientError("503")
