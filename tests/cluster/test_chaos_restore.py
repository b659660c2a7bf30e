"""etcd is put back to an older copy under changes: numbers that were given out are given out again (docs/producer.md,
Epoch)."""

import asyncio
from collections.abc import Iterator

import pytest

from shared.events import EventType
from tests.cluster.chaos_world import chaos, installed
from tests.cluster.chaos_writer import Writer, path_of
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[ControlPlane]:
    with installed(tmp_path_factory.mktemp("chaos-restore")) as plane:
        yield plane


@pytest.fixture
async def world(plane, tmp_path):
    async with chaos(plane, tmp_path) as world:
        yield world


async def test_R16_after_etcd_was_put_back_everything_is_compared_in_a_new_epoch(world, tmp_path, record_property):
    copy = await asyncio.to_thread(world.plane.copy_etcd, tmp_path / "etcd-copy")
    before = await world.truth()
    await world.writer.burst(400)  # so many revisions will be forgotten, more than are made until the producer looks
    await world.agrees(15.0)
    forgotten = await world.truth()
    [epoch] = {event.epoch for event in world.stream.events}

    async def fault():
        await asyncio.to_thread(world.plane.put_back_etcd, copy)
        now = await world.truth()
        assert sum(now.get(key) == object_ for key, object_ in before.items()) > len(before) // 2, "it is the old copy"

    took_s = await world.survive(fault, within_s=60.0)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")
    truth = await world.truth()
    assert {world.stream.last[key].epoch > epoch for key in truth} == {True}
    uids = {object_.uid for object_ in truth.values()}
    unmade = [object_.uid for object_ in forgotten.values() if object_.uid not in uids]
    assert unmade, "some were made after the copy"
    assert {world.stream.last_of[uid].type for uid in unmade} == {EventType.DELETED}
    assert await world.tombstones_of_the_living(), "some were deleted after the copy"


async def test_R16_numbers_that_overtake_the_old_ones_soon_after_the_restore_hide_nothing(
    world, tmp_path, record_property
):
    """Twice as many changes as were forgotten, all of one object: soon the old position is no future one any more."""
    copy = await asyncio.to_thread(world.plane.copy_etcd, tmp_path / "etcd-copy")
    await world.writer.burst(400)
    await world.agrees(15.0)

    async def fault():
        await asyncio.to_thread(world.plane.put_back_etcd, copy)
        await change_one(world.writer, 800)

    took_s = await world.survive(fault)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")


async def change_one(writer: Writer, times: int) -> None:
    key = next(key for key in writer._keys if key not in writer._away)
    for number in range(times):
        body = {"metadata": {"labels": {"modelregistry.kubeflow.org/model-version-id": f"{number}"}}}
        await writer._patch("label", key, path_of(key), body)
