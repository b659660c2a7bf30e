"""The servers behind an exploration: stream, cluster and registries, and the time they share. Pure.

They answer at once and as they are told; what happens to a request on its way is `wire.py`'s.
"""

from typing import Any

import msgspec

from consumer.observation import LastEvent
from replay.exploring.loop import VirtualLoop
from replay.exploring.scheduler import Scheduler
from replay.exploring.story import Plan, Story, Told
from replay.exploring.stream import Durable
from replay.registry import MemoryRegistry
from shared.decoding import UNDECODABLE
from shared.errors import ConflictError
from shared.objects import ObjectKey


class Cluster:
    """What the API server answers: each object as its last event showed it, and our id where it was written since."""

    def __init__(self, story: Story) -> None:
        self._target = story.header.plan_settings.target
        self._bodies: dict[ObjectKey, bytes | None] = {}
        self._written: dict[ObjectKey, list[dict[str, Any]]] = {}

    def show(self, told: Told) -> None:
        self._bodies[told.key] = None if told.ends else told.body
        self._written.pop(told.key, None)

    def get(self, key: ObjectKey) -> Any | None:
        body = self._bodies.get(key)
        if body is None:
            return None
        try:
            raw = msgspec.json.decode(body)
            metadata = raw["metadata"]
        except (*UNDECODABLE, KeyError, TypeError):
            return None  # an event that does not decode
        for operation in self._written.get(key, []):
            _add(metadata, operation)
        return raw

    def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        raw = self.get(key)
        if raw is None:
            raise ConflictError(f"{key} is gone")
        metadata = raw["metadata"]
        present = {"/metadata/uid": metadata["uid"], "/metadata/resourceVersion": metadata["resourceVersion"]}
        for operation in operations:
            if operation["op"] == "test" and present[operation["path"]] != operation["value"]:
                raise ConflictError(f"the test of {operation['path']} failed")
        self._written.setdefault(key, []).append(operations[-1])


def _add(metadata: dict[str, Any], operation: dict[str, Any]) -> None:
    """Carry out the last operation of `writeback.patch_operations`."""
    _, _, field, *escaped = operation["path"].split("/")
    values = metadata.setdefault(field, {}) or {}
    if escaped:
        values[escaped[0].replace("~1", "/").replace("~0", "~")] = operation["value"]
    else:
        values = operation["value"]
    metadata[field] = values


class Servers:
    """What all workers have in common. `durables` are those of the shards, one a worker. `dead`: the dead letters."""

    def __init__(self, story: Story, plan: Plan, scheduler: Scheduler, workers: int) -> None:
        self.story = story
        self.scheduler = scheduler
        self.workers = workers
        self.loop = VirtualLoop()  # type: ignore[abstract]  # what it lacks is never called
        self.cluster = Cluster(story)
        self.dead: dict[ObjectKey, str] = {}
        self.durables = [Durable(self.loop, scheduler) for _ in range(workers)]
        self.registries: dict[str, MemoryRegistry] = {}
        self._assumed = plan.assumed
        self._last: dict[ObjectKey, Told] = {}
        for facts in story.facts:
            self.registry(facts.registry).seed(facts)

    def now(self) -> str:
        minutes, seconds = divmod(self.loop.time(), 60)
        hours, minutes = divmod(minutes, 60)
        return f"2026-12-01T{int(hours):02}:{int(minutes):02}:{seconds:06.3f}Z"

    def registry(self, name: str) -> MemoryRegistry:
        """Return the registry of that name."""
        if name not in self.registries:
            registry = self.registries[name] = MemoryRegistry()
            for version, model in self._assumed.get(name, {}).items():
                registry.assume(version, model)
        return self.registries[name]

    def show(self, told: Told) -> None:
        """Let an event be the last one of its object, in the stream and in the cluster."""
        self._last[told.key] = told
        self.cluster.show(told)

    def last(self, key: ObjectKey) -> LastEvent | None:
        """Return what the stream says last of an object."""
        told = self._last.get(key)
        return None if told is None or told.seen is None else LastEvent(told.seen, told.sequence)
