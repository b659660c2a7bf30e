"""When the sweep runs, and what it does with what it found. Time is virtual."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from consumer.sweep.compare import Difference, Reason, triage
from consumer.sweep.rounds import AGAIN_AFTER_S, FIRST_AFTER_S, TICK_S, Hooks, Keeper, Sweeper
from consumer.sweep.survey import RegistryFound, Survey
from shared.errors import UnreachableError
from shared.holds import HoldServer
from shared.objects import Kind, ObjectKey

pytestmark = pytest.mark.looptime(start=0)

INTERVAL_S = 600.0


def differences(count: int, *, undeploys: bool = True) -> tuple[Difference, ...]:
    return tuple(
        Difference(ObjectKey(Kind.ISVC, "ns", f"o{number}"), f"u{number}", Reason.GONE, (), undeploys=undeploys)
        for number in range(count)
    )


def found(*those: Difference, error: str = "") -> Survey:
    return Survey((RegistryFound("a", 10, 10, error),), 10, 0, those, {Kind.ISVC: 10}, ())


class Server(HoldServer):
    """Answers nobody; says whether it would."""

    def __init__(self) -> None:
        super().__init__(None, None, "c-1", "me")  # type: ignore[arg-type]  # never asked
        self.answering = False

    async def start(self) -> None:
        self.answering = True

    async def stop(self) -> None:
        self.answering = False


class World:
    def __init__(self) -> None:
        self.owned = True
        self.survey_result: Survey | Exception = found()
        self.surveys: list[float] = []
        self.refreshes: list[float] = []
        self.looks: list[str] = []
        self.told: list[int | None] = []
        self.server = Server()
        self.on_look = lambda: None

    async def survey(self) -> Survey:
        self.surveys.append(now())
        if isinstance(self.survey_result, Exception):
            raise self.survey_result
        return self.survey_result

    async def look(self, key, refs) -> None:
        self.looks.append(key.name)
        self.on_look()

    async def refresh(self) -> None:
        self.refreshes.append(now())

    @asynccontextmanager
    async def running(self):
        hooks = Hooks(
            lambda: self.owned,
            self.refresh,
            lambda survey, _: self.told.append(None if survey is None else len(survey.differences)),
        )
        sweeper = Sweeper(self.survey, self, self.server, hooks, INTERVAL_S)
        task = asyncio.create_task(sweeper.run())
        try:
            yield sweeper
        finally:
            task.cancel()
            await asyncio.wait([task])

    @property
    def holder(self):
        return self.server._holders["sweep"]


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def world():
    return World()


async def test_the_first_sweep_comes_soon_after_the_takeover_and_then_one_each_interval(world):
    async with world.running():
        await asyncio.sleep(FIRST_AFTER_S + 2 * INTERVAL_S + 3 * TICK_S)
    assert world.surveys == [pytest.approx(FIRST_AFTER_S + n * INTERVAL_S, abs=2 * TICK_S) for n in range(3)]
    assert world.refreshes == world.surveys, "KServe's lists are read again at each sweep"


async def test_who_does_not_own_the_sweep_compares_nothing_and_answers_for_no_hold(world):
    world.owned = False
    async with world.running():
        await asyncio.sleep(INTERVAL_S + 2 * TICK_S)
        assert (world.surveys, world.looks, world.server.answering) == ([], [], False)
        assert len(world.refreshes) == 1, "the lists count in every process"
        world.owned = True
        await asyncio.sleep(FIRST_AFTER_S + 3 * TICK_S)
        assert (len(world.surveys), world.server.answering) == (1, True)
        world.owned = False
        await asyncio.sleep(2 * TICK_S)
        assert (world.server.answering, world.told) == (False, [0, None])


async def test_no_difference_is_no_look(world):
    async with world.running():
        await asyncio.sleep(INTERVAL_S)
    assert (world.looks, world.told) == ([], [0])


async def test_each_difference_becomes_one_look(world):
    world.survey_result = found(*differences(3))
    async with world.running():
        await asyncio.sleep(INTERVAL_S)
    assert world.looks == ["o0", "o1", "o2"]


async def test_no_look_is_asked_for_after_the_sweep_was_lost(world):
    world.survey_result = found(*differences(3))
    world.on_look = lambda: setattr(world, "owned", False)
    async with world.running():
        await asyncio.sleep(INTERVAL_S)
    assert world.looks == ["o0"]


@pytest.mark.parametrize("trouble", [UnreachableError("away"), found(error="away")], ids=["broker", "registry"])
async def test_a_sweep_that_could_not_see_everything_is_repeated_soon(world, trouble):
    world.survey_result = trouble
    async with world.running():
        await asyncio.sleep(FIRST_AFTER_S + 2 * TICK_S)
        world.survey_result = found()
        await asyncio.sleep(AGAIN_AFTER_S + 2 * TICK_S)
        assert len(world.surveys) == 2
        await asyncio.sleep(INTERVAL_S / 2)
        assert len(world.surveys) == 2


async def test_a_release_is_carried_out_at_once_and_only_that(world, caplog):
    world.survey_result = found(*differences(8), *differences(9, undeploys=False)[8:])
    async with world.running():
        await asyncio.sleep(FIRST_AFTER_S + 2 * TICK_S)
        assert world.looks == ["o8"]
        assert "undeployments are held" in caplog.text
        [held] = world.holder.held()
        assert (len(held.objects), held.known) == (8, 10)
        world.survey_result = found(*differences(8))
        assert world.holder.release(held)
        assert world.holder.held() == []
        await asyncio.sleep(2 * TICK_S)
    assert world.looks[1:] == [f"o{number}" for number in range(8)]


async def test_a_new_term_knows_nothing_of_a_hold_or_a_release_of_the_last_one(world):
    world.survey_result = found(*differences(8))
    async with world.running():
        await asyncio.sleep(FIRST_AFTER_S + 2 * TICK_S)
        [held] = world.holder.held()
        world.owned = False
        await asyncio.sleep(2 * TICK_S)
        assert (world.holder.held(), world.holder.release(held)) == ([], False)
        world.owned = True
        await asyncio.sleep(FIRST_AFTER_S + 3 * TICK_S)
        assert [each.objects for each in world.holder.held()] == [held.objects]
    assert world.looks == []


# --- the keeper -------------------------------------------------------------------------------------------------------


def kept(keeper: Keeper, *those: Difference) -> None:
    survey = found(*those)
    keeper.keep(survey, triage(survey.differences, survey.deployed, keeper.approved))


def test_a_hold_keeps_its_age_while_it_is_the_same():
    times = iter([10.0, 20.0, 30.0])
    keeper = Keeper(lambda: next(times))
    kept(keeper, *differences(8))
    kept(keeper, *differences(8))
    assert [each.since_s for each in keeper.held()] == [10.0]
    kept(keeper, *differences(9))
    assert [each.since_s for each in keeper.held()] == [30.0]


def test_an_approval_lasts_until_it_is_done_and_no_longer():
    keeper = Keeper(lambda: 0.0)
    kept(keeper, *differences(8))
    [held] = keeper.held()
    keeper.release(held)
    kept(keeper, *differences(8))
    assert (keeper.held(), len(keeper.approved)) == ([], 8)
    kept(keeper)
    assert keeper.approved == frozenset()
    kept(keeper, *differences(8))
    assert len(keeper.held()) == 1


def test_what_has_changed_since_it_was_shown_is_not_released():
    keeper = Keeper(lambda: 0.0)
    kept(keeper, *differences(8))
    [shown] = keeper.held()
    kept(keeper, *differences(9))
    assert not keeper.release(shown)
    assert keeper.approved == frozenset()
