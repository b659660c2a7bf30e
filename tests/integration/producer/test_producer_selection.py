"""What NAMESPACES, NAMESPACE_SELECTOR, OBJECT_SELECTOR leave out is not published, and leaving is never a delete."""

import logging
from contextlib import asynccontextmanager

import msgspec
import pytest

from producer import namespaces
from producer.settings import SelectionSettings
from sandbox.faults import Fault
from shared.errors import SettingsError
from shared.events import decode_marker
from shared.objects import Kind
from tests.integration.producer.worlds import MODEL, eventually, isvc, running, told

PATIENT_S = 20.0


def selecting(world, **selection):
    return msgspec.structs.replace(world.settings, kinds=(Kind.ISVC,), selection=SelectionSettings(**selection))


@asynccontextmanager
async def producing(world, **selection):
    world.settings = selecting(world, **selection)
    async with world.producing() as task:
        yield task


async def says(world, expected):
    async def same():
        return await told(world) == expected

    await eventually(same, within_s=PATIENT_S)


async def scope(world):
    message = await world.last_marker("isvc")
    return decode_marker(message.headers, message.data)[1].scope


def create_namespace(world, name, **labels):
    world.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


def label_namespace(world, name, **labels):
    world.cluster.patch("Namespace", ("", name), {"metadata": {"labels": labels}})


def label(world, name, namespace="ns", **labels):
    world.cluster.patch("InferenceService", (namespace, name), {"metadata": {"labels": labels}})


async def test_only_the_namespaces_of_the_setting_are_listed_each_by_itself(world):
    for namespace in ("a", "b", "c"):
        world.cluster.create(isvc("x", namespace))
    # As without any right over the whole cluster:
    world.cluster.faults.set(
        Fault(path=r"/apis/serving.kserve.io/[^/]+/inferenceservices", error_rate=1.0, error_status=403)
    )
    async with producing(world, namespaces=("a", "b")):
        assert await told(world) == {"a/x": "created", "b/x": "created"}
        assert await scope(world) == ("a", "b")
        world.cluster.create(isvc("y", "b"))
        world.cluster.create(isvc("y", "c"))
        world.cluster.delete("InferenceService", "a", "x")
        await says(world, {"a/x": "deleted", "b/x": "created", "b/y": "created"})


async def test_a_delete_that_nobody_saw_is_found_in_its_namespace(world):
    for namespace in ("a", "b"):
        world.cluster.create(isvc("x", namespace))
        world.cluster.create(isvc("y", namespace))
    async with producing(world, namespaces=("a", "b")):
        pass
    world.cluster.delete("InferenceService", "b", "x")
    async with producing(world, namespaces=("a", "b")):
        await says(world, {"a/x": "created", "a/y": "created", "b/x": "deleted", "b/y": "created"})


async def test_a_namespace_that_leaves_the_setting_is_no_delete_and_is_counted(world, caplog):
    for namespace in ("a", "b"):
        world.cluster.create(isvc("x", namespace))
    async with producing(world, namespaces=("a", "b")):
        pass
    async with producing(world, namespaces=("a",)):
        await eventually(lambda: "no longer selected stay" in caplog.text)
        assert await told(world) == {"a/x": "created", "b/x": "created"}
    async with producing(world, namespaces=("b", "a")):
        assert await told(world) == {"a/x": "created", "b/x": "created"}


async def test_a_namespace_that_left_the_setting_and_is_gone_has_taken_its_objects_along(world):
    create_namespace(world, "b")
    for namespace in ("a", "b"):
        world.cluster.create(isvc("x", namespace))
    async with producing(world, namespaces=("a", "b")):
        pass
    world.cluster.delete("InferenceService", "b", "x")
    world.cluster.delete("Namespace", "", "b")
    async with producing(world, namespaces=("a",)):
        await says(world, {"a/x": "created", "b/x": "deleted"})


async def test_namespaces_are_chosen_by_their_labels_as_these_come_and_go(world, monkeypatch):
    monkeypatch.setattr(namespaces, "LOOK_AGAIN_S", 1.2)
    create_namespace(world, "in", team="fraud")
    create_namespace(world, "out")
    for namespace in ("in", "out"):
        world.cluster.create(isvc("x", namespace))
    async with producing(world, namespace_selector="team=fraud"):
        assert await told(world) == {"in/x": "created"}
        assert await scope(world) == ("in",)
        label_namespace(world, "out", team="fraud")
        await says(world, {"in/x": "created", "out/x": "created"})
        label_namespace(world, "in", team="other")
        await eventually(lambda: _scope_is(world, ("out",)), within_s=PATIENT_S)
        world.cluster.create(isvc("y", "in"))
        world.cluster.create(isvc("y", "out"))
        await says(world, {"in/x": "created", "out/x": "created", "out/y": "created"})


