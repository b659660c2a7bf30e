"""What the registries hold, as facts of a recording: also of one that holds nothing, or is down."""

from collections.abc import AsyncGenerator

import pytest

from consumer.environments import Place
from consumer.lookup import Lookup
from consumer.records import Record
from replay.capture import Facts
from replay.recording.registry import RegistryFacts
from replay.registry import MemoryRegistry
from shared.errors import UnreachableError
from shared.events import EventType
from tests.unit.replay.replayed import HEADER, KEY, START, captured, end, isvc

LINE = captured(1, isvc(KEY, "u-1", 50, registered_model_id="1"), EventType.CREATED)


class Held(MemoryRegistry):
    """A registry that may break off while its records are read."""

    breaks = False

    async def all_records(self) -> AsyncGenerator[Record, None]:
        async for record in super().all_records():
            yield record
        if self.breaks:
            raise UnreachableError("nobody answers")


class Registries:
    def __init__(self, registry: MemoryRegistry) -> None:
        self.lookup = Lookup(Place("r", registry, None), HEADER.plan_settings, lambda: 0.0)

    async def choose(self, _seen: object) -> Lookup:
        return self.lookup


@pytest.fixture
def registry() -> Held:
    held = Held()
    held.seed(START)
    return held


@pytest.fixture
def facts(registry) -> RegistryFacts:
    return RegistryFacts(Registries(registry), HEADER.plan_settings, lambda _: False, ())


async def ended(facts: RegistryFacts) -> list[Facts]:
    return [each async for each in facts.at_end({"u-1"})]


async def test_a_registry_that_was_read_and_holds_none_of_the_records_has_an_end_of_its_own(facts):
    await facts.before(LINE)
    assert await ended(facts) == [Facts(at="end", registry="r")]


async def test_a_registry_that_no_event_asked_for_has_no_end(facts):
    assert await ended(facts) == []


async def test_a_registry_that_breaks_off_at_the_end_has_none_and_is_told(registry, facts):
    await facts.before(LINE)
    registry.seed(end())
    assert [len(each.records) for each in await ended(facts)] == [1]
    registry.breaks = True
    assert await ended(facts) == []
    assert list(facts.troubles) == ["The registry r: what it holds is not in the capture: nobody answers."]
