"""What the controllers around an API server do, as far as clients notice: definitions become served, garbage goes.

The garbage collector knows no owners: it only takes its finalizers off deleted objects, after a moment.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox.cluster.resources import CRDS, kind_of_definition
from sandbox.cluster.rules import Cluster
from sandbox.cluster.store import Event

_GARBAGE = {"foregroundDeletion", "orphan"}


@dataclass(slots=True)
class Housekeeping:
    """Follows all writes, between `start` and `stop`."""

    cluster: Cluster
    delay_s: float
    _timers: set[asyncio.TimerHandle] = field(default_factory=set, init=False)

    def start(self) -> None:
        self.cluster.store.listeners.append(self._seen)

    def stop(self) -> None:
        self.cluster.store.listeners.remove(self._seen)
        for timer in self._timers:
            timer.cancel()

    def _seen(self, resource: str, event: Event) -> None:
        if event.type == "DELETED":
            return
        if resource == CRDS and not event.entry.deleting:
            if event.type == "ADDED":
                self._later(self.cluster.establish, event.entry.name)
            elif event.entry.name in self.cluster.kinds:
                self.cluster.serve(kind_of_definition(event.entry.decode()))
        elif event.entry.deleting and resource != CRDS:
            self._later(self._release, resource, event.entry.key)

    def _later(self, do: Callable[..., None], *arguments: str) -> None:
        loop = asyncio.get_running_loop()
        self._timers = {timer for timer in self._timers if timer.when() > loop.time()}
        self._timers.add(loop.call_later(self.delay_s, do, *arguments))

    def _release(self, resource: str, key: str) -> None:
        kind = self.cluster.kinds.get(resource)
        entry = self.cluster.store.get(resource, key) if kind else None
        if kind is None or entry is None or not entry.deleting:
            return
        obj = entry.decode()
        finalizers = obj["metadata"].get("finalizers") or []
        if _GARBAGE & set(finalizers):
            obj["metadata"]["finalizers"] = [name for name in finalizers if name not in _GARBAGE]
            self.cluster.update(kind, entry, obj)
