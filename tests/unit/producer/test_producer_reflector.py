"""The loop around the state machine: a wish for a new pass, at any moment, and who keeps a watch from going on."""

import asyncio

import pytest

from producer import reflector as reflector_module
from producer.hearing import SILENT_S
from producer.items import Begin, Bookmark, Lost, Refused, Seen, Watched
from producer.reflector import FRESH_S, Reflector
from shared.objects import Kind
from tests.unit.producer.observed import observed


class Store:
    """Takes ten seconds to get ready for a pass, and notes how often."""

    def __init__(self):
        self.passes = []

    def __getattr__(self, name):
        return lambda *args, **kwargs: None

    async def settled(self):
        self.passes.append(asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        return Begin()

    async def end_pass(self, version, doubtful):
        pass

    async def observe(self, found, *, live):
        await asyncio.sleep(100)  # no room

    def resume_at(self, position):
        return position


class Ear:
    """Counts nothing."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Api:
    """The first stream breaks, all others say that there are no objects and then a bookmark a minute."""

    watched = Watched(Kind.ISVC)

    def __init__(self, first=Lost("reset")):  # noqa: B008 - a constant
        self.opened = 0
        self._first = first

    async def initial(self):
        self.opened += 1
        yield []
        yield [self._first if self.opened == 1 else Bookmark("5", initial_end=True)]
        while True:
            await asyncio.sleep(60)
            yield [Bookmark("5")]

    async def page(self, token):
        return Refused(503)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("at_s", "passes"),
    [
        pytest.param(5.0, 3, id="while the inventory is read"),
        pytest.param(10.01, 2, id="in a pause"),
        pytest.param(40.0, 3, id="while watching"),
    ],
)
async def test_R41_a_wish_for_a_new_pass_is_met_at_any_moment_and_ends_nothing(at_s, passes, monkeypatch):
    monkeypatch.setattr("random.random", lambda: 1.0)  # the longest pause
    store = Store()
    reflector = Reflector(Api(), store, Ear())
    running = asyncio.create_task(reflector.run())
    await asyncio.sleep(at_s)
    reflector.resync("test")
    await asyncio.sleep(100)
    assert not running.done()
    assert reflector.readiness() is None
    assert reflector.follows
    assert len(store.passes) == passes
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.looptime
async def test_R01_whether_the_state_can_be_streamed_is_found_out_anew_by_a_probe_only():
    api = Api(first=Refused(422))
    reflector = Reflector(api, Store(), Ear())
    running = asyncio.create_task(reflector.run())
    await asyncio.sleep(60)
    reflector.resync("test")
    await asyncio.sleep(60)
    assert reflector.pages_only
    assert api.opened == 1
    reflector.resync("test", probe=True)
    await asyncio.sleep(60)
    assert api.opened == 2
    assert reflector.follows
    running.cancel()
    await asyncio.wait([running])


class Following:
    """A reflector whose stream goes on, after an empty state, with what `said` yields."""

    watched = Watched(Kind.ISVC)

    def __init__(self, said):
        self.watches = []
        self._said = said
        self.reflector = Reflector(self, Store(), Ear())

    async def __aenter__(self):
        self._running = asyncio.create_task(self.reflector.run())
        await asyncio.sleep(11)  # the store is ready after ten
        return self.reflector

    async def __aexit__(self, *raised):
        self._running.cancel()
        await asyncio.wait([self._running])

    async def initial(self):
        yield []
        yield [Bookmark("5", initial_end=True)]
        async for batch in self._said():
            yield batch

    async def watch(self, resume_at, position):
        self.watches.append(asyncio.get_running_loop().time())
        yield []
        await asyncio.sleep(3600)


def every_second(batch):
    async def said():
        while True:
            await asyncio.sleep(1)
            yield batch

    return said


@pytest.fixture
async def virtual_clock(monkeypatch):
    """Readiness is read from another thread, and goes by the clock of the process."""

    class Clock:
        monotonic = staticmethod(asyncio.get_running_loop().time)

    monkeypatch.setattr(reflector_module, "time", Clock)


@pytest.mark.looptime
async def test_R42_only_events_and_bookmarks_show_that_a_watch_is_alive(virtual_clock, monkeypatch):
    monkeypatch.setattr("producer.hearing.SILENT_S", 3600.0)
    async with Following(every_second([])) as reflector:
        await asyncio.sleep(FRESH_S - 2)
        assert reflector.readiness() is None
        await asyncio.sleep(4)
        assert "silent" in reflector.readiness()
        assert reflector.age_s() > FRESH_S


@pytest.mark.looptime
async def test_R42_a_watch_that_brings_bookmarks_is_ready(virtual_clock):
    async with Following(every_second([Bookmark("5")])) as reflector:
        await asyncio.sleep(400)
        assert reflector.readiness() is None
        assert reflector.age_s() < 2


@pytest.mark.looptime
async def test_R10_a_watch_of_empty_lines_is_opened_again():
    following = Following(every_second([]))
    async with following:
        await asyncio.sleep(SILENT_S + 1)
        assert following.watches == [pytest.approx(10 + SILENT_S)]


@pytest.mark.looptime
async def test_R41_a_watch_is_listening_while_only_the_server_is_waited_for():
    async with Following(every_second([Bookmark("5")])) as reflector:
        await asyncio.sleep(200)
        assert reflector.listening_s() == pytest.approx(201)


@pytest.mark.looptime
async def test_R41_a_watch_whose_store_has_no_room_is_not_listening():
    async def one_event():
        yield [Seen(observed(version=6))]
        while True:
            await asyncio.sleep(60)
            yield [Bookmark("6")]

    async with Following(one_event) as reflector:
        await asyncio.sleep(50)
        assert reflector.listening_s() == 0
        await asyncio.sleep(100)
        assert 0 < reflector.listening_s() < 60


@pytest.mark.looptime
async def test_R41_a_watch_that_backs_off_is_not_listening():
    async def refused():
        await asyncio.sleep(1)
        yield [Refused(503, in_stream=True)]

    async with Following(refused) as reflector:
        await asyncio.sleep(60)
        assert 0 < reflector.listening_s() < 60
