"""The whole producer while the API server is old, restarted, away, refusing, or short of a kind or of many objects."""

import asyncio

import httpx
import pytest

from producer import relay
from sandbox.faults import Fault
from tests.eventually import eventually
from tests.integration.producer.published import PATIENT_S, count_is, last_is, len_is, relabel
from tests.integration.producer.worlds import isvc, stop


@pytest.mark.parametrize("support", ["gate-off", "old-etcd"])
async def test_R01_without_watch_list_pages_are_read(world, support):
    world.cluster.api.watch_list = support
    for number in range(3):
        world.cluster.create(isvc(f"m{number}"))
    async with world.producing():
        world.cluster.delete("InferenceService", "ns", "m0")
        await eventually(lambda: len_is(world, "m0", 2))
    assert sorted(await world.said()) == ["created"] * 3 + ["deleted"]


async def test_R02_more_than_a_page_is_listed_completely(world):
    world.cluster.api.watch_list = "gate-off"
    for number in range(1100):
        world.cluster.create(isvc(f"m{number}"))
    async with world.producing():
        js = await world.js()
        assert (await js.stream_info("ISVC_EVENTS")).state.messages == 1102


async def test_R12_after_a_restart_of_the_api_server_everything_is_found(world):
    world.cluster.create(isvc("a"))
    world.cluster.create(isvc("b"))
    async with world.producing():
        world.cluster.delete("InferenceService", "ns", "a")
        relabel(world, "b", "7")
        world.cluster.restart()
        world.cluster.create(isvc("c"))
        await eventually(lambda: len_is(world, "a", 2), within_s=PATIENT_S)
        await eventually(lambda: len_is(world, "b", 2), within_s=PATIENT_S)
        await eventually(lambda: len_is(world, "c", 1), within_s=PATIENT_S)


async def test_R13_an_outage_of_the_api_server_costs_few_requests_and_no_event(world):
    world.cluster.create(isvc("a"))
    async with world.producing():
        world.cluster.faults.set(Fault(outage=True))
        world.cluster.restart()
        world.cluster.requests.reset()
        relabel(world, "a", "7")
        world.cluster.delete("InferenceService", "ns", "a")
        await eventually(lambda: world.cluster.faults.injected["outage"] >= 4, within_s=PATIENT_S)
        assert world.cluster.requests.total() < 20
        world.cluster.faults.clear()
        # The pause in which the outage ends may be long.
        await eventually(lambda: last_is(world, "a", "deleted"), within_s=40.0)


async def test_R15_an_absent_kind_is_waited_for_and_nothing_counts_as_deleted(world, caplog):
    crd = "llminferenceservices.serving.kserve.io"
    world.cluster.create(isvc("keep", kind="LLMInferenceService"))
    async with world.producing():
        pass
    before = await world.said("keep")
    _delete_definition(world, crd)
    await eventually(lambda: world.cluster.cluster.kinds.get(crd) is None)
    caplog.set_level("INFO")
    task = asyncio.create_task(world.run())
    try:
        await eventually(lambda: "the kind is not installed" in caplog.text)
        world.cluster.create(isvc("a"))
        await eventually(lambda: world.said("a"))
        assert await world.said("keep") == before
    finally:
        await stop(task)


def _delete_definition(world, name):
    kind = world.cluster.kind("CustomResourceDefinition")
    entry = world.cluster.store.get(kind.resource, f"/{name}")
    world.cluster.cluster.delete(kind, entry, None)


async def test_R30_a_mass_delete_is_held_until_a_second_list_agrees(world, caplog, monkeypatch):
    for number in range(20):
        world.cluster.create(isvc(f"m{number}"))
    async with world.producing():
        pass
    for number in range(8):
        world.cluster.delete("InferenceService", "ns", f"m{number}")
    monkeypatch.setattr(relay, "GUARD_AGAIN_S", 1.0)
    task = asyncio.create_task(world.run())
    try:
        await eventually(lambda: "deletes are held" in caplog.text)
        assert "deleted" not in await world.said()
        await eventually(lambda: count_is(world, "deleted", 8))
    finally:
        await stop(task)


async def test_R14_missing_rights_delete_nothing_and_show_in_readiness(world, caplog):
    world.cluster.create(isvc("a"))
    async with world.producing():
        pass
    status = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"cannot watch"}'
    forbidden = Fault(
        path=".*/inferenceservices",
        error_rate=1,
        error_status=403,
        error_body=status.decode(),
        error_headers={"Content-Type": "application/json"},
    )
    world.cluster.faults.set(forbidden)
    caplog.set_level("INFO")
    task = asyncio.create_task(world.run())
    try:
        await eventually(lambda: world.cluster.faults.injected["error"] >= 2)
        assert await world.said("a") == ["created"]
        port = next(record.health_port for record in caplog.records if hasattr(record, "health_port"))
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"http://127.0.0.1:{port}/readyz")
            assert answer.status_code == 503
            assert "watch isvc: no complete list yet: forbidden" in answer.text
            assert (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
            world.cluster.faults.clear()
            await eventually(lambda: _ready(http, port), within_s=PATIENT_S)
            metrics = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
            assert 'isvc_sync_watch_restarts_total{kind="isvc",reason="forbidden"}' in metrics
            assert 'isvc_sync_watch_connected{kind="isvc"} 1.0' in metrics
    finally:
        await stop(task)


async def _ready(http, port):
    return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
