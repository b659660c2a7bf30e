"""The whole producer while the broker dies, is frozen, is full, forgets, or belongs to another cluster."""

import asyncio

import msgspec
import pytest

from sandbox import cluster as sandbox_cluster
from shared.errors import RefusedToStartError
from tests.eventually import eventually
from tests.integration.producer.published import PATIENT_S, count_is, label_is, last_is, relabel
from tests.integration.producer.worlds import MODEL, isvc, stop


async def test_an_object_too_large_for_the_broker_is_published_truncated_and_others_go_on(world):
    containers = [{"name": f"c{number}", "image": "registry/image" * 60} for number in range(400)]
    async with world.producing():
        world.cluster.create(isvc("large", model="4", predictor={"containers": containers}))
        world.cluster.create(isvc("small"))
        await eventually(lambda: world.said("small"))
        await eventually(lambda: world.said("large"))
    [event] = await world.events("large")
    assert (event.truncated, event.models) == (True, ("4",))
    [message] = [m for m in await world.messages() if m.subject.endswith(".large")]
    assert msgspec.json.decode(message.data)["metadata"]["labels"] == {MODEL: "4"}


async def test_another_cluster_under_our_name_refuses_to_start(world, tmp_path):
    world.cluster.create(isvc("a"))
    async with world.producing():
        pass
    async with sandbox_cluster.serve() as other:
        kubeconfig = other.write_kubeconfig(tmp_path / "other")
        ids = [one.get("Namespace", "", "kube-system")["metadata"]["uid"] for one in (world.cluster, other)]
        wrong = msgspec.structs.replace(
            world.settings, cluster=msgspec.structs.replace(world.settings.cluster, kubeconfig=str(kubeconfig))
        )
        with pytest.raises(RefusedToStartError) as refusal:
            async with asyncio.timeout(10):
                await world.run(wrong)
    for said in (*ids, "CLUSTER_NAME", "isvc.test.>"):
        assert said in str(refusal.value)


async def test_R31_R32_the_broker_dies_under_a_thousand_changes(world):
    for number in range(50):
        world.cluster.create(isvc(f"m{number}"))
    async with world.producing():
        for number in range(1000):
            relabel(world, f"m{number % 50}", str(number))
            if number in {200, 600}:
                await world.broker.kill()
                await world.broker.start()
            if number % 20 == 0:
                await asyncio.sleep(0)
        for number in range(10):
            world.cluster.delete("InferenceService", "ns", f"m{number}")
        for number in range(10):
            await eventually(lambda name=f"m{number}": last_is(world, name, "deleted"), within_s=30.0)
        for number in range(10, 50):
            await eventually(lambda n=number: label_is(world, f"m{n}", str(950 + n)), within_s=30.0)
    ids = [event.id for event in await world.events()]
    assert len(ids) == len(set(ids))


async def test_R32_while_the_broker_is_paused_nothing_is_lost(world):
    for number in range(20):
        world.cluster.create(isvc(f"m{number}"))
    async with world.producing():
        world.broker.pause()
        for number in range(400):
            relabel(world, f"m{number % 20}", str(number))
        world.cluster.delete("InferenceService", "ns", "m0")
        await asyncio.sleep(0.3)  # the producer reads, sends into the pause, and stops reading
        world.broker.resume()
        await eventually(lambda: last_is(world, "m0", "deleted"), within_s=30.0)
        await eventually(lambda: label_is(world, "m19", "399"), within_s=30.0)


async def test_a_stream_that_was_made_anew_is_filled_again_in_an_epoch_of_its_own(world):
    for name in ("a", "b"):
        world.cluster.create(isvc(name))
    async with world.producing():
        [epoch] = {event.epoch for event in await world.events()}
        js = await world.js()
        await js.delete_stream("ISVC_EVENTS")
        await world.broker.restart()
        await eventually(lambda: count_is(world, "created", 2), within_s=PATIENT_S)
        assert min(event.epoch for event in await world.events()) > epoch


async def test_a_list_is_not_announced_before_a_full_stream_has_taken_all_of_it(world, caplog):
    caplog.set_level("INFO")
    for number in range(1200):
        world.cluster.create(isvc(f"m{number}"))
    small = msgspec.structs.replace(world.settings.broker, stream_max_bytes=1024 * 1024)
    task = asyncio.create_task(world.run(msgspec.structs.replace(world.settings, broker=small)))
    try:
        await eventually(lambda: "the broker keeps refusing" in caplog.text)
        complete = [record.kind for record in caplog.records if record.getMessage() == "list is complete"]
        assert "isvc" in complete
        js = await world.js()
        config = (await js.stream_info("ISVC_EVENTS")).config
        assert await world.last_marker("isvc") is None
        config.max_bytes = 64 * 1024 * 1024
        await js.update_stream(config)
        await eventually(lambda: world.last_marker("isvc"))
        assert (await js.stream_info("ISVC_EVENTS")).state.messages == 1202
    finally:
        await stop(task)
