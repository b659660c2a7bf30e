"""Explore a capture: whatever order, delay, death and error a seed brings, the registry ends as planned. Pure.

    story = Story.of(capture)
    explorer = Explorer(story, workers=4)
    finding = explorer.explore(17)          # None, or what is wrong

The workers are the consumer's own parts on a clock that jumps (`worker.py`); `scheduler.py` chooses what
happens. Only what the consumer promises to survive is injected, so each difference is a finding.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from replay.exploring.listening import listening
from replay.exploring.scheduler import Scheduler
from replay.exploring.story import Ending, Plan, Story, Told, plan_of
from replay.exploring.world import RestlessError, World
from shared.objects import ObjectKey

NO_RECORD: Final = "no record"


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that is otherwise than planned. `where`: the record, or the object, whose uid may not be known ("")."""

    uid: str
    where: str
    field: str
    planned: str
    found: str


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """What is wrong after the exploration of a seed. `fault`: why it did not even end."""

    seed: int
    differences: tuple[Difference, ...] = ()
    fault: str = ""

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(each.uid for each in self.differences if each.uid)

    @property
    def sentence(self) -> str:
        if self.fault:
            return self.fault
        first = self.differences[0]
        return f"{first.where}: {first.field} is {first.found!r}, planned was {first.planned!r}"


class Explorer:
    """Explores one story with so many workers, each the owner of a shard. `struck`: the faults that happened."""

    def __init__(self, story: Story, workers: int) -> None:
        self.story = story
        self.plan: Plan = plan_of(story)
        self.struck: Counter[str] = Counter()
        self._workers = workers
        self._told: list[Told] = story.told(workers)

    def explore(self, seed: int) -> Finding | None:
        """Return what is wrong after the exploration of a seed, None when it ends as planned."""
        scheduler = Scheduler(seed)
        world = World(self.story, self.plan, scheduler, self._workers)
        with listening() as ear:
            restless = ""
            try:
                ending = world.live(self._told)
            except RestlessError as error:
                restless = str(error)
            finally:
                world.close()
                self.struck.update(scheduler.struck)
        faults = [*ear.heard, *world.loop.broken]
        if faults:
            return Finding(seed, fault=f"a fault in the program: {faults[0]}")
        if restless:
            return Finding(seed, fault=restless)
        found = tuple(differences(self.plan, ending))
        return Finding(seed, found) if found else None


def differences(plan: Plan, ending: Ending) -> Iterator[Difference]:
    """Yield what an ending has otherwise than the plan."""
    planned = plan.ending
    for place in sorted(planned.records.keys() | ending.records.keys()):
        uid, before = planned.records.get(place, ("", {}))
        found_uid, after = ending.records.get(place, ("", {}))
        if (uid or found_uid) in plan.left_out:
            continue
        where = " ".join(("record", *place))
        if not before or not after:
            words = ("a record", NO_RECORD) if before else (NO_RECORD, "a record")
            yield Difference(uid or found_uid, where, "it", *words)
            continue
        for field in sorted(before.keys() | after.keys()):
            if before.get(field, "") != after.get(field, ""):
                yield Difference(uid, where, field, before.get(field, ""), after.get(field, ""))
    for key in sorted((planned.dead.keys() | ending.dead.keys()) - plan.unread):
        if (key in planned.dead) is not (key in ending.dead):
            yield _of_dead_letter(key, planned.dead.get(key, ""), ending.dead.get(key, ""))


def _of_dead_letter(key: ObjectKey, planned: str, found: str) -> Difference:
    return Difference("", str(key), "dead letter", planned, found)
