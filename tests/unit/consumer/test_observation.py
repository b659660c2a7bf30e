"""What an event or a GET shows, and what the registry should say because of it."""

import msgspec
import pytest
from msgspec.structs import replace

from consumer.freshness import Freshness
from consumer.observation import PassedVersion, Wanted, observe_live, want
from shared.errors import BadEventError
from shared.objects import Address, Component, Condition, Kind, Model, ModelFormat, ModelStatus, Spec, Status
from tests.unit.consumer.worlds import KEY, MODEL, PREFIX, READY, UID, VERSION, an_object, seen

ODH = "modelregistry.opendatahub.io/"


def wanted(obj=None, prefix=PREFIX, **others) -> Wanted:
    return want(seen(obj, **others), prefix)


def test_the_labels_say_model_and_version():
    assert (wanted().model, wanted().version) == ("1", "11")


def test_without_the_model_label_it_is_not_indexed():
    assert wanted(an_object({VERSION: "11"})).model is None


def test_without_the_version_label_there_is_no_version():
    assert wanted(an_object({MODEL: "1"})).version == ""


def test_an_empty_model_label_is_a_label():
    assert wanted(an_object({MODEL: ""})).model == ""


@pytest.mark.parametrize(
    ("labels", "prefix", "model", "complains"),
    [
        ({ODH + "registered-model-id": "5"}, PREFIX, "5", False),
        ({MODEL: "1", ODH + "registered-model-id": "1"}, PREFIX, "1", False),
        ({MODEL: "1", ODH + "registered-model-id": "5"}, PREFIX, "1", True),
        ({MODEL: "1", ODH + "registered-model-id": "5"}, ODH, "5", True),
        ({"models.example.com/registered-model-id": "9", MODEL: "1"}, "models.example.com/", "9", True),
        ({MODEL: "1"}, "models.example.com/", "1", False),
    ],
)
def test_both_prefixes_are_read_and_the_configured_one_wins(labels, prefix, model, complains):
    found = wanted(an_object(labels), prefix)
    assert found.model == model
    assert ("registered-model-id" in found.contradiction) is complains


@pytest.mark.parametrize(
    ("value", "stopped"),
    [("true", True), ("True", True), ("TRUE", True), ("false", False), ("yes", False), ("", False)],
)
def test_the_stop_annotation_stops_with_true_in_any_case_as_in_kserve(value, stopped):
    found = wanted(an_object(annotations={"serving.kserve.io/stop": value}))
    assert found.stopped is stopped
    assert found.deployed is not stopped


@pytest.mark.parametrize(
    ("observation", "deployed"),
    [
        (seen(), True),
        (seen(gone=True), False),
        (seen(an_object(going=True)), False),
        (seen(an_object({})), False),
        (seen(an_object(annotations={"serving.kserve.io/stop": "true"})), False),
    ],
    ids=["lives", "gone", "going", "unlabelled", "stopped"],
)
def test_deployed_is_what_lives_runs_and_is_indexed(observation, deployed):
    assert want(observation, PREFIX).deployed is deployed


@pytest.mark.parametrize(
    ("kind", "status", "url"),
    [
        (Kind.ISVC, Status(url="http://u", address=Address("http://a")), "http://u"),
        (Kind.ISVC, Status(address=Address("http://a")), "http://a"),
        (Kind.ISVC, Status(addresses=(Address("http://b"),)), ""),
        (Kind.LLMISVC, Status(url="http://u", addresses=(Address("http://b"), Address("http://c"))), "http://b"),
        (Kind.LLMISVC, Status(url="http://u"), "http://u"),
        (Kind.ISVC, Status(), ""),
    ],
)
def test_the_url_is_where_the_deployment_is_reached(kind, status, url):
    observation = seen(an_object(status=status))
    assert want(replace(observation, key=replace(KEY, kind=kind)), PREFIX).url == url


@pytest.mark.parametrize(
    ("spec", "status", "runtime"),
    [
        ("mine", Status(cluster_serving_runtime_name="c", serving_runtime_name="s"), "mine"),
        ("", Status(cluster_serving_runtime_name="c", serving_runtime_name="s"), "c"),
        ("", Status(serving_runtime_name="s"), "s"),
        ("", Status(), ""),
    ],
)
def test_the_runtime_is_the_chosen_one_unless_the_spec_names_one(spec, status, runtime):
    obj = an_object(spec=Spec(predictor=Component(model=Model(runtime=spec))), status=status)
    assert wanted(obj).runtime == runtime


def test_readiness_ends_with_the_object():
    assert wanted(an_object(status=READY)).ready
    assert not wanted(an_object(status=READY), gone=True).ready
    assert not wanted(an_object(status=Status(conditions=(Condition("Ready", "Unknown"),)))).ready


@pytest.mark.parametrize("state", ["BlockedByFailedLoad", "InvalidSpec"])
def test_a_load_failure_is_said_though_ready_stays_true(state):
    assert wanted(an_object(status=replace(READY, model_status=ModelStatus(state)))).load_failure == state
    assert wanted(an_object(status=replace(READY, model_status=ModelStatus("InProgress")))).load_failure == ""


@pytest.mark.parametrize(
    ("spec", "storage_uri", "model_format"),
    [
        (Spec(predictor=Component(model=Model(ModelFormat("onnx"), storage_uri="s3://a"))), "s3://a", "onnx"),
        (Spec(model=Model(uri="hf://org/m")), "hf://org/m", ""),
        (Spec(), "", ""),
    ],
    ids=["isvc", "llmisvc", "empty"],
)
def test_format_and_place_of_the_model_are_those_of_its_kind(spec, storage_uri, model_format):
    found = wanted(an_object(spec=spec))
    assert (found.storage_uri, found.model_format) == (storage_uri, model_format)


def raw(**metadata):
    return {
        "kind": "InferenceService",
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "uid": UID, "resourceVersion": "77"} | metadata,
    }


LAST = replace(
    seen(an_object(version="41"), models=("1", "2"), epoch=9), passed=(PassedVersion("1", "1", "1", "t", 1),)
)


def test_a_live_object_has_the_epoch_and_the_models_of_the_last_event():
    live = observe_live(LAST, raw(labels={MODEL: "2"}), PREFIX)
    assert live.freshness == Freshness(9, "77")
    assert (live.models, live.key, live.uid, live.passed) == (("1", "2"), KEY, UID, ())
    assert live.digest != LAST.digest
    assert live.obj.metadata.labels == {MODEL: "2"}


def test_a_live_object_that_goes_is_deleted():
    assert observe_live(LAST, raw(deletionTimestamp="2026-11-30T11:00:00Z"), PREFIX).freshness.deleted


def test_a_live_object_shows_labels_under_a_prefix_of_ones_own():
    labels = {"models.example.com/registered-model-id": "1"}
    live = observe_live(LAST, raw(labels=labels), "models.example.com/")
    assert want(live, "models.example.com/").model == "1"


@pytest.mark.parametrize("answer", [None, [], {}, {"metadata": {}}], ids=repr)
def test_an_answer_that_is_no_object_is_refused(answer):
    with pytest.raises(BadEventError):
        observe_live(LAST, answer, PREFIX)


def test_the_same_object_shows_the_same_by_event_and_by_get():
    obj = an_object(status=READY, version="41")
    live = observe_live(seen(obj), msgspec.json.decode(msgspec.json.encode(obj)), PREFIX)
    assert want(live, PREFIX) == want(seen(obj), PREFIX)
    assert live.freshness == seen(obj).freshness
