"""SIGTERM to a real producer in each of its states: it ends within a second, with exit code 0, and quietly."""

import time

import pytest

from producer.publisher import WINDOW
from sandbox.faults import Fault
from tests.e2e.role import Role
from tests.eventually import eventually
from tests.integration.producer.real_process import real_producer
from tests.integration.producer.worlds import isvc

STOP_S = 2.0  # a second is promised; the other one is for a machine that does other things, too
LISTS = ".*/(llm)?inferenceservices"


@pytest.fixture
async def producer(world, tmp_path):
    async with real_producer(world, tmp_path / "producer.log") as role:
        yield role


async def waiting_for_the_api_server(world, producer):
    world.cluster.faults.set(Fault(hang=True))
    await producer.launch()
    await eventually(lambda: world.cluster.faults.injected["hang"], "a request hangs")


async def listing(world, producer):
    world.cluster.faults.set(Fault(path=LISTS, hang=True))
    await producer.launch()
    await eventually(lambda: world.cluster.faults.injected["hang"] >= 2, "both lists hang")


async def watching(world, producer):
    await producer.start()


async def backing_off(world, producer):
    """After the fourth failure the mean pause is four seconds."""
    world.cluster.faults.set(Fault(path=LISTS, outage=True))
    await producer.launch()
    await eventually(
        lambda: world.cluster.faults.injected["outage"] >= 8, "both lists are refused again and again", 30.0
    )


async def waiting_for_a_broker_that_was_never_there(world, producer):
    await world.broker.terminate()
    await producer.launch()
    await eventually(lambda: said(producer, "NATS"), "it waits for NATS")


async def watching_while_the_broker_is_away(world, producer):
    await producer.start()
    await world.broker.kill()
    for number in range(20):
        world.cluster.create(isvc(f"m{number}"))
    await eventually(lambda: said(producer, "NATS connection"), "it has noticed")


async def holding_a_full_window(world, producer):
    await producer.start()
    world.broker.pause()
    for number in range(WINDOW + 100):
        world.cluster.create(isvc(f"m{number}"))
    await eventually(lambda: objects(producer), "the window is full")
    assert await objects(producer) < WINDOW + 100, "it does not read on"


async def objects(producer: Role) -> float:
    """Return how many objects it has seen, once these are a whole window."""
    seen = await producer.metric("isvc_sync_objects", state="living")
    return seen if seen >= WINDOW else 0


def said(producer: Role, what: str) -> bool:
    return any(what in entry["message"] for entry in producer.entries())


@pytest.mark.parametrize(
    "state",
    [
        waiting_for_the_api_server,
        listing,
        watching,
        backing_off,
        waiting_for_a_broker_that_was_never_there,
        watching_while_the_broker_is_away,
        holding_a_full_window,
    ],
    ids=lambda state: state.__name__,
)
async def test_R21_sigterm_ends_a_process_within_a_second_and_quietly_while(world, producer, state, record_property):
    await state(world, producer)
    began = time.monotonic()
    code = await producer.stop()
    took_s = time.monotonic() - began
    record_property("figures", f"ended after {took_s:.2f} s")
    assert code == 0
    assert took_s < STOP_S
    assert b"Traceback" not in producer.log()
    assert producer.entries("ERROR") == []
    assert producer.entries()[-1]["message"] == "stopped by a signal"
