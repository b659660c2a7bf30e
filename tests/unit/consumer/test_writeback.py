"""What a write costs: the table of classes. `test_write_costs.py` has every recorded state of real objects."""

import itertools

import pytest
from msgspec.structs import replace

from consumer.writeback import KServeLists, Target, WriteBack, WriteBackForm, WriteCost, cost_of, deployment_mode
from shared.objects import (
    Canary,
    Component,
    Condition,
    Labelled,
    Metadata,
    ModelCopies,
    ModelStates,
    ModelStatus,
    Present,
    ReducedObject,
    Spec,
    Status,
)  # fmt: skip

KEY = "modelregistry.kubeflow.org/inference-service-id"
LABEL = Target(KEY, WriteBackForm.LABEL)
ANNOTATION = Target(KEY, WriteBackForm.ANNOTATION)
FREE, POD_START, RESTART = WriteCost.FREE, WriteCost.POD_START, WriteCost.RESTART

READY = Condition("Ready", "True")
NOT_READY = Condition("Ready", "False")
SETTLED = Condition("PredictorReady", "True", "NewReplicaSetAvailable")
CANARIES = Spec(predictor=Component(), canary=(Canary(Labelled()),))
WORKERS = Spec(predictor=Component(worker_spec=Present()))
ROLLING = Condition("PredictorReady", "True", "MinimumReplicasAvailable")
LOADED = ModelStatus("UpToDate", ModelStates("Loaded", "Loaded"), ModelCopies(1))
EMPTY = replace(LOADED, copies=ModelCopies(0))
ONE, TWO = Spec(predictor=Component()), Spec(predictor=Component(), transformer=Component())
PRESET = Component(labels={KEY: "0"})
LISTS = KServeLists(annotations=frozenset({KEY}), labels=frozenset({KEY}))


STOPPED = Condition("Stopped", "True")
PRESET_CANARY = Canary(Labelled(PRESET.labels))


def stopping(obj, value="true"):
    return replace(obj, metadata=replace(obj.metadata, annotations={"serving.kserve.io/stop": value}))


def resuming(obj, value=None):
    """Return it as KServe has it between the end of the annotation and its new status, which has nothing in it yet."""
    emptied = replace(obj, status=replace(obj.status, url="", model_status=ModelStatus()))
    return emptied if value is None else stopping(emptied, value)


def an_object(mode="Standard", *conditions, spec=ONE, model=LOADED, url="http://x", kind="InferenceService"):
    status = Status(url=url, conditions=conditions, deployment_mode=mode, model_status=model)
    return ReducedObject(kind, Metadata("a", "b", "u", "5"), spec, status)


