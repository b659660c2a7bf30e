"""Make a failing capture small: take away what the failure does not need, objects first, then events, then facts. Pure.

It is the delta debugging of Zeller (ddmin): halves, then quarters, and so on down to single events. What is left fares
as before, since the scheduler chooses by what a thing is; where it does not, a few other seeds are tried.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from replay.capture import Captured, Facts
from replay.exploring.explorer import Explorer, Finding
from replay.exploring.needing import Needs
from replay.exploring.story import Story

T = TypeVar("T")
_ALONE_MAX: Final = 8  # objects with a difference that are tried alone, before all are halved
_TRIES: Final = (4, 60)  # seeds for one part: at least, at most,
_TRIED_EVENTS: Final = 400  # and else so many that they have so many events together

Tell = Callable[[str], None]
"""Tells somebody who waits how it goes on."""


class Shrunk(msgspec.Struct, frozen=True):
    """A part of a capture that fails, as the exploration of `finding.seed` shows.

    `facts`: what is left of each line of facts, None for nothing.
    """

    story: Story
    finding: Finding
    explorations: int
    facts: tuple[Facts | None, ...] = ()


class Shrinker:
    """Shrinks one story. `seeds`: those that are tried, the first one that fails is followed."""

    def __init__(self, story: Story, workers: int, tell: Tell) -> None:
        self._story = story
        self._workers = workers
        self._tell = tell
        self._explorations = 0
        self._finding: Finding | None = None

    def shrink(self, seeds: Iterable[int]) -> Shrunk | None:
        """Return what is left, None when no seed fails."""
        events = list(self._story.events)
        self._finding = self._first(self._story, seeds)
        if self._finding is None:
            return None
        self._tell(f"seed {self._finding.seed} fails with {len(events)} events: {self._finding.sentence}.")
        events = self._few_objects(events, self._finding)
        events = self._least(events, lambda each: each)
        story, facts = self._few_facts(self._story.only(events))
        return Shrunk(story, self._finding, self._explorations, facts)

    def _few_facts(self, story: Story) -> tuple[Story, tuple[Facts | None, ...]]:
        """Return the story with the facts that its events can ask for, where it fails with these as well."""
        facts = Needs(story).of(story.facts)
        fewer = replace(story, facts=tuple(each for each in facts if each is not None))
        if fewer.facts != story.facts and not self._fails(fewer):
            return story, story.facts
        return fewer, facts

    def _few_objects(self, events: list[Captured], finding: Finding) -> list[Captured]:
        """Return the events of one object that fails alone, or else of as few objects as it takes."""
        objects: dict[str, list[Captured]] = {}
        for line in events:
            objects.setdefault(str(line.event.key), []).append(line)
        suspects = [name for name, lines in objects.items() if _is_about(finding, name, lines)]
        for name in sorted(suspects, key=lambda each: len(objects[each]))[:_ALONE_MAX]:
            if self._fails(self._story.only(objects[name])):
                self._tell(f"{name} fails alone, with {len(objects[name])} events.")
                return objects[name]
        groups = self._least(list(objects.values()), lambda chosen: sorted(chain(*chosen), key=_place(events)))
        return sorted(chain(*groups), key=_place(events))

    def _least(self, items: list[T], events_of: Callable[[Sequence[T]], Sequence[Captured]]) -> list[T]:
        """Return a part of what fails, of which nothing more can be left out: ddmin."""
        parts = 2
        while len(items) > 1:
            size = -(-len(items) // parts)
            chunks = [items[at : at + size] for at in range(0, len(items), size)]
            rests = [[*chain(*chunks[:at], *chunks[at + 1 :])] for at in range(len(chunks))]
            smaller = next(
                (each for each in self._candidates(chunks, rests) if self._fails(self._story.only(events_of(each)))),
                None,
            )
            if smaller is not None:
                parts = 2 if any(smaller is each for each in chunks) else max(parts - 1, 2)
                items = smaller
                enough = len(events_of(items))
                self._tell(f"{enough} event{' is' if enough == 1 else 's are'} enough.")
            elif size == 1:
                break
            else:
                parts = min(parts * 2, len(items))
        return items

    @staticmethod
    def _candidates(chunks: list[list[T]], rests: list[list[T]]) -> list[list[T]]:
        """Return what to try next; with two chunks, each is the rest of the other."""
        return chunks if len(chunks) == 2 else [*chunks, *rests]

    def _fails(self, part: Story) -> bool:
        """Whether a part fails as the whole did, with the seed that did or with one of a few others."""
        assert self._finding is not None, "it is the failure that is followed"
        least, most = _TRIES
        tries = min(max(_TRIED_EVENTS // max(len(part.events), 1), least), most)
        finding = self._first(part, dict.fromkeys((self._finding.seed, *range(tries))))
        if finding is None:
            return False
        self._finding = finding
        return True

    def _first(self, part: Story, seeds: Iterable[int]) -> Finding | None:
        explorer = Explorer(part, self._workers)
        for seed in seeds:
            self._explorations += 1
            finding = explorer.explore(seed)
            if finding is not None and (self._finding is None or _alike(finding, self._finding)):
                return finding
        return None


def _is_about(finding: Finding, name: str, lines: list[Captured]) -> bool:
    return any(line.event.uid in finding.uids for line in lines) or any(
        each.where == name for each in finding.differences
    )


def _alike(finding: Finding, other: Finding) -> bool:
    """Whether two findings show the same fault: neither ended, or a difference of one kind."""
    if finding.fault or other.fault:
        return finding.fault.split(":")[0] == other.fault.split(":")[0]
    return bool({each.field for each in finding.differences} & {each.field for each in other.differences})


def _place(events: list[Captured]) -> Callable[[Captured], int]:
    places = {id(line): place for place, line in enumerate(events)}
    return lambda line: places[id(line)]
