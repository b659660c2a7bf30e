"""When each event of a capture is played: at its own pace, faster, or as fast as it goes. Pure: a clock is lent.

All deadlines are counted from one anchor, the first paced event. What makes one event late makes no later one late: ten
seconds of a capture take ten seconds, however long something took in the middle.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from replay.capture import Captured
from replay.moments import unix_s

AS_FAST_AS_POSSIBLE: Final = math.inf
_LATE_S: Final = 0.01  # less is the system's timers


class Bound(msgspec.Struct, frozen=True):
    """A place in a capture: a stream sequence, or else a moment as a Unix time in seconds."""

    seq: int | None = None
    at_s: float = 0.0

    def is_after(self, captured: Captured) -> bool:
        """Whether an event stands before this place."""
        return self._place(captured) < self._here

    def is_before(self, captured: Captured) -> bool:
        """Whether an event stands behind this place; the one that stands there does not."""
        return self._place(captured) > self._here

    @property
    def _here(self) -> float:
        return self.at_s if self.seq is None else self.seq

    def _place(self, captured: Captured) -> float:
        return moment_s(captured) if self.seq is None else captured.position.seq


class Lateness(msgspec.Struct, frozen=True):
    """How well the deadlines were kept. `events`: how many were paced; `late`: of them, by more than 10 ms.

    `worst_s` and `end_s`: by how much at worst, and the last one.
    """

    events: int = 0
    late: int = 0
    worst_s: float = 0.0
    end_s: float = 0.0


class Pacer:
    """Lets events go one after the other. `factor` 2.0 is twice as fast as recorded, infinity never waits."""

    def __init__(self, factor: float, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self._factor = factor
        self._clock = clock
        self._sleep = sleep
        self._anchor: tuple[float, float] | None = None  # on the clock, and in the capture
        self._due_s = -math.inf
        self.lateness = Lateness()

    async def until(self, at_s: float) -> None:
        """Return when the event of that moment (a Unix time in seconds) is due; the first one is due at once.

        One that is older than those before it is due with them.
        """
        if self._factor == AS_FAST_AS_POSSIBLE:
            return
        if self._anchor is None:
            self._anchor = (self._clock(), at_s)
        began_s, first_s = self._anchor
        self._due_s = max(self._due_s, began_s + (at_s - first_s) / self._factor)
        while (left_s := self._due_s - self._clock()) > 0:
            await self._sleep(left_s)
        self._note(-left_s)

    def _note(self, late_s: float) -> None:
        before = self.lateness
        self.lateness = Lateness(
            before.events + 1, before.late + (late_s > _LATE_S), max(before.worst_s, late_s), late_s
        )


def parse_speed(text: str) -> float:
    """Return the factor that `1x`, `0.5x` or `max` means. Raises ValueError with the rest of a sentence."""
    if text == "max":
        return AS_FAST_AS_POSSIBLE
    number = text.removesuffix("x")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not (0 < factor < math.inf) or not number.strip() == number:
        raise ValueError(f"is {text[:40]!r}: it must be a factor such as 1x, 10x or 0.5x, or max")
    return factor


def parse_bound(text: str) -> Bound | None:
    """Return the place that a stream sequence or an RFC 3339 time means, None for "".

    A time without an offset is UTC. Raises ValueError with the rest of a sentence.
    """
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return Bound(seq=int(text))
    at_s = unix_s(text)
    if at_s is None:
        wanted = "a stream sequence, or a time such as 2026-11-30T10:00:00Z"
        raise ValueError(f"is {text[:40]!r}: it must be {wanted}")
    return Bound(at_s=at_s)


def moment_s(captured: Captured) -> float:
    """Return when an event entered the stream, else when it was seen, as a Unix time in seconds; 0.0 for neither."""
    stored_s = unix_s(captured.position.time)
    return (unix_s(captured.event.time) or 0.0) if stored_s is None else stored_s
