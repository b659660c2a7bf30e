"""A failing capture is made as small as the failure allows."""

import pytest

from replay.exploring.explorer import Difference, Explorer, Finding
from replay.exploring.shrinking import Shrinker
from tests.unit.replay.explored import busy, story_of, with_a_seen_set


def quiet(_: str) -> None:
    """Nobody waits."""


@pytest.fixture
def needing(monkeypatch):
    """Let an exploration fail as long as all of these sequences are in it."""

    def need(*sequences: int, only_seed: int | None = None) -> None:
        def explore(self, seed):
            there = {line.position.seq: line for line in self.story.events}
            if not set(sequences) <= there.keys() or only_seed not in {None, seed}:
                return None
            event = there[sequences[0]].event
            return Finding(seed, (Difference(event.uid, str(event.key), "state", "DEPLOYED", "UNDEPLOYED"),))

        monkeypatch.setattr(Explorer, "explore", explore)

    return need


def left(story, seeds=range(3)):
    shrunk = Shrinker(story, 2, quiet).shrink(seeds)
    return None if shrunk is None else [line.position.seq for line in shrunk.story.events]


@pytest.mark.parametrize("sequences", [(1,), (4, 10), (1, 7, 19), (60,), (1, 2, 3, 4, 5)])
def test_what_the_failure_needs_is_left_and_nothing_else(sequences, needing):
    needing(*sequences)
    assert left(story_of(*busy(6, 10))) == sorted(sequences)


def test_what_does_not_fail_is_not_shrunk(needing):
    needing(1000)
    assert left(story_of(*busy(2, 2))) is None


def test_a_seed_that_fails_is_looked_for(needing):
    needing(3, only_seed=2)
    shrunk = Shrinker(story_of(*busy(2, 4)), 2, quiet).shrink(range(5))
    assert shrunk is not None
    assert (shrunk.finding.seed, len(shrunk.story.events)) == (2, 1)


def test_another_fault_on_the_way_is_not_followed(monkeypatch):
    def explore(self, seed):
        there = {line.position.seq for line in self.story.events}
        if {1, 5} <= there:
            return Finding(seed, fault="it does not come to rest: requests are under way")
        return Finding(seed, fault="a fault in the program: of ours") if 1 in there else None

    monkeypatch.setattr(Explorer, "explore", explore)
    assert left(story_of(*busy(2, 4))) == [1, 5]


def test_a_seen_set_is_shrunk_to_two_events_at_most(monkeypatch):
    story = story_of(*busy(12, 12))
    with_a_seen_set(monkeypatch)
    shrunk = Shrinker(story, 4, quiet).shrink(range(20))
    assert shrunk is not None
    assert len(shrunk.story.events) <= 2
    assert Explorer(shrunk.story, 4).explore(shrunk.finding.seed) == shrunk.finding
