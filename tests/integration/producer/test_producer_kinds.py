"""Two kinds side by side: each in the version of the setting, each waited for alone when the cluster has it not."""

import asyncio

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from producer.settings import ProducerSettings
from shared.naming import NamingSettings
from shared.objects import Kind
from tests.eventually import eventually
from tests.integration.producer.worlds import World, isvc, stop

LLM = "LLMInferenceService"
VERSIONS = ("v1alpha1", "v1alpha2")
UNSERVED, NEWER_UNSERVED = (f"/apis/serving.kserve.io/{version}/llminferenceservices" for version in VERSIONS)


def asking_for(world: World, version: str, *kinds: Kind) -> ProducerSettings:
    naming = NamingSettings(cluster_name="test", llmisvc_api_version=version)
    return replace(world.settings, naming=naming, kinds=kinds or tuple(Kind))


async def bodies(world: World, name: str) -> list[dict]:
    found = [msgspec.json.decode(m.data) for m in await world.messages() if ".evt." in m.subject]
    return [body for body in found if body["metadata"]["name"] == name]


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_llm_object_is_followed_where_only_its_version_is_served(world, version):
    world.cluster.serve_only(LLM, version)
    world.cluster.create(isvc("listed", kind=LLM))
    async with world.producing(asking_for(world, version)):
        world.cluster.create(isvc("watched", kind=LLM))
        await eventually(lambda: world.said("watched"))
    for name in ("listed", "watched"):
        assert [body["apiVersion"] for body in await bodies(world, name)] == [f"serving.kserve.io/{version}"]


@pytest.mark.parametrize(("before", "after"), [VERSIONS, VERSIONS[::-1]])
async def test_another_version_in_a_running_installation_publishes_nothing_again(world, before, after):
    world.cluster.create(isvc("keep", kind=LLM))
    async with world.producing(asking_for(world, before)):
        pass
    async with world.producing(asking_for(world, after)):
        assert await world.said("keep") == ["created"]
        world.cluster.patch(LLM, ("ns", "keep"), {"spec": {"replicas": 2}})
        await eventually(lambda: _said(world, "keep", ["created", "updated"]))
    assert [body["apiVersion"][-8:] for body in await bodies(world, "keep")] == [before, after]


async def _said(world, name, what):
    return await world.said(name) == what


async def test_R15_a_version_that_is_not_served_deletes_nothing_and_is_told_once_with_the_setting(world, caplog):
    world.cluster.create(isvc("keep", kind=LLM))
    async with world.producing(asking_for(world, "v1alpha1")):
        pass
    world.cluster.serve_only(LLM, "v1alpha2")
    caplog.clear()
    caplog.set_level("INFO")
    task = asyncio.create_task(world.run(asking_for(world, "v1alpha1")))
    try:
        world.cluster.create(isvc("other"))
        await eventually(lambda: world.said("other"))
        await eventually(lambda: world.cluster.requests.total("GET", UNSERVED) >= 3, within_s=20.0)
        (told,) = [
            each for each in caplog.records if "not installed" in each.getMessage() and each.levelname != "DEBUG"
        ]
        assert told.kind is Kind.LLMISVC
        assert "LLMISVC_API_VERSION" in told.getMessage()
        assert await ready(caplog)
        assert await world.said("keep") == ["created"]
    finally:
        await stop(task)
    async with world.producing(asking_for(world, "v1alpha2")):
        assert await world.said("keep") == ["created"]


async def ready(caplog) -> bool:
    port = next(record.health_port for record in caplog.records if hasattr(record, "health_port"))
    async with httpx.AsyncClient(trust_env=False) as http:
        return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200


async def test_R15_a_kind_that_comes_later_is_followed_from_then_on(world):
    world.cluster.create(isvc("early", kind=LLM))
    world.cluster.serve_only(LLM, "v1alpha1")
    task = asyncio.create_task(world.run(asking_for(world, "v1alpha2")))
    try:
        await eventually(lambda: world.cluster.requests.total("GET", NEWER_UNSERVED) >= 1)
        world.cluster.serve_only(LLM, "v1alpha1", "v1alpha2")
        await eventually(lambda: world.said("early"), within_s=20.0)
    finally:
        await stop(task)
