"""The defects of earlier controllers through the whole loop: from a change in the cluster to the record and back.

Producer and consumer are processes, the broker is real; cluster and registry are the sandbox's. What is about finding
and reaching registries is in test_defects_registries.py.
"""

import asyncio
from contextlib import contextmanager

import pytest
import pytest_asyncio

from sandbox.faults import Fault
from tests.cluster.processes import Guard
from tests.e2e.pipeline import ID, STANDARD, STOP, Pipeline, isvc
from tests.e2e.sweeps import sweeping
from tests.eventually import eventually
from tests.integration.consumer.defects import (
    LLM,
    annotate,
    by_model,
    create,
    delete,
    edit,
    has_state,
    is_gone,
    linked,
    recorded,
    set_status,
    stamp,
    url,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSIONS = {"101": "1", "102": "1", "109": "9"}
A_FIND, A_CREATE, A_CHANGE = (
    {"method": method, "path": f".*/inference_service{rest}"}
    for method, rest in (("GET", ""), ("POST", "s"), ("PATCH", "s/.*"))
)
READY = [{"type": "Ready", "status": "True"}]


@pytest.fixture(scope="module")
def guard():
    guard = Guard()
    yield guard
    guard.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory, guard):
    directory = tmp_path_factory.mktemp("defects")
    token = directory / "token"
    token.write_text("first")
    environ = {"ENVIRONMENT_NAME": "{cluster}-{namespace}", "REGISTRY_TOKEN_FILE": str(token)}
    async with Pipeline(directory / "pipeline", guard, environ=environ) as pipeline:
        pipeline.seed(VERSIONS)
        pipeline.token = token
        yield pipeline


@pytest_asyncio.fixture(loop_scope="module")
async def pipeline(world):
    yield world
    world.cluster.faults.clear()
    world.registry.faults.clear()
    world.registry.switch(require_token=None)


@contextmanager
def disturbed(server, ending: str, fault: Fault):
    """Disturb a server meanwhile; at least one request must have met the fault. Yields the count of those that did."""
    before = server.faults.injected[ending]
    server.faults.set(fault)
    yield lambda: server.faults.injected[ending] - before
    assert server.faults.injected[ending] > before, "the fault was never met"
    server.faults.clear()


# --- the end of an object ---------------------------------------------------------------------------------------------


async def test_D01_an_object_that_lost_its_labels_goes_at_once_and_is_undeployed(pipeline):
    record = await recorded(pipeline, "d01/iris", version="101")
    assert "finalizers" not in pipeline.object("d01/iris")["metadata"]
    uid = pipeline.object("d01/iris")["metadata"]["uid"]
    pipeline.set_labels("d01/iris", registered_model_id=None, model_version_id=None, inference_service_id=None)
    delete(pipeline, "d01/iris")
    assert is_gone(pipeline, "d01/iris")
    await has_state(pipeline, uid, "UNDEPLOYED")
    await eventually(lambda: stamp(pipeline.records(uid)[0])["deleted"], "the end is recorded")
    assert pipeline.records(uid)[0]["id"] == record["id"]


async def test_D02_a_delete_in_an_outage_is_not_held_up_and_recorded_after_it(pipeline):
    await recorded(pipeline, "d02/iris")
    uid = pipeline.object("d02/iris")["metadata"]["uid"]
    with disturbed(pipeline.registry, "outage", Fault(outage=True)) as refused:
        delete(pipeline, "d02/iris")
        assert is_gone(pipeline, "d02/iris")
        await eventually(lambda: refused() >= 2, "the consumer keeps trying")
        assert by_model(pipeline, uid) == {"1": "DEPLOYED"}
    await has_state(pipeline, uid, "UNDEPLOYED")
    assert not [subject for subject in await pipeline.dead_letters() if ".d02." in subject]


async def test_D03_an_object_that_goes_before_its_id_was_written_is_undeployed(pipeline):
    fault = Fault(method="PATCH", path=".*/d03/inferenceservices/iris", error_rate=1.0, error_status=500)
    with disturbed(pipeline.cluster, "error", fault) as refused:
        uid = create(pipeline, "d03/iris")
        await eventually(refused, "the id cannot be written")
        assert by_model(pipeline, uid) == {"1": "DEPLOYED"}
        assert pipeline.id_label("d03/iris") is None
        delete(pipeline, "d03/iris")
        await has_state(pipeline, uid, "UNDEPLOYED")


