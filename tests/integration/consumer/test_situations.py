"""The other rows of the decision table (docs/reconcile.md) through the whole loop: what is no defect of anybody."""

import pytest
import pytest_asyncio

from tests.cluster.processes import Guard
from tests.e2e.pipeline import ID, MODEL, STANDARD, STOP, VERSION, Pipeline, isvc
from tests.eventually import eventually
from tests.integration.consumer.defects import (
    annotate,
    by_model,
    create,
    delete,
    edit,
    has_state,
    linked,
    recorded,
    set_status,
    stamp,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHER = "modelregistry.opendatahub.io/registered-model-id"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(tmp_path_factory):
    guard = Guard()
    async with Pipeline(tmp_path_factory.mktemp("situations"), guard) as pipeline:
        pipeline.seed({"101": "1", "102": "1", "109": "9"})
        yield pipeline
    guard.close()


def uid_of(pipeline: Pipeline, name: str) -> str:
    return pipeline.object(name)["metadata"]["uid"]


async def reason(pipeline: Pipeline, name: str) -> str | None:
    """Return why an object is among the dead letters, None when it is not."""
    letters = await pipeline.dead_letters()
    return next((text for subject, text in letters.items() if subject.endswith(name.replace("/", "."))), None)


async def test_without_a_model_label_nothing_is_asked_of_the_registry(pipeline):
    asked = pipeline.registry.requests.total()
    for name, labels in (("none", {}), ("version", {VERSION: "101"}), ("id", {ID: "9"})):
        pipeline.cluster.create(isvc(f"plain/{name}", annotations=STANDARD, labels=labels))
    await pipeline.settled()
    assert len(await pipeline.events_of("plain/id")) == 1
    assert pipeline.registry.requests.total() == asked
    assert pipeline.id_label("plain/id") == "9"


@pytest.mark.parametrize("value", [None, "4711"], ids=["removed", "another's"])
async def test_an_id_that_somebody_changes_is_put_right(pipeline, value):
    name = f"id/{'removed' if value is None else 'changed'}"
    record = await recorded(pipeline, name)
    pipeline.set_labels(name, inference_service_id=value)
    assert pipeline.id_label(name) == value
    assert await linked(pipeline, name) == record


async def test_a_version_label_that_is_removed_is_said_in_the_property(pipeline):
    await recorded(pipeline, "version/removed", version="101")
    pipeline.set_labels("version/removed", model_version_id=None)
    await eventually(lambda: stamp(pipeline.record_of("version/removed"))["modelVersion"] == "", "the removal")
    assert pipeline.record_of("version/removed")["modelVersionId"] == "101", "the registry cannot clear it"


async def test_a_version_of_another_model_is_not_recorded_and_is_no_dead_letter(pipeline):
    record = await recorded(pipeline, "version/foreign", version="109")
    assert "modelVersionId" not in record
    await eventually(lambda: any("109" in entry["message"] for entry in pipeline.consumer.entries("WARNING")), "a word")
    await pipeline.settled()
    assert await reason(pipeline, "version/foreign") is None


@pytest.mark.parametrize("version", ["404", "latest"])
async def test_a_version_that_cannot_be_is_a_dead_letter_and_the_rest_is_recorded(pipeline, version):
    name = f"version/iris-{version}"
    create(pipeline, name, version=version)
    assert version in await eventually(lambda: reason(pipeline, name), "the dead letter")
    assert "modelVersionId" not in await linked(pipeline, name)


async def test_labels_of_the_other_prefix_count_where_ours_say_nothing(pipeline):
    for name, labels in (("only", {OTHER: "9"}), ("both", {OTHER: "9", MODEL: "1"})):
        pipeline.cluster.create(isvc(f"prefix/{name}", annotations=STANDARD, labels=labels))
    await eventually(lambda: all(map(pipeline.id_label, ("prefix/only", "prefix/both"))), "both are linked")
    assert by_model(pipeline, uid_of(pipeline, "prefix/only")) == {"9": "DEPLOYED"}
    assert by_model(pipeline, uid_of(pipeline, "prefix/both")) == {"1": "DEPLOYED"}


async def test_an_earlier_controllers_record_is_adopted_with_what_users_wrote_into_it(pipeline):
    uid = create(pipeline, "before/iris", model=None)
    text = {"metadataType": "MetadataStringValue", "string_value": "anna"}
    pipeline.registry.seed(
        serving_environments=[{"id": "9000", "name": "before"}],
        inference_services=[
            {
                "id": "9001",
                "name": f"iris/{uid}",
                "servingEnvironmentId": "9000",
                "registeredModelId": "1",
                "desiredState": "DEPLOYED",
                "customProperties": {"owner": text},
            }
        ],
    )
    pipeline.set_labels("before/iris", registered_model_id="1")
    record = await linked(pipeline, "before/iris")
    assert (record["id"], record["externalId"]) == ("9001", f"kserve:{uid}/1")
    assert record["customProperties"]["owner"] == text


async def test_a_model_label_that_goes_and_comes_back_is_one_record(pipeline):
    record = await recorded(pipeline, "model/back")
    uid = uid_of(pipeline, "model/back")
    pipeline.set_labels("model/back", registered_model_id=None)
    await has_state(pipeline, uid, "UNDEPLOYED")
    pipeline.set_labels("model/back", registered_model_id="1")
    await has_state(pipeline, uid, "DEPLOYED")
    assert (await linked(pipeline, "model/back"))["id"] == record["id"]


async def test_a_former_models_record_is_opened_again_when_its_label_comes_back(pipeline):
    first = await recorded(pipeline, "model/there-and-back")
    uid = uid_of(pipeline, "model/there-and-back")
    pipeline.set_labels("model/there-and-back", registered_model_id="9")
    await linked(pipeline, "model/there-and-back")
    pipeline.set_labels("model/there-and-back", registered_model_id="1")
    assert (await linked(pipeline, "model/there-and-back"))["id"] == first["id"]
    assert by_model(pipeline, uid) == {"1": "DEPLOYED", "9": "UNDEPLOYED"}


async def test_a_bad_model_label_does_not_keep_the_old_record_deployed(pipeline):
    await recorded(pipeline, "model/bad")
    pipeline.set_labels("model/bad", registered_model_id="mnist")
    await has_state(pipeline, uid_of(pipeline, "model/bad"), "UNDEPLOYED")
    assert "mnist" in await eventually(lambda: reason(pipeline, "model/bad"), "the dead letter")


async def test_D22_the_owner_of_an_object_is_told_by_an_event_on_it(pipeline):
    uid = create(pipeline, "told/iris", model="mnist")

    def warnings() -> list[str]:
        events = pipeline.cluster.list("Event")
        return [each["message"] for each in events if (each["involvedObject"]["uid"], each["type"]) == (uid, "Warning")]

    (told,) = await eventually(warnings, "the Event")
    assert "registered-model-id='mnist'" in told


async def test_an_object_that_serves_is_recorded_and_its_id_waits(pipeline):
    create(pipeline, "serving/iris", model=None)
    ready = [{"type": "Ready", "status": "True"}, {"type": "PredictorReady", "status": "True"}]
    set_status(pipeline, "serving/iris", url="http://serving.example.com", conditions=ready)
    await pipeline.settled()
    patches = pipeline.patches()
    pipeline.set_labels("serving/iris", registered_model_id="1")
    await eventually(lambda: pipeline.record_of("serving/iris"), "the record")
    await pipeline.settled()
    assert (pipeline.id_label("serving/iris"), pipeline.patches()) == (None, patches)
    annotate(pipeline, "serving/iris", **{STOP: "true"})
    set_status(pipeline, "serving/iris", url=None, conditions=[{"type": "Stopped", "status": "True"}])
    await eventually(lambda: pipeline.id_label("serving/iris"), "now it costs nothing")


async def test_an_object_that_is_stopped_from_the_beginning_was_never_deployed(pipeline):
    uid = create(pipeline, "stopped/iris", annotations=STANDARD | {STOP: "true"})
    await has_state(pipeline, uid, "UNDEPLOYED")
    assert stamp(pipeline.record_of("stopped/iris"))["deployedAt"] == ""


async def test_an_object_that_came_and_went_while_no_consumer_ran_is_recorded(pipeline):
    await pipeline.consumer.stop()
    uid = create(pipeline, "short/iris", version="101")
    await eventually(lambda: pipeline.events_of("short/iris"), "its creation is published")
    delete(pipeline, "short/iris")
    await pipeline.consumer.start()
    await has_state(pipeline, uid, "UNDEPLOYED")
    await pipeline.settled()
    assert stamp(pipeline.records(uid)[0])["deleted"]


async def test_an_event_that_comes_late_does_not_open_the_record_of_a_deleted_object(pipeline):
    await recorded(pipeline, "late/iris")
    uid = uid_of(pipeline, "late/iris")
    delete(pipeline, "late/iris")
    await has_state(pipeline, uid, "UNDEPLOYED")
    await pipeline.settled()
    (before,) = pipeline.records(uid)
    for event in await pipeline.events_of("late/iris"):
        if "deleted" not in event.headers["ce-type"]:
            headers = event.headers | {"Nats-Msg-Id": f"late-{event.sequence}"}
            await pipeline.client.jetstream().publish(event.subject, event.body, headers=headers)
    await pipeline.settled()
    assert pipeline.records(uid) == [before]


async def test_a_state_edited_by_hand_is_set_right_with_the_next_change(pipeline):
    record = await recorded(pipeline, "edited/iris", version="101")
    await edit(pipeline, record, desiredState="UNDEPLOYED")
    pipeline.set_labels("edited/iris", model_version_id="102")
    await eventually(lambda: pipeline.record_of("edited/iris")["modelVersionId"] == "102", "the version")
    assert pipeline.record_of("edited/iris")["desiredState"] == "DEPLOYED"
