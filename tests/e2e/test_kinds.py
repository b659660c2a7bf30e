"""InferenceService and LLMInferenceService of one name are two things, in either version of the latter's API."""

import json

import pytest
import pytest_asyncio

from sandbox.faults import Fault
from shared.objects import Kind, ObjectKey
from tests.e2e.pipeline import ID, STANDARD, SUBJECTS, Pipeline, isvc
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ISVC, LLM = Kind.ISVC.kubernetes_kind, Kind.LLMISVC.kubernetes_kind


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["v1alpha1", "v1alpha2"])
async def shared(request, tmp_path_factory, guard):
    """Only the version of the setting is served, so nothing can work by another one."""
    directory = tmp_path_factory.mktemp(request.param)
    async with Pipeline(directory, guard, environ={"LLMISVC_API_VERSION": request.param}) as pipeline:
        pipeline.cluster.serve_only(LLM, request.param)
        yield pipeline


@pytest_asyncio.fixture(loop_scope="module")
async def pipeline(shared):
    yield shared
    shared.cluster.faults.clear()


def create_isvc(pipeline: Pipeline, name: str) -> None:
    pipeline.cluster.create(isvc(name, model="1", annotations=STANDARD))


def create_llm(pipeline: Pipeline, name: str) -> None:
    llm = isvc(name, model="1") | {"kind": LLM, "spec": {"model": {"uri": "hf://org/chat", "name": "chat"}}}
    pipeline.cluster.create(llm)


async def create_both(pipeline: Pipeline, name: str) -> None:
    """Create an object of each kind, both of this name and for the same model; wait until each carries an id."""
    create_isvc(pipeline, name)
    create_llm(pipeline, name)
    for kind in (ISVC, LLM):
        await linked(pipeline, name, kind)


def record_of(pipeline: Pipeline, name: str, kind: str) -> dict:
    (record,) = pipeline.records(pipeline.object(name, kind)["metadata"]["uid"])
    return record


def id_of(pipeline: Pipeline, name: str, kind: str) -> str | None:
    return pipeline.object(name, kind)["metadata"]["labels"].get(ID)


async def linked(pipeline: Pipeline, name: str, kind: str) -> None:
    await eventually(lambda: id_of(pipeline, name, kind), f"the {kind} {name} carries an id")


async def test_namesakes_of_two_kinds_have_two_records_each_linked_with_its_own(pipeline):
    await create_both(pipeline, "kinds/same")
    await pipeline.settled()
    records = [record_of(pipeline, "kinds/same", kind) for kind in (ISVC, LLM)]
    assert [record["id"] for record in records] == [id_of(pipeline, "kinds/same", kind) for kind in (ISVC, LLM)]
    assert records[0]["id"] != records[1]["id"]
    stamps = [json.loads(record["customProperties"]["isvc-sync"]["string_value"]) for record in records]
    assert [stamp["kind"] for stamp in stamps] == ["isvc", "llmisvc"]
    assert [stamp["storageUri"] for stamp in stamps] == ["s3://models/iris", "hf://org/chat"]


async def test_namesakes_of_two_kinds_have_two_subjects_and_two_partition_keys(pipeline):
    await create_both(pipeline, "kinds/subjects")
    events = await pipeline.events_of("kinds/subjects")
    keys = [ObjectKey(kind, "kinds", "subjects") for kind in Kind]
    assert {event.subject for event in events} == {SUBJECTS.event(key) for key in keys}
    assert {event.headers["ce-partitionkey"] for event in events} == {str(key) for key in keys}


async def test_the_delete_of_one_namesake_undeploys_only_its_own_record(pipeline):
    await create_both(pipeline, "kinds/one-goes")
    gone = pipeline.object("kinds/one-goes", ISVC)["metadata"]["uid"]
    pipeline.cluster.delete(ISVC, "kinds", "one-goes")
    await eventually(lambda: pipeline.records(gone)[0]["desiredState"] == "UNDEPLOYED")
    await pipeline.settled()
    assert record_of(pipeline, "kinds/one-goes", LLM)["desiredState"] == "DEPLOYED"


async def test_one_namesake_does_not_wait_for_the_other(pipeline):
    """The kind is part of the worker's key: while a call about the one hangs, the other is recorded and linked."""
    injected = pipeline.cluster.faults.injected
    before = injected["hang"]
    pipeline.cluster.faults.set(Fault(method="PATCH", path=".*/inferenceservices/waits", hang=True))
    create_isvc(pipeline, "kinds/waits")
    await eventually(lambda: injected["hang"] > before)
    create_llm(pipeline, "kinds/waits")
    await linked(pipeline, "kinds/waits", LLM)
    assert injected["hang"] == before + 1, "the first call still hangs"
    assert id_of(pipeline, "kinds/waits", ISVC) is None
    pipeline.cluster.faults.clear()
    await linked(pipeline, "kinds/waits", ISVC)


async def test_R15_a_kind_that_is_no_longer_served_keeps_its_records_and_the_other_goes_on(tmp_path, guard):
    async with Pipeline(tmp_path, guard, environ={"LLMISVC_API_VERSION": "v1alpha1"}) as pipeline:
        await create_both(pipeline, "kinds/stays")
        await pipeline.settled()
        pipeline.cluster.serve_only(LLM, "v1alpha2")
        await pipeline.producer.stop()
        await pipeline.producer.start()  # it becomes ready, although one kind is absent
        create_isvc(pipeline, "kinds/later")
        await linked(pipeline, "kinds/later", ISVC)
        types = {event.headers["ce-type"] for event in await pipeline.events_of("kinds/stays")}
        assert "io.kserve.llminferenceservice.deleted.v1" not in types
        assert record_of(pipeline, "kinds/stays", LLM)["desiredState"] == "DEPLOYED"
        assert await pipeline.producer.is_ready()
        assert await pipeline.consumer.is_ready()
        (told,) = [entry for entry in pipeline.producer.entries("WARNING") if "not installed" in entry["message"]]
        assert (told["kind"], "LLMISVC_API_VERSION" in told["message"]) == ("llmisvc", True)