async def test_D27_an_object_that_goes_stays_undeployed_whatever_comes_late(pipeline):
    await recorded(pipeline, "d27/iris", finalizers=["example.com/backup"])
    uid = pipeline.object("d27/iris")["metadata"]["uid"]
    with disturbed(pipeline.registry, "lost_reply", Fault(**A_CHANGE, lost_reply_rate=1.0, next_requests=1)) as lost:
        delete(pipeline, "d27/iris")
        await eventually(lost, "the answer to UNDEPLOYED is lost")
        assert not is_gone(pipeline, "d27/iris"), "somebody else's finalizer holds it"
        set_status(pipeline, "d27/iris", url="http://d27.example.com")
        await eventually(lambda: url(pipeline.records(uid)[0]) == "http://d27.example.com", "the url is recorded")
        assert by_model(pipeline, uid) == {"1": "UNDEPLOYED"}
    pipeline.patch("d27/iris", {"metadata": {"finalizers": None}})
    assert is_gone(pipeline, "d27/iris")
    await pipeline.settled()
    assert by_model(pipeline, uid) == {"1": "UNDEPLOYED"}


# --- what the record says ---------------------------------------------------------------------------------------------


async def test_D04_a_changed_url_does_not_deploy_what_is_stopped(pipeline):
    """The registry deploys whatever a PATCH without a state touches."""
    record = await recorded(pipeline, "d04/iris")
    uid = pipeline.object("d04/iris")["metadata"]["uid"]
    annotate(pipeline, "d04/iris", **{STOP: "true"})
    await has_state(pipeline, uid, "UNDEPLOYED")
    set_status(pipeline, "d04/iris", url="http://d04.example.com")
    await eventually(lambda: url(pipeline.records(uid)[0]) == "http://d04.example.com", "the url is recorded")
    assert by_model(pipeline, uid) == {"1": "UNDEPLOYED"}
    await edit(pipeline, record, description="a PATCH without a state")
    assert by_model(pipeline, uid) == {"1": "DEPLOYED"}, "the trap is there"


async def test_D05_a_changed_version_label_reaches_the_record(pipeline):
    await recorded(pipeline, "d05/iris", version="101")
    pipeline.set_labels("d05/iris", model_version_id="102")
    await eventually(lambda: pipeline.record_of("d05/iris")["modelVersionId"] == "102", "the new version")
    assert [change["version"] for change in stamp(pipeline.record_of("d05/iris"))["history"]] == ["101", "102"]


async def test_D06_a_changed_model_label_closes_the_old_record_and_links_a_new_one(pipeline):
    old = await recorded(pipeline, "d06/iris", version="101")
    uid = pipeline.object("d06/iris")["metadata"]["uid"]
    pipeline.set_labels("d06/iris", registered_model_id="9", model_version_id="109")
    new = await linked(pipeline, "d06/iris")
    assert by_model(pipeline, uid) == {"1": "UNDEPLOYED", "9": "DEPLOYED"}
    assert new["id"] != old["id"]
    assert new["modelVersionId"] == "109"


async def test_D11_a_custom_predictor_is_recorded(pipeline):
    custom = isvc("d11/iris", model="1", annotations=STANDARD)
    custom["spec"] = {"predictor": {"containers": [{"name": "kserve-container", "image": "example.com/custom:1"}]}}
    pipeline.cluster.create(custom)
    assert "runtime" not in await linked(pipeline, "d11/iris")


async def test_D12_the_runtime_is_the_chosen_one_until_the_object_names_one(pipeline):
    await recorded(pipeline, "d12/iris")
    set_status(pipeline, "d12/iris", clusterServingRuntimeName="kserve-sklearnserver")
    await eventually(lambda: pipeline.record_of("d12/iris").get("runtime") == "kserve-sklearnserver", "KServe's choice")
    pipeline.patch("d12/iris", {"spec": {"predictor": {"model": {"runtime": "triton"}}}})
    await eventually(lambda: pipeline.record_of("d12/iris")["runtime"] == "triton", "the user's choice")


async def test_D13_the_address_stands_in_for_a_url_and_what_is_gone_is_removed(pipeline):
    await recorded(pipeline, "d13/iris")
    set_status(pipeline, "d13/iris", address={"url": "http://iris.d13.svc.cluster.local"})
    await eventually(lambda: url(pipeline.record_of("d13/iris")) == "http://iris.d13.svc.cluster.local", "the address")
    set_status(pipeline, "d13/iris", url="http://d13.example.com")
    await eventually(lambda: url(pipeline.record_of("d13/iris")) == "http://d13.example.com", "the url")
    set_status(pipeline, "d13/iris", url=None, address=None)
    await eventually(lambda: url(pipeline.record_of("d13/iris")) is None, "no url any more")


