"""What owners see: Events of the real consumer, and a fight about the id that it does not go on with at any price."""

import asyncio

import pytest
import pytest_asyncio

from tests.e2e.pipeline import ID, STANDARD, Pipeline, isvc
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory, guard):
    async with Pipeline(tmp_path_factory.mktemp("notices"), guard) as pipeline:
        pipeline.seed({"101": "1", "201": "2"})
        yield pipeline


def create(pipeline: Pipeline, name: str, **labels: str) -> None:
    pipeline.cluster.create(isvc(name, annotations=STANDARD, **labels))


def told(pipeline: Pipeline, name: str) -> dict[str, str]:
    """Return the message of each Event about the living object, by its reason."""
    uid = pipeline.object(name)["metadata"]["uid"]
    events = [event for event in pipeline.cluster.list("Event") if event["involvedObject"].get("uid") == uid]
    assert all(event["metadata"]["namespace"] == name.partition("/")[0] for event in events)
    return {event["reason"]: event["message"] for event in events}


async def test_the_first_record_is_told_with_its_id(shared):
    create(shared, "told/first", model="1", version="101")
    message = await eventually(lambda: told(shared, "told/first").get("Registered"))
    assert f"record {shared.record_of('told/first')['id']} in {shared.registry.url}" in message
    assert set(told(shared, "told/first")) == {"Registered"}


async def test_a_dead_letter_is_told_with_its_reason(shared):
    create(shared, "told/missing", model="999999")
    message = await eventually(lambda: told(shared, "told/missing").get("RegistrySyncFailed"))
    assert message == "registered model 999999 does not exist in the registry"
    assert message in (await shared.dead_letters()).values()


async def test_a_version_of_another_model_is_told(shared):
    create(shared, "told/version", model="1", version="201")
    message = await eventually(lambda: told(shared, "told/version").get("VersionOfAnotherModel"))
    assert "model version 201 is one of registered model 2" in message


async def test_a_tool_that_removes_the_label_is_answered_three_times_and_then_the_id_waits(shared):
    before = await shared.consumer.metric("isvc_sync_writeback_total", result="patched")
    create(shared, "told/fight", model="1", version="101")

    async def remove() -> None:
        while True:
            if shared.id_label("told/fight") is not None:
                shared.set_labels("told/fight", inference_service_id=None)
            await asyncio.sleep(0.01)

    fighting = asyncio.create_task(remove())
    limited = await eventually(lambda: told(shared, "told/fight").get("WriteBackLimited"))
    fighting.cancel()
    await asyncio.wait([fighting])
    await shared.settled()
    assert f"{ID} was written 3 times within 60 s" in limited
    assert await shared.consumer.metric("isvc_sync_writeback_total", result="patched") == before + 3
    assert await shared.consumer.metric("isvc_sync_writeback_total", result="limited") >= 1

    async def shown() -> bool:
        return await shared.consumer.metric("isvc_sync_objects", state="write-back-deferred") == 1

    await eventually(shown, "it is shown as deferred")
    assert shared.id_label("told/fight") is None