async def _scope_is(world, expected):
    return await scope(world) == expected


async def test_an_object_in_a_new_chosen_namespace_is_published_without_waiting_for_the_next_look(world):
    create_namespace(world, "first", team="fraud")
    world.cluster.create(isvc("x", "first"))
    async with producing(world, namespace_selector="team=fraud"):
        create_namespace(world, "second", team="fraud")
        world.cluster.create(isvc("x", "second"))
        await says(world, {"first/x": "created", "second/x": "created"})


async def test_a_chosen_namespace_that_is_gone_has_taken_its_objects_along(world):
    for name in ("a", "b"):
        create_namespace(world, name, team="fraud")
        world.cluster.create(isvc("x", name))
    async with producing(world, namespace_selector="team=fraud"):
        pass
    world.cluster.delete("InferenceService", "b", "x")
    world.cluster.delete("Namespace", "", "b")
    async with producing(world, namespace_selector="team=fraud"):
        await says(world, {"a/x": "created", "b/x": "deleted"})


async def test_a_selector_that_chooses_no_namespace_deletes_nothing_and_announces_nothing(world, caplog):
    create_namespace(world, "a", team="fraud")
    world.cluster.create(isvc("x", "a"))
    async with producing(world, namespace_selector="team=fraud"):
        pass
    caplog.set_level(logging.INFO)
    markers = await world.markers()
    label_namespace(world, "a", team="other")
    world.settings = selecting(world, namespace_selector="team=fraud")
    async with running(world, "list is complete", caplog):
        assert await told(world) == {"a/x": "created"}
        assert await world.markers() == markers


async def test_R26_an_object_that_no_longer_matches_is_not_deleted(world):
    for name in ("stays", "leaves", "goes"):
        world.cluster.create(isvc(name))
        label(world, name, team="fraud")
    world.cluster.create(isvc("never"))
    async with producing(world, object_selector="team=fraud"):
        assert await told(world) == dict.fromkeys(("ns/stays", "ns/leaves", "ns/goes"), "created")
        label(world, "leaves", team="other")
        world.cluster.delete("InferenceService", "ns", "goes")
        expected = {"ns/stays": "created", "ns/leaves": "created", "ns/goes": "deleted"}
        await says(world, expected)
    async with producing(world, object_selector="team=fraud"):  # R26 in a list: it lacks both
        assert await told(world) == expected
        world.cluster.delete("InferenceService", "ns", "leaves")
    async with producing(world, object_selector="team=fraud"):
        await says(world, expected | {"ns/leaves": "deleted"})


async def test_R26_an_object_that_matches_again_is_published_as_it_is_now(world):
    world.cluster.create(isvc("a"))
    label(world, "a", team="fraud")
    async with producing(world, object_selector="team=fraud"):
        label(world, "a", team="other")
        label(world, "a", **{MODEL: "7"})
        label(world, "a", team="fraud")
        await eventually(lambda: _models_are(world, "a", ("7",)), within_s=PATIENT_S)
    assert await world.said("a") == ["created", "updated"]


async def _models_are(world, name, models):
    return (await world.events(name))[-1].models == models


async def test_R26_R41_while_something_is_out_of_the_selection_each_audit_is_followed_by_a_pass(world):
    world.cluster.create(isvc("a"))
    label(world, "a", team="fraud")
    async with producing(world, object_selector="team=fraud"):
        pass
    label(world, "a", team="other")
    world.settings = msgspec.structs.replace(world.settings, audit_interval_s=1)
    async with world.producing():
        assert await told(world) == {"ns/a": "created"}
        world.cluster.delete("InferenceService", "ns", "a")  # the watch does not tell
        await says(world, {"ns/a": "deleted"})


async def test_R26_while_it_cannot_be_asked_for_nothing_is_concluded(world, caplog):
    world.cluster.create(isvc("a"))
    label(world, "a", team="fraud")
    async with producing(world, object_selector="team=fraud"):
        world.cluster.faults.set(Fault(path=r".*/namespaces/ns/inferenceservices/a", outage=True))
        label(world, "a", team="other")
        await eventually(lambda: "cannot find out" in caplog.text, within_s=PATIENT_S)
        assert await told(world) == {"ns/a": "created"}
        world.cluster.faults.clear()
        world.cluster.delete("InferenceService", "ns", "a")
        await says(world, {"ns/a": "deleted"})


async def test_two_ways_to_choose_namespaces_are_refused_in_one_sentence(world):
    settings = selecting(world, namespaces=("a",), namespace_selector="team=fraud")
    with pytest.raises(SettingsError, match="NAMESPACES and NAMESPACE_SELECTOR are both set"):
        await world.run(settings)
