"""The producer as a program: what it needs to start, and that it ends within a second whatever it waits for."""

import asyncio
import os
import signal
import sys

import pytest

from sandbox.faults import Fault
from tests.eventually import eventually
from tests.integration.producer.published import count_is
from tests.integration.producer.worlds import isvc, stop


async def test_R21_it_ends_within_a_second_while_watching(world):
    async with world.producing() as task:
        assert await stop(task) < 1.0


async def test_R21_it_ends_within_a_second_while_the_broker_is_paused(world):
    async with world.producing() as task:
        world.broker.pause()
        for number in range(5):
            world.cluster.create(isvc(f"m{number}"))
        took_s = await stop(task)
        world.broker.resume()
        assert took_s < 1.2  # a second, and the measurement on a busy machine


@pytest.mark.parametrize("turns", [1, 5, 20, 100, 400])
async def test_R21_it_ends_within_a_second_while_it_waits_for_nats(world, turns):
    await world.broker.terminate()
    task = asyncio.create_task(world.run())
    for _ in range(turns):  # nats-py swallows a cancellation in some of its states
        await asyncio.sleep(0)
    assert await stop(task) < 1.0
    await world.broker.start()


async def test_R21_it_ends_within_a_second_while_it_waits_for_kubernetes(world):
    world.cluster.faults.set(Fault(hang=True))
    task = asyncio.create_task(world.run())
    await eventually(lambda: world.cluster.requests.total() > 0)
    assert await stop(task) < 1.0
    world.cluster.faults.clear()


async def test_python_m_producer_needs_nothing_but_variables_and_ends_quietly_on_sigterm(world):
    world.cluster.create(isvc("a"))
    environment = {
        "PATH": os.environ["PATH"],
        "CLUSTER_NAME": "test",
        "KUBECONFIG": str(world.settings.cluster.kubeconfig),
        "NATS_URL": world.broker.url,
        "SHARDS": "4",
        "HEALTH_HOST": "127.0.0.1",
        "HEALTH_PORT": "0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "producer", env=environment, stderr=asyncio.subprocess.PIPE
    )
    await eventually(lambda: count_is(world, "created", 1))
    await eventually(lambda: _markers(world, 1))
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(5):
        _, errors = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in errors
    assert b"ERROR" not in errors


async def _markers(world, count):
    return await world.markers() == count


async def test_every_bad_setting_is_one_clear_line():
    environment = {"PATH": os.environ["PATH"], "KINDS": "pods"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "producer", env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert [line.split(b" ")[0] for line in errors.splitlines()[1:]] == [b"CLUSTER_NAME", b"KINDS"]