async def test_D14_the_record_says_whether_it_is_ready_and_what_cannot_be_loaded(pipeline):
    await recorded(pipeline, "d14/iris")
    assert not stamp(pipeline.record_of("d14/iris"))["ready"]
    set_status(pipeline, "d14/iris", conditions=READY)
    await eventually(lambda: stamp(pipeline.record_of("d14/iris"))["ready"], "it is ready")
    set_status(pipeline, "d14/iris", modelStatus={"transitionStatus": "BlockedByFailedLoad"})
    failure = await eventually(lambda: stamp(pipeline.record_of("d14/iris"))["loadFailure"], "the failed load")
    assert (failure, pipeline.record_of("d14/iris")["desiredState"]) == ("BlockedByFailedLoad", "DEPLOYED")


async def test_D15_a_stopped_object_is_undeployed_until_it_starts_again(pipeline):
    await recorded(pipeline, "d15/iris")
    uid = pipeline.object("d15/iris")["metadata"]["uid"]
    annotate(pipeline, "d15/iris", **{STOP: "true"})
    await has_state(pipeline, uid, "UNDEPLOYED")
    annotate(pipeline, "d15/iris", **{STOP: None})
    await has_state(pipeline, uid, "DEPLOYED")


async def test_D29_what_users_add_is_kept_and_can_be_lost_to_one_request_only(pipeline):
    """The registry has no precondition: what is added between our read and our write goes. That is all that does."""
    record = await recorded(pipeline, "d29/iris", version="101")

    async def add(name: str) -> None:
        now = pipeline.record_of("d29/iris")["customProperties"]
        theirs = {name: {"metadataType": "MetadataStringValue", "string_value": "x"}}
        await edit(pipeline, record, desiredState="DEPLOYED", customProperties=now | theirs)

    async def change_version(version: str, slow: dict[str, str], added: str) -> set[str]:
        fault = Fault(**slow, latency_s=0.5, next_requests=1)
        with disturbed(pipeline.registry, "latency", fault) as waits:
            pipeline.set_labels("d29/iris", model_version_id=version)
            await eventually(waits, "our request is on its way")
            await add(added)
            assert added in pipeline.record_of("d29/iris")["customProperties"]
            await eventually(lambda: pipeline.record_of("d29/iris")["modelVersionId"] == version, "the version")
        return set(pipeline.record_of("d29/iris")["customProperties"]) - {"isvc-sync", "url"}

    await add("long-before")
    assert await change_version("102", A_FIND, "before-our-read") == {"long-before", "before-our-read"}
    assert await change_version("101", A_CHANGE, "in-between") == {"long-before", "before-our-read"}


async def test_D30_an_llminferenceservice_is_recorded_linked_and_undeployed(pipeline):
    llm = isvc("d30/chat", model="1") | {"kind": LLM, "spec": {"model": {"uri": "hf://org/chat", "name": "chat"}}}
    uid = pipeline.cluster.create(llm)["metadata"]["uid"]
    assert stamp(await linked(pipeline, "d30/chat", LLM))["kind"] == "llmisvc"
    delete(pipeline, "d30/chat", LLM)
    assert is_gone(pipeline, "d30/chat", LLM)
    await has_state(pipeline, uid, "UNDEPLOYED")


# --- whose record it is -----------------------------------------------------------------------------------------------


async def test_D07_an_object_made_from_an_export_gets_a_record_of_its_own(pipeline):
    old = await recorded(pipeline, "d07/iris")
    exported = pipeline.object("d07/iris")
    delete(pipeline, "d07/iris")
    await has_state(pipeline, exported["metadata"]["uid"], "UNDEPLOYED")
    kept = {name: exported["metadata"][name] for name in ("labels", "annotations", "name", "namespace")}
    assert kept["labels"][ID] == old["id"]
    again = pipeline.cluster.create({**exported, "metadata": kept})
    assert again["metadata"]["uid"] != exported["metadata"]["uid"]
    assert (await linked(pipeline, "d07/iris"))["id"] != old["id"]
    assert by_model(pipeline, exported["metadata"]["uid"]) == {"1": "UNDEPLOYED"}


