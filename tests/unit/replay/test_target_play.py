"""Which lines of a capture are played, in which order, and which of them wait for their time."""

from replay.capture import Action, Captured, Facts
from replay.pacing import Bound
from replay.target.play import Selection, play
from tests.unit.replay.replayed import KEY, START, captured, end, isvc, story


class Recorder:
    """A stage and a pace that remember."""

    def __init__(self) -> None:
        self.happened: list[object] = []

    async def until(self, at_s: float) -> None:
        self.happened.append("waited")

    async def facts(self, facts: Facts) -> None:
        self.happened.append(facts)

    async def event(self, captured: Captured) -> None:
        self.happened.append(captured.position.seq)


async def played(lines, selection=Selection(), **more):  # noqa: B008 - it is frozen
    recorder = Recorder()
    return await play(lines, selection, recorder, recorder, **more), recorder.happened


async def test_facts_and_events_are_played_in_their_order():
    _, happened = await played([START, *story()])
    assert happened == [START, "waited", 11, "waited", 12, "waited", 13, "waited", 14, "waited", 15]


async def test_what_the_registry_held_in_the_end_is_kept_and_not_played():
    result, happened = await played([START, end(), Action(object="isvc/a/b", kind="ack")])
    assert (happened, result.expected) == ([START], [end()])


async def test_the_initial_state_is_there_at_once():
    initial = captured(10, isvc(KEY, "u-1", 49), initial=True)
    _, happened = await played([initial, story()[0]])
    assert happened == [10, "waited", 11]


async def test_what_is_before_from_is_played_without_waiting():
    _, happened = await played(story(), Selection(since=Bound(seq=14)))
    assert happened == [11, 12, 13, "waited", 14, "waited", 15]


async def test_until_ends_it_after_the_event_that_stands_there():
    result, happened = await played(story(), Selection(until=Bound(seq=12)))
    assert happened == ["waited", 11, "waited", 12]
    assert not result.whole


async def test_a_file_is_read_to_its_end_even_so():
    lines = iter([*story(), end()])
    await played(lines, Selection(until=Bound(seq=12)))
    assert next(lines, None) is None


async def test_only_plays_the_named_objects():
    result, happened = await played(story(), Selection(only=frozenset({("team-a", "other")})))
    assert happened == ["waited", 14]
    assert result.objects == {story()[3].event.key: {"u-2"}}
    assert result.whole


async def test_who_is_asked_may_end_it():
    async def ask(captured: Captured) -> bool:
        return captured.position.seq < 12

    result, happened = await played(story(), ask=ask)
    assert happened == ["waited", 11, "waited"]
    assert (result.events, result.whole) == (1, False)
