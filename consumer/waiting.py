"""What waits for the API server waits at no cost: once it was refused, it is not handled anew before that makes sense.

In front of `handle`, which would read the registry and plan again only to be refused again. What the refused message
asks of the registry was done before (`plan.py` orders it so); a newer message of the object is another one, and goes
through.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from consumer.delivery.work import Work
from consumer.requests.kube_circuit import KubernetesCircuits, noting_refusals
from consumer.spans import Handle
from consumer.verdict import DELAY_S_MAX, Retry, Verdict
from shared.objects import ObjectKey

HANDLED_ANEW_S: Final = DELAY_S_MAX  # at the latest: something else may be left of it, too


class _Waiting(msgspec.Struct, frozen=True):
    """A message that was refused a request of some sort, at a time of the loop's clock."""

    work: Work
    sort: str
    since: float


class WaitingForKubernetes:
    """Handles messages, or has them wait. `on_result` as `handle.Hooks` has it."""

    def __init__(self, handle: Handle, circuits: KubernetesCircuits, on_result: Callable[[Work, str], None]) -> None:
        self._handle = handle
        self._circuits = circuits
        self._on_result = on_result
        self._waiting: dict[ObjectKey, _Waiting] = {}

    async def handle(self, work: Work) -> Verdict:
        if self._circuits.is_well:
            self._waiting.clear()  # those of shards that are no longer ours, too
        wait_s = self._wait_s(work.key, work)
        if wait_s > 0:
            return self._held(work, wait_s)
        self._waiting.pop(work.key, None)
        with noting_refusals() as refused:
            decision = await self._handle(work)
        if isinstance(decision, Retry) and decision.held and refused:
            self._waiting[work.key] = _Waiting(work, refused[-1], _now())
        return decision

    def _wait_s(self, key: ObjectKey, work: Work) -> float:
        waiting = self._waiting.get(key)
        if waiting is None or waiting.work is not work or work.burial or _now() - waiting.since >= HANDLED_ANEW_S:
            return 0.0
        return self._circuits.wait_s(waiting.sort)

    def _held(self, work: Work, wait_s: float) -> Retry:
        work.attempt = max(1, work.attempt - 1)  # nothing was tried
        self._on_result(work, "held")
        return Retry(wait_s, "the Kubernetes API is away", held=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
