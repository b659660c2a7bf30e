"""The played KServe's shell: listens to the store, waits, writes the next step of each object.

One timer per object. An event that does not change what is to be written leaves the timer alone, so that an object
which is patched all the time still becomes Ready.
"""

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox.cluster.kserve import Deployed, Step, World, apply_step, next_step
from sandbox.cluster.resources import CONFIG_MAPS, ISVC, LLMISVC
from sandbox.cluster.rules import Cluster
from sandbox.cluster.store import Entry, Event


@dataclass(slots=True)
class _Work:
    """What is due for one object."""

    step: Step
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class Controller:
    """Plays KServe on a cluster, between `start` and `stop`. `pace` multiplies all delays; 0 = as fast as possible."""

    cluster: Cluster
    world: World = field(default_factory=World)
    pace: float = 1.0
    namespace: str = "kserve"
    """Where the ConfigMap `inferenceservice-config` is."""

    deployed: dict[str, Deployed] = field(default_factory=dict, init=False)
    """What runs, by uid; `generation` counts how often pods were made anew."""
    _work: dict[str, _Work] = field(default_factory=dict, init=False)

    def start(self) -> None:
        """Take up all objects that are there, and those that come."""
        self.cluster.store.listeners.append(self._seen)
        for resource in (ISVC, LLMISVC):
            if resource in self.cluster.kinds:
                for entry in self.cluster.store.entries(resource):
                    self._schedule(resource, entry)

    def stop(self) -> None:
        self.cluster.store.listeners.remove(self._seen)
        for work in self._work.values():
            work.timer.cancel()
        self._work.clear()

    def _seen(self, resource: str, event: Event) -> None:
        if resource not in (ISVC, LLMISVC):
            return
        if event.type == "DELETED":
            self._cancel(event.entry.uid)
            self.deployed.pop(event.entry.uid, None)
            return
        self._schedule(resource, event.entry)

    def _cancel(self, uid: str) -> None:
        work = self._work.pop(uid, None)
        if work is not None:
            work.timer.cancel()

    def _schedule(self, resource: str, entry: Entry) -> None:
        step = next_step(entry.decode(), self.deployed.get(entry.uid, Deployed()), self._world())
        work = self._work.get(entry.uid)
        if work is not None and work.step == step:
            return
        self._cancel(entry.uid)
        if step is not None:
            timer = asyncio.get_running_loop().call_later(step.delay_s * self.pace, self._do, resource, entry.key)
            self._work[entry.uid] = _Work(step, timer)

    def _do(self, resource: str, key: str) -> None:
        entry = self.cluster.store.get(resource, key)
        if entry is None or entry.uid not in self._work:
            return
        step = self._work.pop(entry.uid).step
        self.deployed[entry.uid] = step.after
        part, wanted = apply_step(entry.decode(), step, self._world())
        written = self.cluster.update(self.cluster.kinds[resource], entry, wanted, part=part)
        if written is entry:  # nothing changed, so no event calls us
            self._schedule(resource, entry)

    def _world(self) -> World:
        return replace(self.world, now=self.cluster.stamp(), uncopied_annotations=self._disallowed())

    def _disallowed(self) -> frozenset[str]:
        entry = self.cluster.store.get(CONFIG_MAPS, f"{self.namespace}/inferenceservice-config")
        if entry is None:
            return self.world.uncopied_annotations
        data: dict[str, Any] = entry.decode().get("data") or {}
        try:
            listed = json.loads(data.get("inferenceService", "{}")).get("serviceAnnotationDisallowedList") or []
        except ValueError:  # as KServe: what cannot be read is no list
            listed = []
        return self.world.uncopied_annotations | frozenset(listed)
