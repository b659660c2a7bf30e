"""The model label goes A -> B -> C, is taken away, and the object is deleted; the consumer is killed at every step.

Every step: before each of its requests, with it on the wire, and with it on the wire for so long that the next owner
comes first.
"""

import math

import pytest

from replay.exploring.listening import listening
from shared.objects import Kind, ObjectKey
from tests.simulation.consumer.claims import Judge
from tests.simulation.consumer.cluster import Content
from tests.simulation.consumer.wire import Wire
from tests.simulation.consumer.world import World

KEY = ObjectKey(Kind.ISVC, "n1", "a")
A, B, C = "1", "2", "3"
LATE_S = 4.5  # below a request's timeout, above the start of the next owner
NOBODY = ""
STORIES = {
    "changed twice": ([A, B, C], C),
    "changed twice, then taken away": ([A, B, C, NOBODY], NOBODY),
    "there and back": ([A, B, A], A),
}
KILLS = ("before", "on the wire", "late")


class Killer:
    """Kills the consumer at its `at`-th request, counted over all of its lives. `requests` is how many there were."""

    def __init__(self, at: int, how: str) -> None:
        self.requests = 0
        self.struck = False
        self._at = at
        self._how = how

    async def ask(self, wire, server, serve, refuse):
        self.requests += 1
        if self.requests != self._at:
            return await REAL(wire, server, serve, refuse)
        self.struck = True
        world = wire.world
        world.loop.call_soon(world.died, wire.process)
        if self._how == "before":
            return await world.loop.create_future()
        if self._how == "late":
            world.under_way += 1
            world.loop.call_later(LATE_S, wire._arrive, serve, world.loop.create_future(), math.inf)
            return await world.loop.create_future()
        return await REAL(wire, server, serve, refuse)


REAL = Wire.ask


def lived(models, patch, *, delete, pause_s, at=0, how=""):
    """Live a story and return its killer; `at` 0 kills nobody."""
    killer = Killer(at, how)

    async def ask(wire, *args):
        return await killer.ask(wire, *args)

    patch.setattr(Wire, "ask", ask)
    world = World(frozenset())
    world.chance.begin(0)
    with listening() as ear:
        try:
            world.create(KEY, Content(model=models[0]))
            for model in models[1:]:
                world.loop.run_for(pause_s)
                world.change(KEY, model=model)
            world.loop.run_for(pause_s)
            if delete:
                world.delete(KEY)
            world.come_to_rest()
            deployed = sorted(said.field("registeredModelId") for said in world.registry.rows() if said.deployed)
            Judge(world, swept=False).leaves_something()
            world.sweep()
            Judge(world, swept=True).leaves_something()
            assert not ear.heard
            swept = sorted(said.field("registeredModelId") for said in world.registry.rows() if said.deployed)
        finally:
            world.close()
    return killer, deployed if not world.overtaken else swept, swept


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 10.0])
@pytest.mark.parametrize("delete", [False, True], ids=["lives", "deleted"])
@pytest.mark.parametrize(("models", "last"), STORIES.values(), ids=STORIES)
def test_only_the_present_model_is_deployed_whenever_the_consumer_is_killed(models, last, delete, pause_s, monkeypatch):
    requests = lived(models, monkeypatch, delete=delete, pause_s=pause_s)[0].requests
    expected = [last] if last and not delete else []
    for how in KILLS:
        for at in range(1, requests + 1):
            killer, deployed, swept = lived(models, monkeypatch, delete=delete, pause_s=pause_s, at=at, how=how)
            assert killer.struck
            assert (deployed, swept) == (expected, expected), f"killed {how} request {at}"
