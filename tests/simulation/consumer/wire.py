"""What is between a process and its servers: time, and everything that can happen to a request and to its answer.

A request lives on its own once it is sent. So it lands although its process has died, or has given it up, and then
perhaps after what the next owner wrote.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from consumer.observation import LastEvent, observe
from consumer.requests.exchange import REQUEST_MIN_S, REQUEST_TIMEOUT_S, Budget
from consumer.requests.registry_errors import Answer, Request, RequestKind, classify
from shared import events
from shared.errors import BadEventError, ConflictError, IsvcSyncError, TransientError, UnreachableError
from shared.objects import ObjectKey, ReducedObject

if TYPE_CHECKING:
    from tests.simulation.consumer.process import Process

T = TypeVar("T")


class Wire:
    """The requests of one process. What serves one is told whether it lands late: when nobody waits for its answer."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.world = process.world
        self._loop = process.world.loop

    async def ask(self, server: str, serve: Callable[[bool], T], refuse: Callable[[], T]) -> T:
        """Return what the server answers. Raises UnreachableError where it does not, or too late."""
        chance = self.world.chance
        answer = self._loop.create_future()
        if self.process.dead or chance.fault(f"{server}: dies before"):
            self._loop.call_soon(self.world.died, self.process)
            await answer
        if chance.fault(f"{server}: refused"):
            serve = _refusing(refuse)
        there_s, back_s = chance.latency_s(), chance.latency_s()
        arrives = not chance.fault(f"{server}: never arrives")
        if chance.fault(f"{server}: answer lost"):
            back_s = math.inf
        if chance.fault(f"{server}: late"):
            there_s = REQUEST_TIMEOUT_S + chance.between(0.1, 8.0)
        if arrives:
            self.world.under_way += 1
            self._loop.call_later(there_s, self._arrive, serve, answer, back_s)
        if not arrives or there_s + back_s >= REQUEST_TIMEOUT_S:
            error = UnreachableError(f"{server}: no answer within {REQUEST_TIMEOUT_S} s")
            self._loop.call_later(REQUEST_TIMEOUT_S, _settle, answer, None, error)
        if chance.fault(f"{server}: dies after"):
            self._loop.call_soon(self.world.died, self.process)
        return await answer  # type: ignore[no-any-return]  # a future of any kind

    def _arrive(self, serve: Callable[[bool], T], answer: Any, back_s: float) -> None:
        self.world.under_way -= 1
        late = answer.done() or self.world.owners[self.process.shard] is not self.process
        result: T | None = None
        failure: IsvcSyncError | None = None
        try:
            result = serve(late)
        except IsvcSyncError as error:
            failure = error
        if back_s < math.inf:
            self._loop.call_later(back_s, _settle, answer, result, failure)


def _settle(answer: Any, result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)


def _refusing(refuse: Callable[[], T]) -> Callable[[bool], T]:
    return lambda _: refuse()


def _raise(error: Exception) -> Any:
    raise error


class RegistryWire(Wire):
    """Stands where `RegistryClient` does, below the real adapter: requests in, bodies or classified errors out."""

    async def call(self, request: Request, budget: Budget) -> bytes:
        if budget() < REQUEST_MIN_S:
            raise TransientError(f"{request}: not sent, the ownership of its shard ends")
        chance = self.world.chance

        def serve(late: bool) -> Answer:
            if request.kind is RequestKind.CREATE_ENVIRONMENT and chance.fault("another creates the environment"):
                self.world.registry.environment(msgspec.json.decode(request.body)["name"])
            if request.kind is RequestKind.CREATE_RECORD and chance.fault("a predecessor creates the record"):
                self.world.registry.create_as_a_predecessor(msgspec.json.decode(request.body))
            return self.world.registry.serve(request, late=late)

        answer = await self.ask("registry", serve, lambda: Answer(503, "text/plain", b"no healthy upstream"))
        error = classify(request, answer)
        if error is not None:
            raise error
        return answer.body


class KubernetesWire(Wire):
    """Implements the port `Kubernetes`."""

    async def get(self, key: ObjectKey) -> Any | None:
        def serve(_: bool) -> Any:
            living = self.world.cluster.objects.get(key)
            return None if living is None else living.raw(key)

        return await self.ask("Kubernetes", serve, lambda: _raise(TransientError("503")))

    async def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        if self.process.fence.budget_s() < REQUEST_MIN_S:
            raise TransientError("not sent, the ownership of the shard ends")

        def serve(_: bool) -> None:
            if self.world.chance.fault("conflict for nothing"):
                raise ConflictError(f"{key}: 409")
            self.world.patch(key, operations)

        refused = TransientError('500, failed calling webhook "inferenceservice.kserve-webhook-server.defaulter"')
        await self.ask("Kubernetes", serve, lambda: _raise(refused))


class LastEventsWire(Wire):
    """Implements the port `LastEvents`."""

    async def last(self, key: ObjectKey) -> LastEvent | None:
        def serve(_: bool) -> LastEvent | None:
            stored = self.world.broker.last(self.world.subjects.event(key))
            if stored is None:
                return None
            try:
                event = events.decode(stored.headers)
                seen = observe(event, msgspec.json.decode(stored.body, type=ReducedObject))
                return LastEvent(seen, stored.sequence)
            except (BadEventError, msgspec.DecodeError):
                return None

        return await self.ask("broker", serve, lambda: _raise(TransientError("the broker is away")))


class DeadLettersWire(Wire):
    """Implements the port `DeadLetters`; as the real one, it asks nothing when there is no entry to clear."""

    async def bury(self, key: ObjectKey, headers: dict[str, str], body: bytes, reason: str) -> None:
        del headers, body

        def serve(late: bool) -> None:
            self.world.broker.dead[key] = reason
            if late:
                self.world.buried_late.add(key)

        await self.ask("broker", serve, lambda: _raise(TransientError("the broker is away")))

    def holds(self, key: ObjectKey) -> bool:
        return key in self.world.broker.dead

    async def clear(self, key: ObjectKey) -> None:
        if key not in self.world.broker.dead:
            return

        def serve(late: bool) -> None:
            self.world.broker.dead.pop(key, None)
            if late:
                self.world.buried_late.add(key)

        await self.ask("broker", serve, lambda: _raise(TransientError("the broker is away")))
