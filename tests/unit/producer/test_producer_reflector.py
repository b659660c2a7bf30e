"""The loop around the state machine: a wish for a new pass, at any moment."""

import asyncio

import pytest

from producer.items import Begin, Bookmark, Lost, Refused, Watched
from producer.reflector import Reflector
from shared.objects import Kind


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


class Ear:
    """Counts nothing."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Api:
    """The first stream breaks, all others say that there are no objects and fall silent."""

    watched = Watched(Kind.ISVC)

    def __init__(self, first=Lost("reset")):  # noqa: B008 - a constant
        self.opened = 0
        self._first = first

    async def initial(self):
        self.opened += 1
        yield []
        yield [self._first if self.opened == 1 else Bookmark("5", initial_end=True)]
        await asyncio.sleep(3600)

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