async def test_D07_the_end_of_a_copy_is_not_the_end_of_the_original(pipeline):
    original = await recorded(pipeline, "d07-from/iris")
    labels = pipeline.object("d07-from/iris")["metadata"]["labels"]
    copy = isvc("d07-to/iris", annotations=STANDARD)
    copy["metadata"]["labels"] = labels
    uid = pipeline.cluster.create(copy)["metadata"]["uid"]
    assert labels[ID] == original["id"]
    assert (await linked(pipeline, "d07-to/iris"))["id"] != original["id"]
    delete(pipeline, "d07-to/iris")
    await has_state(pipeline, uid, "UNDEPLOYED")
    assert pipeline.record_of("d07-from/iris") == original


async def test_D08_after_a_reset_an_object_gets_a_new_record_and_leaves_the_one_that_took_its_id_alone(pipeline):
    lost = await recorded(pipeline, "d08/iris", version="101")
    models = [{"id": str(number), "name": f"model-{number}"} for number in range(1, 41)]
    stranger = {"id": lost["id"], "name": "other/1", "servingEnvironmentId": "9001", "registeredModelId": "1"}
    pipeline.registry.registry.replace(
        0,
        {
            "registered_models": models,
            "serving_environments": [{"id": "9001", "name": "elsewhere"}],
            "inference_services": [stranger | {"desiredState": "DEPLOYED"}],
        },
    )
    pipeline.seed(VERSIONS)
    (before,) = pipeline.registry.records("inference_services")
    pipeline.set_labels("d08/iris", model_version_id="102")
    record = await linked(pipeline, "d08/iris")
    assert record["id"] != lost["id"]
    assert record["modelVersionId"] == "102"
    assert [each for each in pipeline.registry.records("inference_services") if each["id"] == lost["id"]] == [before]


async def test_D23_one_name_in_two_clusters_is_two_environments_and_their_records_are_left_alone(pipeline):
    uid = create(pipeline, "d23/iris", model=None)
    property_ = '{"cluster":"sandbox","clusterId":"another","kind":"isvc","namespace":"d23","name":"iris","uid":"%s",'
    theirs = property_ % uid + '"epoch":1,"resourceVersion":"1"}'
    pipeline.registry.seed(
        serving_environments=[{"id": "9100", "name": "d23"}],
        inference_services=[
            {
                "id": "9101",
                "name": f"iris/{uid}",
                "externalId": f"kserve:{uid}/1",
                "servingEnvironmentId": "9100",
                "registeredModelId": "1",
                "desiredState": "DEPLOYED",
                "customProperties": {"isvc-sync": {"metadataType": "MetadataStringValue", "string_value": theirs}},
            }
        ],
    )
    (before,) = pipeline.records(uid)
    pipeline.set_labels("d23/iris", registered_model_id="1")  # as where an etcd was copied: even the uid is the same
    await eventually(pipeline.dead_letters, "the dead letter")
    assert any("another" in reason for subject, reason in (await pipeline.dead_letters()).items() if ".d23." in subject)
    delete(pipeline, "d23/iris")
    await pipeline.settled()
    assert pipeline.records(uid) == [before]
    await recorded(pipeline, "d23/ours")
    names = {each["id"]: each["name"] for each in pipeline.registry.records("serving_environments")}
    assert names[pipeline.record_of("d23/ours")["servingEnvironmentId"]] == "sandbox-d23"


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "fault"),
    [
        pytest.param("error", {"error_rate": 1.0, "error_status": 401, "error_body": "Unauthorized"}, id="401"),
        pytest.param("error", {"error_rate": 1.0, "error_status": 404, "error_body": "404 page not found"}, id="404"),
        pytest.param("error", {"error_rate": 1.0, "error_status": 500}, id="500"),
        pytest.param("drop", {"drop_rate": 1.0}, id="no-answer"),
    ],
)
async def test_D09_a_failed_find_is_not_followed_by_a_create(pipeline, request, ending, fault):
    name = f"d09/{request.node.callspec.id.lower()}"
    create(pipeline, name, model=None)
    await pipeline.settled()
    posts = pipeline.registry.requests.total("POST")
    with disturbed(pipeline.registry, ending, Fault(**A_FIND, **fault)) as failed:
        pipeline.set_labels(name, registered_model_id="1")
        await eventually(lambda: failed() >= 2, "the find fails, twice")
        assert pipeline.registry.requests.total("POST") == posts
    await linked(pipeline, name)


