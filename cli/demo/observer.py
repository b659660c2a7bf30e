"""Looks at cluster and registry again and again, and keeps what it saw up to date for story, table and checks."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from cli.demo.clients import Kubernetes, Models
from cli.demo.processes import Child, DemoError
from cli.demo.state import Change, Life, Named, Record, Seen
from shared.objects import Kind, ObjectKey

_POLL_S = 0.03


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Observer:
    """Holds the lives of the demo's objects and looks at them.

    `children` are the processes that must run meanwhile; `on_look` is called after each look.
    """

    def __init__(self, kubernetes: Kubernetes, models: Models, on_look: Callable[[Seen], None]) -> None:
        self.children: dict[str, Child] = {}
        self.seen = Seen()
        self._kubernetes = kubernetes
        self._registry = models
        self._on_look = on_look
        self._lives: list[Life] = []
        self._models: dict[str, Named] = {}
        self._versions: dict[str, Named] = {}

    def knows(self, model: Named, *versions: Named) -> None:
        """Tell it of a registered model and its versions."""
        self._models[model.id] = model
        self._versions |= {version.id: version for version in versions}

    async def create(self, shape: str, manifest: dict[str, Any]) -> Life:
        """Create an object and follow it from now on."""
        sent_ms = now_ms()
        obj = await self._kubernetes.create(manifest)
        kind = next(each for each in Kind if each.kubernetes_kind == manifest["kind"])
        key = ObjectKey(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])
        life = Life(key, shape, obj["metadata"]["uid"], obj)
        life.change = Change(sent_ms, lambda record: record.created_ms)
        self._lives.append(life)
        return life

    async def until(self, what: str, missing: Callable[[Seen], str], deadline_s: float) -> None:
        """Look until nothing is missing. Raises DemoError that says what was expected and what is missing."""

        async def gap() -> str:
            await self.look()
            return missing(self.seen)

        await self.until_answered(what, gap, deadline_s)

    async def until_answered(self, what: str, ask: Callable[[], Awaitable[str]], deadline_s: float) -> None:
        """Ask until the answer is empty. Raises DemoError as `until`, also when a process has ended meanwhile."""
        give_up = time.monotonic() + deadline_s
        while True:
            gap = await ask()
            if not gap:
                return
            for child in self.children.values():
                if child.exit_code is not None:
                    raise DemoError(f"{what}: the {child.name} has ended with exit code {child.exit_code}; {gap}")
            if time.monotonic() > give_up:
                raise DemoError(f"{what}: expected within {deadline_s:.0f} s; {gap}")
            await asyncio.sleep(_POLL_S)

    async def linger(self, duration_s: float) -> None:
        """Go on looking for a while, for people to read the table."""
        give_up = time.monotonic() + duration_s
        while time.monotonic() < give_up:
            await self.look()
            await asyncio.sleep(_POLL_S * 2)

    async def look(self) -> None:
        """Look once. The cluster first: a record that is seen was written from an object that was seen or earlier."""
        objects = await self._kubernetes.objects()
        records, environments = await asyncio.gather(self._registry.records(), self._registry.environments())
        for life in self._lives:
            life.gone = life.uid not in objects
            life.obj = objects.get(life.uid, life.obj)
            _time(life, [record for record in records if record.uid == life.uid])
        self.seen = Seen(tuple(self._lives), records, environments, self._models, self._versions)
        self._on_look(self.seen)


def _time(life: Life, records: list[Record]) -> None:
    """Note how long the record took to show our change, by the registry's own time of writing."""
    if life.change is None:
        return
    shown = [at_ms for record in records if (at_ms := life.change.shown_ms(record)) is not None]
    if shown:
        life.latency_ms = max(0, shown[0] - life.change.sent_ms)
        life.change = None
