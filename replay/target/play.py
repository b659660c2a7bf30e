"""Play a capture: its facts and events in order, each when it is due, to whoever takes them."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import msgspec

from replay.capture import Captured, Facts, Line
from replay.pacing import Bound, moment_s
from shared.objects import ObjectKey


class Stage(Protocol):
    """Where a capture is played."""

    async def facts(self, facts: Facts, /) -> None:
        """Learn what a registry held before the events."""

    async def event(self, captured: Captured, /) -> None:
        """Let an event happen."""


class Selection(msgspec.Struct, frozen=True):
    """What is played. Events before `since` are, too, for later ones build on them: but at once. `only`: all if empty.

    `since` and `until` include the event that stands there; `only` holds (namespace, name).
    """

    since: Bound | None = None
    until: Bound | None = None
    only: frozenset[tuple[str, str]] = frozenset()

    def has(self, captured: Captured) -> bool:
        key = captured.event.key
        return not self.only or (key.namespace, key.name) in self.only

    def hurries(self, captured: Captured) -> bool:
        """Whether an event is only there for what follows: initial state, or before `since`."""
        return captured.initial or (self.since is not None and self.since.is_after(captured))

    def is_over(self, captured: Captured) -> bool:
        return self.until is not None and self.until.is_before(captured)


class Pace(Protocol):
    """Says when an event may go; see `Pacer`."""

    async def until(self, at_s: float, /) -> None: ...


class Played(msgspec.Struct):
    """What was played. `objects`: the uids by object. `whole`: nothing of the end was left out.

    `expected`: what the capture says the registry held in the end.
    """

    events: int = 0
    objects: dict[ObjectKey, set[str]] = {}
    expected: list[Facts] = []
    whole: bool = True


Ask = Callable[[Captured], Awaitable[bool]]  # before each event: whether to go on


async def always(_captured: Captured) -> bool:
    return True


async def play(lines: Iterable[Line], selection: Selection, pace: Pace, stage: Stage, ask: Ask = always) -> Played:
    """Play all lines that are selected. Raises what `stage` raises, and CaptureError for a line that cannot be read."""
    played = Played()
    for line in lines:
        if isinstance(line, Facts):
            if line.at == "end":
                played.expected.append(line)
            else:
                await stage.facts(line)
        elif isinstance(line, Captured) and selection.has(line):
            if selection.is_over(line):
                played.whole = False
                continue  # to the end: a cut file is told, and later events may be older
            if not selection.hurries(line):
                await pace.until(moment_s(line))
                if not await ask(line):
                    played.whole = False
                    break
            await stage.event(line)
            played.events += 1
            played.objects.setdefault(line.event.key, set()).add(line.event.uid)
    return played
