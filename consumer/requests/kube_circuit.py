"""What goes to the API server for objects, held back while it does not answer: a circuit for each sort of request.

An API server that accepts and never answers may delay ids, and no records (`inflight.py` and `circuit.py` keep
registries apart for the same reason). A sort is a method and a route: KServe's webhooks can stop the patches of one
kind while everything else goes on. All sorts share one limit, which leaves the worker room for records.

What is refused comes again as *held* (`NotSentError` with the seconds to wait), spread over time; `waiting.py` lets it
wait at no cost. So does a probe that fails: it stands for all that wait, and is no more news than they are.
"""

import asyncio
import logging
import math
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

import httpx

from consumer.requests.circuit import PROBE_WAIT_S, Admission, Bearing, Circuit, Closed, Open, admit, settle
from consumer.requests.exchange import Budget, Outgoing
from consumer.requests.inflight import InFlightLimit
from shared.errors import IsvcSyncError, NotSentError, TransientError, UnauthorizedError, UnreachableError
from shared.kubernetes_errors import raise_for

logger = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 16
WAITING_MAX: Final = 24  # for a place; with those in flight well below the worker's 64 slots, which records need
OPEN_S_MAX: Final = 2.0  # a probe costs one request, and people wait for ids: not in proportion to the outage
RETURNS_PER_S: Final = 200.0  # of what was refused; more would be work for nothing
RETURN_S_MIN: Final = 0.25

_REFUSALS: Final[ContextVar[list[str] | None]] = ContextVar("the sorts refused to the work at hand", default=None)


class Sender(Protocol):
    """Sends a request; `exchange.Exchanger` does, and what stands in front of it."""

    async def send(self, outgoing: Outgoing, budget: Budget) -> httpx.Response:
        """Return the answer, whatever its status. Raises UnreachableError and NotSentError."""


class Returns:
    """When those come again who were sent away: not all at once."""

    def __init__(self, per_s: float) -> None:
        self._pause_s = 1.0 / per_s
        self._last = -math.inf

    def wait_s(self, least_s: float) -> float:
        """Return in how many seconds the next one may come, no sooner than in `least_s`."""
        now = _now()
        self._last = max(now + least_s, self._last + self._pause_s)
        return self._last - now


@contextmanager
def noting_refusals() -> Iterator[list[str]]:
    """Note which sorts of requests are refused to the calling task meanwhile, because their circuit is not closed."""
    refused: list[str] = []
    token = _REFUSALS.set(refused)
    try:
        yield refused
    finally:
        _REFUSALS.reset(token)


class KubernetesCircuits:
    """Stands in front of the exchanger to the API server, and is one."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._limit = InFlightLimit(IN_FLIGHT_MAX, waiting_max=WAITING_MAX, of="the Kubernetes API")
        self._circuits: dict[str, Circuit] = {}
        self._returns = Returns(RETURNS_PER_S)
        self._prepared_until: dict[str, float] = {}  # whoever is to be the probe may need that long to come to it

    @property
    def is_well(self) -> bool:
        """Whether nothing is refused."""
        return all(isinstance(circuit, Closed) for circuit in self._circuits.values())

    def wait_s(self, sort: str) -> float:
        """Return in how many seconds it is worth while to prepare a request of that sort; 0.0: now.

        Where its circuit waits for a probe, one is told so, and the others wait a moment longer.
        """
        circuit, now = self._circuit(sort), _now()
        if isinstance(circuit, Closed):
            return 0.0
        until = circuit.until if isinstance(circuit, Open) else now + PROBE_WAIT_S
        if now >= max(until, self._prepared_until.get(sort, -math.inf)):
            self._prepared_until[sort] = now + PROBE_WAIT_S
            return 0.0
        return self._returns.wait_s(max(until - now, RETURN_S_MIN))

    async def send(self, outgoing: Outgoing, budget: Budget) -> httpx.Response:
        """Return the answer, whatever its status. Raises NotSentError at once while the circuit is open."""
        sort = f"{outgoing.method} {outgoing.route}"
        admission = self._admit(sort, outgoing)
        try:
            response = await self._sent(sort, outgoing, budget, admission)
        except UnreachableError as error:
            self._settle(sort, admission, Bearing.ILL, str(error))
            if admission.is_probe:
                raise self._away(outgoing, sort, str(error)) from error
            raise
        except BaseException:  # not sent, or cancelled
            self._settle(sort, admission, Bearing.NOTHING)
            raise
        failure = _failure(response, str(outgoing))
        self._settle(sort, admission, Bearing.WELL if failure is None else Bearing.ILL, failure or "")
        if failure is not None and admission.is_probe:
            raise self._away(outgoing, sort, failure)
        return response

    def _admit(self, sort: str, outgoing: Outgoing) -> Admission:
        admission = admit(self._circuit(sort), _now())
        self._circuits[sort] = admission.circuit
        if admission.wait_s > 0:
            raise self._away(outgoing, sort)
        return admission

    async def _sent(self, sort: str, outgoing: Outgoing, budget: Budget, admission: Admission) -> httpx.Response:
        if admission.is_probe:  # which may not wait behind what hangs
            return await self._sender.send(outgoing, budget)
        async with AsyncExitStack() as stack:
            with self._spread():
                await stack.enter_async_context(self._limit)
            if not isinstance(self._circuit(sort), Closed):
                raise self._away(outgoing, sort)  # it opened while we waited for a place
            return await self._sender.send(outgoing, budget)

    @contextmanager
    def _spread(self) -> Iterator[None]:
        """Have those who find no place come again one after the other."""
        try:
            yield
        except NotSentError as error:
            raise NotSentError(str(error), retry_after_s=self._returns.wait_s(RETURN_S_MIN)) from error

    def _settle(self, sort: str, admission: Admission, bearing: Bearing, reason: str = "") -> None:
        before = self._circuit(sort)
        after = settle(before, bearing, _now(), is_probe=admission.is_probe, open_s_max=OPEN_S_MAX)
        self._circuits[sort] = after
        if isinstance(before, Closed) and isinstance(after, Open):
            extra = {"requests": sort, "reason": reason}
            logger.error("the Kubernetes API is away, what needs it is held", extra=extra)
        elif isinstance(after, Closed) and not isinstance(before, Closed):
            logger.info("the Kubernetes API is back", extra={"requests": sort})

    def _circuit(self, sort: str) -> Circuit:
        return self._circuits.get(sort, Closed())

    def _away(self, outgoing: Outgoing, sort: str, reason: str = "nothing was sent") -> NotSentError:
        refused = _REFUSALS.get()
        if refused is not None:
            refused.append(sort)
        circuit, now = self._circuit(sort), _now()
        least_s = circuit.until - now if isinstance(circuit, Open) else PROBE_WAIT_S
        wait_s = self._returns.wait_s(max(least_s, RETURN_S_MIN))
        return NotSentError(f"{outgoing}: the Kubernetes API is away ({reason})", retry_after_s=wait_s)


def _failure(response: httpx.Response, what: str) -> str | None:
    """Return why an answer is a sign of illness, None where it is one of life: it may well refuse the request."""
    try:
        raise_for(response, what)
    except (UnauthorizedError, UnreachableError) as error:
        return str(error)
    except TransientError as error:
        return None if response.status_code == 403 else str(error)  # a right that is missing: others may be there
    except IsvcSyncError:
        return None
    return None


def _now() -> float:
    return asyncio.get_running_loop().time()
