"""The loop around the state machine: a wish for a new pass, at any moment."""

import asyncio

import pytest

from producer.inventory import Epoch
from producer.items import Bookmark, Lost
from producer.ledger import Holdings
from producer.reflector import Reflector, World
from shared.objects import Kind


class Nothing:
    """Metrics that count nothing, and an outbox that has nothing to say."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None

    async def settled(self):
        pass

    async def announce(self, kind, marker):
        pass


class Api:
    """The first stream breaks, all others say that there are no objects and fall silent."""

    def __init__(self):
        self.opened = 0

    async def initial(self):
        self.opened += 1
        yield []
        yield [Lost("reset") if self.opened == 1 else Bookmark("5", initial_end=True)]
        await asyncio.sleep(3600)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("at_s", "reads"),
    [
        pytest.param(5.0, 3, id="while the inventory is read"),
        pytest.param(10.01, 2, id="in a pause"),
        pytest.param(40.0, 3, id="while watching"),
    ],
)
async def test_R41_a_wish_for_a_new_pass_is_met_at_any_moment_and_ends_nothing(at_s, reads, monkeypatch):
    read = []

    async def load(kind):
        read.append(kind)
        await asyncio.sleep(10)
        return Holdings({}, None, 0)

    monkeypatch.setattr("random.random", lambda: 1.0)  # the longest pause
    reflector = Reflector(Kind.ISVC, Api(), World(Nothing(), load, Epoch(1), Nothing()))
    running = asyncio.create_task(reflector.run())
    await asyncio.sleep(at_s)
    reflector.resync("test")
    await asyncio.sleep(100)
    assert not running.done()
    assert reflector.readiness() is None
    assert len(read) == reads
    running.cancel()
    await asyncio.wait([running])
