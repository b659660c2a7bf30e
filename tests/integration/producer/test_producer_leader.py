"""Two producers as processes of their own, the sandbox's Kubernetes API with a Lease, and a real broker."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sandbox.faults import Fault
from tests.cluster.processes import Guard
from tests.e2e.role import Role
from tests.integration.producer.worlds import eventually, isvc, stop

VERSION = "modelregistry.kubeflow.org/model-version-id"
TERMS = {"LEASE_DURATION_S": "2", "LEASE_RENEW_DEADLINE_S": "1.2", "LEASE_RETRY_PERIOD_S": "0.3"}
SENT = "messaging_client_sent_messages_total"
LEASES = "/apis/coordination.k8s.io/.*"
PATIENT_S = 30.0


class Racer(Role):
    """A producer that may be paused, as by a node that is out of breath."""

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    async def leads(self) -> bool:
        return await self.metric("isvc_sync_leader") == 1


@pytest.fixture
async def racers(world, tmp_path):
    """Two producers, `a` and `b`; a test starts them."""
    guard = Guard()

    def racer(name: str) -> Racer:
        environ = TERMS | {
            "CLUSTER_NAME": "test",
            "KUBECONFIG": str(world.settings.cluster.kubeconfig),
            "NATS_URL": world.broker.url,
            "SHARDS": "4",
            "HEALTH_HOST": "127.0.0.1",
            "HEALTH_PORT": "0",
            "LEASE_NAMESPACE": "default",
            "POD_NAME": name,
        }
        return Racer("producer", environ, tmp_path / f"{name}.log", guard)

    a, b = racer("a"), racer("b")
    yield a, b
    for one in (a, b):
        await one.close()
    guard.close()


async def race(world, racers) -> None:
    """Start both; the first leads, and has published what there is."""
    a, b = racers
    await a.start()
    await eventually(a.leads)
    await eventually(lambda: markers(world, 1))
    await b.start()
    assert not await b.leads()


async def markers(world, least):
    return await world.markers() >= least


def touch(world, name, value):
    world.cluster.patch("InferenceService", ("ns", name), {"metadata": {"labels": {VERSION: str(value)}}})


async def test_R37_R42_one_leads_and_the_other_is_ready_and_publishes_nothing(world, racers):
    world.cluster.create(isvc("m"))
    await race(world, racers)
    a, b = racers
    touch(world, "m", 7)
    await eventually(lambda: count(world, "m", 2))
    assert (await a.leads(), await b.leads()) == (True, False)
    assert await b.is_ready()
    assert await b.metric(SENT) == 0


async def count(world, name, wanted):
    return len(await world.events(name)) == wanted


async def test_R37_R39_after_sigterm_the_other_leads_at_its_next_look_and_misses_nothing(world, racers):
    world.cluster.create(isvc("changed"))
    world.cluster.create(isvc("deleted"))
    await race(world, racers)
    a, b = racers
    began = time.monotonic()
    assert await a.stop() == 0
    touch(world, "changed", 7)
    world.cluster.delete("InferenceService", "ns", "deleted")
    await eventually(b.leads)
    assert time.monotonic() - began < 2.0, "less than the Lease's duration: it was released"
    await eventually(lambda: count(world, "deleted", 2))
    assert await world.said("changed") == ["created", "updated"]
    assert await world.said("deleted") == ["created", "deleted"]
    assert b"Traceback" not in a.log()


async def test_R37_R39_after_kill_9_the_other_leads_when_the_lease_has_run_out(world, racers):
    world.cluster.create(isvc("m"))
    await race(world, racers)
    a, b = racers
    await a.kill()
    world.cluster.delete("InferenceService", "ns", "m")
    began = time.monotonic()
    await eventually(b.leads)
    assert time.monotonic() - began > 1.0
    await eventually(lambda: count(world, "m", 2))
    assert await world.said("m") == ["created", "deleted"]


async def test_R37_a_leader_that_was_paused_publishes_nothing_when_it_wakes(world, racers):
    for number in range(20):
        world.cluster.create(isvc(f"m{number}"))
    await race(world, racers)
    a, b = racers
    sent = await a.metric(SENT)
    a.pause()
    for value in range(5):  # they wait in the sockets of the paused one
        for number in range(20):
            touch(world, f"m{number}", value)
    await eventually(b.leads)
    for number in range(5):
        world.cluster.delete("InferenceService", "ns", f"m{number}")
    await eventually(lambda: count_said(world, "deleted", 5))
    before = len(await world.messages())
    a.resume()
    await eventually(lambda: "leadership is lost" in a.log().decode())
    await eventually(a.is_ready)
    assert (await a.leads(), await b.leads()) == (False, True)
    assert await a.metric(SENT) == sent
    assert len(await world.messages()) == before


async def count_said(world, what, wanted):
    return (await world.said()).count(what) == wanted


async def test_R40_after_an_outage_of_the_api_server_one_leads_again_and_no_event_is_lost(world, racers):
    world.cluster.create(isvc("changed"))
    world.cluster.create(isvc("deleted"))
    await race(world, racers)
    world.cluster.faults.set(Fault(outage=True))
    world.cluster.restart()
    await eventually(lambda: nobody_leads(racers))
    touch(world, "changed", 7)
    world.cluster.delete("InferenceService", "ns", "deleted")
    assert world.cluster.faults.injected["outage"] > 0
    world.cluster.faults.clear()
    await eventually(lambda: one_leads(racers))
    await eventually(lambda: count(world, "deleted", 2), within_s=PATIENT_S)
    await eventually(lambda: count(world, "changed", 2), within_s=PATIENT_S)
    assert await world.said("deleted") == ["created", "deleted"]
    assert all(one.runs for one in racers)


async def nobody_leads(racers):
    return [await one.leads() for one in racers] == [False, False]


async def one_leads(racers):
    return [await one.leads() for one in racers].count(True) == 1


async def test_R37_a_lease_that_hangs_does_not_stop_the_leader_from_stopping(world, racers):
    world.cluster.create(isvc("m"))
    await race(world, racers)
    world.cluster.faults.set(Fault(path=LEASES, hang=True))
    await eventually(lambda: nobody_leads(racers))
    touch(world, "m", 7)
    world.cluster.faults.clear()
    await eventually(lambda: one_leads(racers))
    await eventually(lambda: count(world, "m", 2))


async def test_R37_missing_rights_to_the_lease_show_in_readiness_and_end_nothing(world, racers):
    forbidden = Fault(
        path=LEASES,
        error_rate=1.0,
        error_status=403,
        error_headers={"Content-Type": "application/json"},
        error_body='{"kind":"Status","message":"leases.coordination.k8s.io is forbidden: User \\"x\\" cannot create '
        'resource \\"leases\\" in API group \\"coordination.k8s.io\\" in the namespace \\"default\\""}',
    )
    world.cluster.faults.set(forbidden)
    a, _ = racers
    await a.launch()
    await eventually(lambda: "grant it to the account isvc-sync uses" in a.log().decode())
    assert not await a.is_ready()
    world.cluster.faults.clear()
    await eventually(a.leads)
    await eventually(a.is_ready)


@asynccontextmanager
async def two_at_once(world) -> AsyncIterator[None]:
    """Two producers that know nothing of each other, in this process."""
    async with world.producing():
        second = asyncio.create_task(world.run())
        try:
            yield
        finally:
            await stop(second)


async def test_R38_two_producers_at_once_are_harmless(world):
    for number in range(10):
        world.cluster.create(isvc(f"m{number}", model="1"))
    async with two_at_once(world):
        await eventually(lambda: markers(world, 2))
        for value in range(6):
            for number in range(10):
                touch(world, f"m{number}", value)
                await asyncio.sleep(0)
        for number in range(5):
            world.cluster.delete("InferenceService", "ns", f"m{number}")
        await eventually(lambda: count(world, "m9", 7))
        await eventually(lambda: count_said(world, "deleted", 5))
    events = await world.events()
    assert len({event.id for event in events}) == len(events), "each event is stored once"
    for number in range(10):
        versions = [int(event.resource_version) for event in events if event.key.name == f"m{number}"]
        assert versions == sorted(versions)
        assert len(versions) == (8 if number < 5 else 7)
