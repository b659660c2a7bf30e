"""Leader election on a real API server at the default terms, under the ServiceAccount and the rights of `k8s/base`."""

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import NAMESPACE, ROOT, Installation
from tests.cluster.processes import Guard, wait_until
from tests.e2e.role import Role
from tests.eventually import eventually

pytestmark = pytest.mark.cluster

SENT = "messaging_client_sent_messages_total"
OUTAGE_S = 30.0


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    for name in ("kubeflow", "kserve", "racing"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))
    control_plane.kubectl("apply", "--server-side", "--kustomize", str(ROOT / "k8s/base"))
    with control_plane.client(control_plane.service_account_token(NAMESPACE, "isvc-sync-producer")) as account:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/isvc-sync-producer"
        wait_until(lambda: account.get(path).status_code in {200, 404}, "the right to the Lease")
    yield control_plane
    control_plane.kubectl("delete", "lease", "isvc-sync-producer", "--namespace", NAMESPACE, "--ignore-not-found")


@pytest.fixture
async def world(installed, tmp_path):
    installed.kubectl("delete", "lease", "isvc-sync-producer", "--namespace", NAMESPACE, "--ignore-not-found")
    async with Installation(installed, tmp_path, ("racing",)) as world:
        yield world


@pytest.fixture
async def racers(world, tmp_path):
    """Two producers, `a` which leads and `b` which follows, as two pods would be."""
    guard = Guard()
    settings = await asyncio.to_thread(world._settings, "producer")
    pod = {"LEASE_NAMESPACE": NAMESPACE, "HEALTH_PORT": "0"}
    a, b = (Role("producer", settings | pod | {"POD_NAME": name}, tmp_path / f"{name}.log", guard) for name in "ab")
    await a.start()
    await eventually(lambda: leads(a), "a leads")
    await b.start()
    yield a, b
    for one in (a, b):
        await one.close()
    guard.close()


async def leads(role: Role) -> bool:
    return await role.metric("isvc_sync_leader") == 1


def lease(plane: ControlPlane):
    text = plane.kubectl("get", "lease", "isvc-sync-producer", "--namespace", NAMESPACE, "--output", "json")
    return json.loads(text)["spec"]


async def published(role: Role, least: int) -> bool:
    return await role.metric(SENT) >= least


async def test_R37_under_the_rights_of_the_base_one_leads_and_hands_over_on_sigterm(world, racers, record_property):
    a, b = racers
    spec = lease(world.plane)
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("a", 0, 15)
    assert await b.is_ready()
    assert not await leads(b)
    began = time.monotonic()
    assert await a.stop() == 0
    ended_s = time.monotonic() - began
    assert "holderIdentity" not in lease(world.plane) or await leads(b)
    await world.create("racing", "found")
    await eventually(lambda: leads(b), "b leads")
    took_s = time.monotonic() - began
    await eventually(lambda: published(b, 1), "b publishes")
    record_property(
        "figures", f"SIGTERM: the old leader ended after {ended_s:.2f} s, the new one leads after {took_s:.2f} s"
    )
    assert ended_s < 2
    assert took_s < 4
    assert (lease(world.plane)["holderIdentity"], lease(world.plane)["leaseTransitions"]) == ("b", 1)


async def test_R37_R39_after_kill_9_the_follower_leads_and_finds_what_happened_meanwhile(
    world, racers, record_property
):
    a, b = racers
    await a.kill()
    began = time.monotonic()
    await world.create("racing", "found")
    await eventually(lambda: leads(b), "b leads", within_s=20)
    took_s = time.monotonic() - began
    await eventually(lambda: published(b, 1), "b publishes")
    published_s = time.monotonic() - began
    record_property(
        "figures", f"kill -9: the next one leads after {took_s:.2f} s, and has published after {published_s:.2f} s"
    )
    assert 12 < took_s < 18


async def test_R40_after_thirty_seconds_without_an_api_server_one_leads_again(world, racers, record_property):
    plane = world.plane
    await asyncio.to_thread(plane.kill_api_server)
    began = time.monotonic()
    try:
        await eventually(lambda: nobody(racers), "nobody leads")
        stopped_s = time.monotonic() - began
        await asyncio.sleep(OUTAGE_S - stopped_s)
    finally:
        await asyncio.to_thread(plane.restart_api_server)
    began = time.monotonic()
    await eventually(lambda: one(racers), "one leads", within_s=10)
    took_s = time.monotonic() - began
    await world.create("racing", "after")
    await eventually(lambda: either_published(racers), "one publishes", within_s=40)
    record_property(
        "figures", f"API server gone: leadership ended after {stopped_s:.2f} s; back: one leads after {took_s:.2f} s"
    )
    assert stopped_s <= 10.5
    assert all(racer.runs for racer in racers)


async def nobody(racers: tuple[Role, Role]) -> bool:
    return [await leads(one) for one in racers] == [False, False]


async def one(racers: tuple[Role, Role]) -> bool:
    return [await leads(one) for one in racers].count(True) == 1


async def either_published(racers: tuple[Role, Role]) -> bool:
    return any([await published(one, 1) for one in racers])
