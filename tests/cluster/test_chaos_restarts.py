"""The API server is killed, loses a feature and loses its history, under a stream of changes."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from shared.events import EventType
from shared.objects import Kind
from tests.cluster.chaos_world import CHANGES, chaos, installed
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import administrator
from tests.cluster.remote_kserve import API_VERSIONS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[ControlPlane]:
    with installed(tmp_path_factory.mktemp("chaos-restarts")) as plane:
        yield plane


@pytest.fixture
async def world(plane, tmp_path):
    async with chaos(plane, tmp_path) as world:
        yield world


async def test_R12_R27_after_kill_9_of_the_api_server_all_is_said_also_of_what_vanished(world, record_property):
    gone: list[str] = []

    async def fault():
        await asyncio.to_thread(world.plane.kill_api_server)
        gone.extend(await world.vanish(3))
        await asyncio.to_thread(world.plane.restart_api_server)

    took_s = await world.survive(fault)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")
    for kind in Kind:
        assert await world.restarts("expired", kind) >= 1
    assert world.writer.refused["ConnectError"] > 0
    assert {world.stream.last_of[uid].type for uid in gone} == {EventType.DELETED}
    assert await world.tombstones_of_the_living() == []


async def restart(plane: ControlPlane, *flags: str) -> None:
    """Kill the API server, which would let its watches end slowly, and start it with these flags."""
    await asyncio.to_thread(plane.kill_api_server)
    await asyncio.to_thread(plane.restart_api_server, flags)


async def test_R01_when_watch_list_is_switched_off_pages_are_read(world, record_property):
    async def fault():
        await asyncio.to_thread(world.plane.kill_api_server)
        await world.vanish(1)  # so that the position of both watches is an old one, and a list is needed
        await asyncio.to_thread(world.plane.restart_api_server, ["--feature-gates=WatchList=false"])

    try:
        took_s = await world.survive(fault)
    finally:
        await restart(world.plane)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")
    for kind in Kind:
        assert await world.restarts("expired", kind) >= 1
        assert await world.restarts("refused", kind) == 1, "asked once, and remembered"
    assert await world.tombstones_of_the_living() == []
    await world.agrees(60.0)


async def test_R12_changes_that_etcd_has_forgotten_before_they_were_read_are_found_by_a_list(world, record_property):
    """Without its watch cache the API server has etcd's history only. The producer stands still until that is gone."""
    refused: list[str] = []

    async def fault():
        version = await newest(world.plane, Kind.ISVC)
        os.kill(world.producer.pid, signal.SIGSTOP)
        try:
            await restart(world.plane, "--watch-cache=false")
            await world.writer.accepts(CHANGES)
            await asyncio.to_thread(world.plane.compact_etcd)
            refused.append(await first_line(world.plane, Kind.ISVC, version))
        finally:
            os.kill(world.producer.pid, signal.SIGCONT)

    try:
        took_s = await world.survive(fault)
    finally:
        await restart(world.plane)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")
    assert "The resourceVersion for the provided watch is too old." in refused[0]
    for kind in Kind:
        assert await world.restarts("expired", kind) >= 1
    assert await world.tombstones_of_the_living() == []
    await world.agrees(60.0)


async def newest(plane: ControlPlane, kind: Kind) -> str:
    async with administrator(plane) as admin:
        answer = await admin.get(f"/apis/{API_VERSIONS[kind]}/{kind.plural}", params={"limit": 1})
    return str(answer.raise_for_status().json()["metadata"]["resourceVersion"])


async def first_line(plane: ControlPlane, kind: Kind, version: str) -> str:
    """Return the first line of a watch that begins at a version."""
    params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "5"}
    path = f"/apis/{API_VERSIONS[kind]}/{kind.plural}"
    async with administrator(plane) as admin, admin.stream("GET", path, params=params) as answer:
        return await anext(answer.aiter_lines(), "")
