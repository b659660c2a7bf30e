"""The whole producer against a real broker and the sandbox's Kubernetes API."""

import asyncio
import os
import signal
import sys

import httpx
import msgspec
import pytest

from producer import relay
from sandbox import cluster as sandbox_cluster
from sandbox.faults import Fault
from shared.errors import RefusedToStartError
from shared.events import decode
from tests.integration.producer.worlds import MODEL, eventually, isvc, stop

PATIENT_S = 20.0
VERSION = "modelregistry.kubeflow.org/model-version-id"


def relabel(world, name, value, namespace="ns"):
    world.cluster.patch("InferenceService", (namespace, name), {"metadata": {"labels": {VERSION: value}}})


async def last_of(world, name):
    return (await world.events(name))[-1]


async def test_what_exists_at_the_first_start_is_published_once_and_then_announced(world):
    world.cluster.create(isvc("a", model="1"))
    world.cluster.create(isvc("b"))
    async with world.producing():
        subjects = [message.subject for message in await world.messages()]
        assert [event.synthetic for event in await world.events()] == [True, True]
        assert await world.said() == ["created", "created"]
        assert subjects.index("isvc.test.sync.isvc") > 1
    async with world.producing():
        assert await world.said() == ["created", "created"]


async def test_live_changes_are_published_in_order_with_their_trace(world):
    async with world.producing():
        world.cluster.create(isvc("a", model="1"))
        relabel(world, "a", "7")
        world.cluster.delete("InferenceService", "ns", "a")
        await eventually(lambda: world.events("a"))
        await eventually(lambda: _len_is(world, "a", 3))
    events = await world.events("a")
    assert [event.type.value for event in events] == ["created", "updated", "deleted"]
    assert [event.synthetic for event in events] == [False] * 3
    assert {event.models for event in events} == {("1",)}
    traces = {
        message.headers["traceparent"].split("-")[1] for message in await world.messages() if ".evt." in message.subject
    }
    assert len(traces) == 3


async def _len_is(world, name, count):
    return len(await world.events(name)) == count


async def test_changes_that_say_nothing_are_not_published(world):
    async with world.producing():
        world.cluster.create(isvc("a"))
        world.cluster.patch("InferenceService", ("ns", "a"), {"metadata": {"annotations": {"foreign": "x"}}})
        world.cluster.patch("InferenceService", ("ns", "a"), {"status": {"observedGeneration": 3}}, part="status")
        relabel(world, "a", "7")
        await eventually(lambda: _len_is(world, "a", 2))
    assert await world.said("a") == ["created", "updated"]


async def test_R27_R28_what_happens_while_no_producer_runs_is_found(world):
    for name in ("changed", "deleted", "recreated", "same"):
        world.cluster.create(isvc(name, model="1"))
    async with world.producing():
        pass
    relabel(world, "changed", "7")
    for name in ("deleted", "recreated"):
        world.cluster.delete("InferenceService", "ns", name)
    world.cluster.create(isvc("recreated", model="2"))
    world.cluster.create(isvc("new"))
    before = {event.key.name: event for event in await world.events()}
    async with world.producing():
        pass
    assert await world.said("changed") == ["created", "updated"]
    assert await world.said("deleted") == ["created", "deleted"]
    assert await world.said("recreated") == ["created", "deleted", "created"]
    assert await world.said("same") == ["created"]
    assert await world.said("new") == ["created"]
    created, deleted, again = await world.events("recreated")
    assert (created.uid, created.models) == (deleted.uid, deleted.models)
    assert again.uid != created.uid
    assert (await last_of(world, "deleted")).uid == before["deleted"].uid


async def test_R27_a_tombstone_has_the_last_published_body_and_names_what_it_corrects(world):
    world.cluster.create(isvc("a", model="5"))
    async with world.producing():
        pass
    world.cluster.delete("InferenceService", "ns", "a")
    world.cluster.create(isvc("b"))
    async with world.producing():
        pass
    messages = [m for m in await world.messages() if m.subject.endswith(".a")]
    assert decode(messages[-1].headers).corrects == messages[0].seq
    assert messages[-1].data == messages[0].data


@pytest.mark.parametrize("support", ["gate-off", "old-etcd"])
async def test_R01_without_watch_list_pages_are_read(world, support):
    world.cluster.api.watch_list = support
    for number in range(3):
        world.cluster.create(isvc(f"m{number}"))
    async with world.producing():
        world.cluster.delete("InferenceService", "ns", "m0")
        await eventually(lambda: _len_is(world, "m0", 2))
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
        await eventually(lambda: _len_is(world, "a", 2), within_s=PATIENT_S)
        await eventually(lambda: _len_is(world, "b", 2), within_s=PATIENT_S)
        await eventually(lambda: _len_is(world, "c", 1), within_s=PATIENT_S)


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
        await eventually(lambda: _last_is(world, "a", "deleted"), within_s=40.0)


async def _last_is(world, name, what):
    message = await world.last(name)
    return message is not None and decode(message.headers).type == what


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
        await eventually(lambda: _count(world, "deleted", 8))
    finally:
        await stop(task)


async def _count(world, what, count):
    return (await world.said()).count(what) == count


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
            await eventually(lambda name=f"m{number}": _last_is(world, name, "deleted"), within_s=30.0)
        for number in range(10, 50):
            await eventually(lambda n=number: _label_is(world, f"m{n}", str(950 + n)), within_s=30.0)
    ids = [event.id for event in await world.events()]
    assert len(ids) == len(set(ids))


async def _label_is(world, name, value):
    message = await world.last(name)
    return message is not None and msgspec.json.decode(message.data)["metadata"]["labels"].get(VERSION) == value


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
        await eventually(lambda: _last_is(world, "m0", "deleted"), within_s=30.0)
        await eventually(lambda: _label_is(world, "m19", "399"), within_s=30.0)


async def test_a_stream_that_was_made_anew_is_filled_again_in_an_epoch_of_its_own(world):
    for name in ("a", "b"):
        world.cluster.create(isvc(name))
    async with world.producing():
        [epoch] = {event.epoch for event in await world.events()}
        js = await world.js()
        await js.delete_stream("ISVC_EVENTS")
        await world.broker.restart()
        await eventually(lambda: _count(world, "created", 2), within_s=PATIENT_S)
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


async def test_kinds_are_followed_side_by_side(world):
    async with world.producing():
        world.cluster.create(isvc("same"))
        world.cluster.create(isvc("same", kind="LLMInferenceService"))
        await eventually(lambda: _len_is(world, "same", 2))
    assert {event.key.kind.value for event in await world.events("same")} == {"isvc", "llmisvc"}


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
    await eventually(lambda: _count(world, "created", 1))
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