@pytest.mark.parametrize(
    ("obj", "target", "cost"),
    [
        pytest.param(an_object("Standard", READY, SETTLED), LABEL, RESTART, id="Ready"),
        pytest.param(an_object("Standard", NOT_READY, SETTLED), LABEL, RESTART, id="not Ready but serving"),
        pytest.param(stopping(an_object("Standard", STOPPED)), LABEL, FREE, id="stopped"),
        pytest.param(stopping(an_object("Standard", STOPPED), "True"), LABEL, FREE, id="stopped, in any case"),
        pytest.param(stopping(an_object("Knative", STOPPED)), LABEL, FREE, id="stopped in Knative mode"),
        pytest.param(resuming(an_object("Standard", STOPPED)), LABEL, POD_START, id="resuming"),
        pytest.param(resuming(an_object("Standard", STOPPED), "false"), LABEL, POD_START, id="resuming by stop=false"),
        pytest.param(resuming(an_object("Knative", STOPPED)), LABEL, RESTART, id="resuming in Knative mode"),
        pytest.param(an_object("Standard", STOPPED), LABEL, RESTART, id="resuming, and it serves"),
        pytest.param(
            stopping(an_object("Standard", READY, SETTLED)), LABEL, RESTART, id="to be stopped, and it serves still",
        ),
        pytest.param(an_object("Standard", Condition("Stopped", "False")), LABEL, RESTART, id="not stopped"),
        pytest.param(an_object("Standard", READY, SETTLED, model=EMPTY), LABEL, FREE, id="0 replicas"),
        pytest.param(
            an_object("Standard", READY, SETTLED, model=EMPTY, spec=TWO), LABEL, RESTART,
            id="0 replicas, but a transformer",
        ),
        pytest.param(
            an_object("Standard", READY, SETTLED, model=EMPTY, spec=CANARIES), LABEL, RESTART,
            id="0 replicas, but canaries",
        ),
        pytest.param(
            an_object("Standard", READY, SETTLED, model=EMPTY, spec=WORKERS), LABEL, RESTART,
            id="0 replicas, but workers",
        ),
        pytest.param(an_object("Standard", NOT_READY, model=EMPTY), LABEL, RESTART, id="0 replicas, growing"),
        pytest.param(an_object("Knative", READY, model=EMPTY), LABEL, RESTART, id="0 replicas in Knative mode"),
        pytest.param(
            an_object("Standard", READY, SETTLED, model=replace(LOADED, copies=None)), LABEL, RESTART,
            id="copies not known",
        ),
        pytest.param(an_object("Standard", READY, ROLLING), LABEL, POD_START, id="one replica rolling"),
        pytest.param(
            an_object("Standard", READY, ROLLING, model=replace(LOADED, copies=ModelCopies(2))), LABEL, RESTART,
            id="two replicas rolling",
        ),
        pytest.param(an_object("Standard", NOT_READY, ROLLING), LABEL, RESTART, id="rolling and not Ready"),
        pytest.param(an_object("Standard", READY, ROLLING, spec=TWO), LABEL, RESTART, id="rolling with transformer"),
        pytest.param(an_object("Standard", READY), LABEL, RESTART, id="no reason given (KServe before 0.16)"),
        pytest.param(an_object("Standard", READY, ROLLING, spec=CANARIES), LABEL, RESTART, id="rolling with canaries"),
        pytest.param(an_object("Standard", READY, ROLLING, spec=WORKERS), LABEL, RESTART, id="rolling with workers"),
        pytest.param(an_object("Knative", READY, ROLLING), LABEL, RESTART, id="rolling in Knative mode"),
        pytest.param(an_object("Standard", url="", model=ModelStatus()), LABEL, POD_START, id="never Ready"),
        pytest.param(an_object("Standard", model=ModelStatus()), LABEL, RESTART, id="never Ready, but a url"),
        pytest.param(an_object("Standard", url=""), LABEL, RESTART, id="no url, but an active model"),
        pytest.param(an_object("Knative", url="", model=ModelStatus()), LABEL, RESTART, id="never Ready, Knative"),
        pytest.param(an_object("", url="", model=ModelStatus()), LABEL, RESTART, id="mode not known"),
        pytest.param(an_object("ModelMesh", READY), LABEL, FREE, id="ModelMesh"),
        pytest.param(an_object("ModelMesh", READY, spec=TWO), LABEL, RESTART, id="ModelMesh with transformer"),
        pytest.param(an_object("", READY, kind="LLMInferenceService"), LABEL, FREE, id="LLMInferenceService"),
        pytest.param(an_object("Standard", READY, spec=Spec(predictor=PRESET)), LABEL, FREE, id="key preset"),
        pytest.param(
            an_object("Standard", READY, spec=Spec(predictor=PRESET)), ANNOTATION, RESTART,
            id="a preset label says nothing about an annotation",
        ),
        pytest.param(
            an_object("Standard", READY, spec=Spec(predictor=PRESET, transformer=Component())), LABEL, RESTART,
            id="key preset in one component of two",
        ),
        pytest.param(
            an_object("Standard", READY, spec=Spec(predictor=PRESET, transformer=PRESET)), LABEL, FREE,
            id="key preset in every component",
        ),
        pytest.param(
            an_object("Standard", READY, spec=Spec(predictor=PRESET, canary=(PRESET_CANARY, Canary(Labelled())))),
            LABEL, RESTART, id="key preset, but not in every canary",
        ),
        pytest.param(
            an_object("Standard", READY, spec=Spec(predictor=PRESET, canary=(Canary(),))), LABEL, RESTART,
            id="key preset, but a canary is not known",
        ),
        pytest.param(
            an_object("Standard", READY, spec=Spec(predictor=PRESET, canary=(PRESET_CANARY,))), LABEL, FREE,
            id="key preset in the canary, too",
        ),
        pytest.param(
            an_object("Standard", READY, spec=Spec(predictor=replace(PRESET, worker_spec=Present()))), LABEL, FREE,
            id="key preset: workers have their predictor's labels",
        ),
        pytest.param(an_object("Standard", READY, spec=Spec()), LABEL, RESTART, id="no component at all"),
        pytest.param(an_object("Standard", READY), ANNOTATION, RESTART, id="annotation"),
        pytest.param(an_object("Standard", READY), replace(ANNOTATION, lists=LISTS), FREE, id="annotation, listed"),
        pytest.param(an_object("Knative", READY), replace(ANNOTATION, lists=LISTS), FREE, id="the same in Knative"),
        pytest.param(an_object("Standard", READY), replace(LABEL, lists=LISTS), RESTART, id="a listed label rolls"),
        pytest.param(an_object("Knative", READY), replace(LABEL, lists=LISTS), FREE, id="a listed label in Knative"),
        pytest.param(
            an_object("Knative", READY), Target(KEY, WriteBackForm.LABEL, KServeLists(annotations=frozenset({KEY}))),
            RESTART, id="the list of annotations says nothing about a label",
        ),
    ],
)  # fmt: skip
def test_each_state_of_the_table_costs_what_it_says(obj, target, cost):
    assert cost_of(obj, target) is cost


@pytest.mark.parametrize(
    ("status", "annotation", "mode"),
    [
        ("Standard", "Knative", "Standard"),
        ("", "Knative", "Knative"),
        ("", "", ""),
        ("RawDeployment", "", "Standard"),
        ("", "Serverless", "Knative"),
        ("ModelMesh", "", "ModelMesh"),
    ],
)
def test_the_mode_is_that_of_the_status_then_that_of_the_annotation(status, annotation, mode):
    obj = an_object(status)
    annotations = {"serving.kserve.io/deploymentMode": annotation} if annotation else {}
    assert deployment_mode(replace(obj, metadata=replace(obj.metadata, annotations=annotations))) == mode


def test_the_more_is_allowed_the_more_is_written():
    allowed = {mode: {cost for cost in WriteCost if mode.allows(cost)} for mode in WriteBack}
    assert allowed == {
        WriteBack.OFF: set(),
        WriteBack.FREE: {FREE},
        WriteBack.SAFE: {FREE, POD_START},
        WriteBack.ALWAYS: {FREE, POD_START, RESTART},
    }
    for less, more in itertools.pairwise(WriteBack):
        assert allowed[less] < allowed[more]


def test_the_value_is_looked_for_where_the_target_says():
    obj = an_object()
    obj = replace(obj, metadata=replace(obj.metadata, labels={KEY: "1"}, annotations={KEY: "2"}))
    assert (LABEL.value_on(obj), ANNOTATION.value_on(obj)) == ("1", "2")
    assert LABEL.value_on(an_object()) is None
