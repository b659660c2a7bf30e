"""What was found out about one object, before anything is concluded from it. Pure values.

`captured.py` finds them in a capture, `live.py` at cluster, broker and registries; `life.py` concludes.
"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

import msgspec

from consumer.observation import Observation
from consumer.plan import Facts, PlanSettings
from consumer.records import Record
from replay.capture import Action, Captured
from replay.moments import micros
from replay.steps import Step
from shared.events import SyncMarker
from shared.objects import ObjectKey


class Past(msgspec.Struct, frozen=True):
    """One event of the object with what is decided about it; `step` is None where that could not be found out.

    `looks`: what looks of the consumer found after it, before the object's next event.
    """

    event: Captured
    step: Step | None = None
    looks: tuple[Step, ...] = ()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One uid: its newest state, and what its registry says.

    `home` is the registry's name, None where it has none: `no_home` says why, `forbidden` whether a setting does.
    `facts` answers the questions that `plan` has about the state.
    """

    seen: Observation
    home: str | None = None
    no_home: str = ""
    forbidden: bool = False
    facts: Facts = Facts()


class Live(msgspec.Struct, frozen=True):
    """What the API server says at this moment: the object, or that there is none. `trouble`: why it cannot tell."""

    seen: Observation | None = None
    trouble: str = ""


class Letter(msgspec.Struct, frozen=True):
    """The object's dead letter. `uid` "": the message did not say. `seq`: where it was in the stream."""

    reason: str
    uid: str = ""
    seq: int = 0


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """How far the consumers are with the object's shard, by stream sequence.

    `exists`: a consumer has been there. `pulling`: one asks for messages at this moment. `unacked`: how many messages
    were delivered and are not acknowledged.
    """

    shard: int
    exists: bool = True
    pulling: bool = True
    delivered: int = 0
    acked: int = 0
    unacked: int = 0


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one object, of all uids that its name has had.

    `past` is in the order of the stream. `records`: by registry, those of all its uids. `unread`: registries that could
    not be read, with the reason; `planned`: those of a capture that does not tell what they held at its end, so that
    their records are the plan's. `live`, `delivery` are None in a capture, which knows neither. `marker`: the sync
    marker of the kind. `holds`: sentences about deletes that are held back. `at_hand`: what consumers had begun and not
    ended when the capture ended, by stream sequence, as far as it tells.
    """

    key: ObjectKey
    settings: PlanSettings
    past: tuple[Past, ...] = ()
    actions: tuple[Action, ...] = ()
    standings: Mapping[str, Standing] = {}
    records: Mapping[str, tuple[Record, ...]] = {}
    unread: Mapping[str, str] = {}
    planned: frozenset[str] = frozenset()
    live: Live | None = None
    letter: Letter | None = None
    delivery: Delivery | None = None
    marker: SyncMarker | None = None
    holds: tuple[str, ...] = ()
    at_hand: frozenset[int] = frozenset()

    @property
    def is_capture(self) -> bool:
        return self.live is None

    def events_of(self, uid: str) -> tuple[Past, ...]:
        return tuple(each for each in self.past if each.event.event.uid == uid)

    def done_by_event(self) -> dict[int, list[Action]]:
        """Return what consumers did, by the sequence of the event; of a look, by that of the last event before it."""
        events = [each.event for each in self.past]
        times = list(accumulate((micros(each.position.time or each.event.time) or 0 for each in events), max))
        found: dict[int, list[Action]] = {}
        for action in self.actions:
            place = bisect_right(times, micros(action.time) or 0) - 1
            sequence = action.event or (events[place].position.seq if place >= 0 else 0)
            found.setdefault(sequence, []).append(action)
        return found