async def test_D10_an_environment_that_somebody_else_makes_at_the_same_time_is_used(pipeline):
    posts = pipeline.registry.requests.total("POST", "/serving_environments")
    fault = Fault(method="POST", path=".*/serving_environments", latency_s=0.3, next_requests=1)
    with disturbed(pipeline.registry, "latency", fault) as waits:
        create(pipeline, "d10/iris")
        await eventually(waits, "our create is on its way")
        pipeline.registry.seed(serving_environments=[{"id": "9200", "name": "sandbox-d10"}])
        assert (await linked(pipeline, "d10/iris"))["servingEnvironmentId"] == "9200"
    assert pipeline.registry.requests.total("POST", "/serving_environments") == posts + 1, "which got a 409"


async def test_D17_a_token_that_is_rotated_is_used_without_a_restart(pipeline):
    pipeline.registry.switch(require_token="first")
    await recorded(pipeline, "d17/before")
    pipeline.registry.switch(require_token="second")
    pipeline.token.write_text("second")
    await recorded(pipeline, "d17/after")
    pipeline.token.write_text("first")


async def test_D19_the_write_back_changes_one_label_though_kserve_writes_at_the_same_time(pipeline):
    given = isvc("d19/iris", model="1", annotations=STANDARD)
    given["spec"]["predictor"]["model"]["env"] = [{"name": "A", "value": "b"}]
    given["spec"]["predictor"]["fieldOfALaterRelease"] = {"kept": True}
    fault = Fault(method="PATCH", path=".*/d19/inferenceservices/iris", latency_s=0.3, next_requests=1)
    patches = pipeline.patches()
    with disturbed(pipeline.cluster, "latency", fault) as waits:
        made = pipeline.cluster.create(given)
        await eventually(waits, "our patch is on its way")
        set_status(pipeline, "d19/iris", modelStatus={"transitionStatus": "InProgress"})
        record = await linked(pipeline, "d19/iris")
    now = pipeline.object("d19/iris")
    assert pipeline.patches() == patches + 2, "the first one came too late, and was judged anew"
    assert now["spec"] == made["spec"]
    assert now["spec"]["predictor"]["fieldOfALaterRelease"] == {"kept": True}
    assert now["status"]["modelStatus"]["transitionStatus"] == "InProgress"
    assert now["metadata"]["generation"] == made["metadata"]["generation"]
    assert now["metadata"]["labels"] == made["metadata"]["labels"] | {ID: record["id"]}


@pytest.mark.parametrize("label", ["abc", "", "01", "99999999"])
async def test_D22_a_label_that_names_no_model_is_a_dead_letter_and_not_tried_again(pipeline, label):
    name = f"d22/iris-{label or 'empty'}"
    create(pipeline, name, model=label)

    async def reason() -> str | None:
        letters = await pipeline.dead_letters()
        return next((text for subject, text in letters.items() if subject.endswith(name.replace("/", "."))), None)

    assert label in await eventually(reason, "the dead letter")
    await pipeline.settled()
    sent = pipeline.registry.requests.total()
    await asyncio.sleep(0.5)  # the time in which a second try would come
    assert pipeline.registry.requests.total() == sent
    pipeline.set_labels(name, registered_model_id="1")
    await linked(pipeline, name)


async def test_D24_what_is_deleted_while_the_sync_is_switched_off_goes_at_once(pipeline):
    await recorded(pipeline, "d24/iris")
    uid = pipeline.object("d24/iris")["metadata"]["uid"]
    assert "finalizers" not in pipeline.object("d24/iris")["metadata"]
    await asyncio.gather(pipeline.producer.stop(), pipeline.consumer.stop())
    delete(pipeline, "d24/iris")
    assert is_gone(pipeline, "d24/iris")
    await asyncio.gather(pipeline.producer.start(), pipeline.consumer.start())
    await has_state(pipeline, uid, "UNDEPLOYED")


async def test_D28_a_state_that_was_edited_by_hand_is_set_right_by_the_sweep(tmp_path, guard):
    """In a world of its own: elsewhere a sweep would heal what the events should have done."""
    async with sweeping(tmp_path, guard) as pipeline:
        record = await recorded(pipeline, "d28/iris")
        await edit(pipeline, record, desiredState="UNDEPLOYED")
        uid = pipeline.object("d28/iris")["metadata"]["uid"]
        assert by_model(pipeline, uid) == {"1": "UNDEPLOYED"}
        await has_state(pipeline, uid, "DEPLOYED")
