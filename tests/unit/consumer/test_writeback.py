"""What a write costs: the table of classes, and every state of real objects, judged by hand from what their story says.

`JUDGED` was written from the stories' own notes ("scaled to 3", "id label in mid rollout") and the states around them,
before the function was asked. Each line holds for the states of that object up to and including a resourceVersion.
"""

import itertools

import msgspec
import pytest
from msgspec.structs import replace

from consumer.writeback import KServeLists, Target, WriteBack, WriteBackForm, WriteCost, cost_of, deployment_mode
from shared.objects import (
    Component,
    Condition,
    Metadata,
    ModelCopies,
    ModelStates,
    ModelStatus,
    Present,
    ReducedObject,
    Spec,
    Status,
)  # fmt: skip
from shared.reduce import reduce_object
from tests.unit.shared.captured import watch_events

KEY = "modelregistry.kubeflow.org/inference-service-id"
LABEL = Target(KEY, WriteBackForm.LABEL)
ANNOTATION = Target(KEY, WriteBackForm.ANNOTATION)
FREE, POD_START, RESTART = WriteCost.FREE, WriteCost.POD_START, WriteCost.RESTART

NEVER = (POD_START, "never been Ready: no pod serves, the one that starts is thrown away")
SERVES = (RESTART, "Ready, and its pods serve")
ROLLS = (POD_START, "one replica in a rolling update: the new pod does not serve yet")
BOTH = (RESTART, "the new pod serves already, the old one is not gone yet")
STOPPED = (FREE, "stopped: there is no pod")
NOTHING = (FREE, "Ready with 0 replicas: there is no pod")
SCALES = (RESTART, "not Ready because it scales up, while a pod serves")
SEVERAL = (RESTART, "a rollout of several replicas: some of the new pods serve")
GROWS = (RESTART, "grows from 0 replicas: not known from scaling up while pods serve")

JUDGED = {
    "write-back-label": {
        "ready": [
            ("4240", *NEVER), ("4250", *SERVES), ("4273", *ROLLS), ("4289", *BOTH), ("4480", *SERVES),
            ("4546", *ROLLS), ("4565", *BOTH), ("4571", *SERVES),
        ],
        "early": [
            ("4354", *NEVER), ("4363", *ROLLS), ("4381", *BOTH), ("4576", *SERVES), ("4627", *ROLLS),
            ("4643", *BOTH), ("4650", *SERVES),
        ],
        "starting": [
            ("4443", *NEVER), ("4452", *ROLLS), ("4470", *BOTH), ("4652", *SERVES), ("4674", *STOPPED),
            ("4703", *NEVER), ("4712", *SERVES),
        ],
    },
    "write-back-not-ready": {
        "model": [
            ("14889", *NEVER), ("14898", *SERVES), ("14960", *SCALES), ("15057", *SEVERAL), ("15083", *SERVES),
            ("15109", *NOTHING), ("15133", *GROWS), ("15143", *SERVES), ("15208", *ROLLS),
        ],
    },
    "write-back-replicas": {
        "model": [
            ("394", *NEVER), ("404", *SERVES), ("458", *SCALES), ("473", *SERVES), ("632", *SEVERAL),
            ("639", *SERVES), ("902", *SEVERAL), ("938", *SERVES),
        ],
    },
    "scaling": {
        "cpu": [("2153", *NEVER), ("2164", *SERVES), ("2302", *SCALES), ("2305", *SERVES)],
        "external": [("2197", *NEVER), ("2206", *SERVES), ("2285", *SCALES), ("2322", *SERVES), ("2337", *NOTHING)],
        "zero": [("2367", *NEVER), ("2377", *SERVES)],
    },
    "stop-and-resume": {
        "model": [
            ("2428", *NEVER), ("2439", *SERVES), ("2460", *STOPPED), ("2489", *NEVER), ("2513", *SERVES),
            ("2530", *STOPPED),
        ],
        "parked": [("2506", *NEVER), ("2511", *STOPPED)],
    },
    "never-ready-then-fixed": {
        "runtime": [("3054", *NEVER), ("3073", *SERVES)],
        "format": [("3036", *NEVER), ("3098", *SERVES)],
        "storage": [("3037", *NEVER), ("3110", *SERVES), ("3192", *ROLLS)],
        "image": [("3043", *NEVER), ("3058", *SERVES)],
    },
    "modelmesh": {
        "model": [("5241", FREE, "ModelMesh: the pods are the ServingRuntime's")],
        "trans": [("5252", RESTART, "ModelMesh with a transformer, which has pods of its own: not known")],
    },
    "llm-inference-service": {
        name: [("12516", FREE, "an LLMInferenceService gives its pods nothing of its metadata")]
        for name in ("chat", "routed", "old")
    },
}  # fmt: skip


def judged() -> list[tuple[str, str, str, ReducedObject, WriteCost]]:
    cases = []
    for story, objects in JUDGED.items():
        for _, raw in watch_events(story):
            obj = msgspec.convert(reduce_object(raw), ReducedObject)
            version = int(obj.metadata.resource_version)
            cost, why = next(row[1:] for row in objects[obj.metadata.name] if version <= int(row[0]))
            cases.append((story, f"{obj.metadata.name}@{version}", why, obj, cost))
    return cases


@pytest.mark.parametrize("story", JUDGED)
def test_every_state_of_a_real_object_costs_what_its_story_says(story):
    wrong = [
        f"{name}: {why}: {cost}, not {cost_of(obj, LABEL)}"
        for of, name, why, obj, cost in judged()
        if of == story and cost_of(obj, LABEL) is not cost
    ]
    assert wrong == []


def test_the_stories_hold_every_class():
    assert len(judged()) > 300
    assert {cost for *_, cost in judged()} == set(WriteCost)


READY = Condition("Ready", "True")
NOT_READY = Condition("Ready", "False")
SETTLED = Condition("PredictorReady", "True", "NewReplicaSetAvailable")
CANARIES = Spec(predictor=Component(), canary=(Present(),))
WORKERS = Spec(predictor=Component(worker_spec=Present()))
ROLLING = Condition("PredictorReady", "True", "MinimumReplicasAvailable")
LOADED = ModelStatus("UpToDate", ModelStates("Loaded", "Loaded"), ModelCopies(1))
EMPTY = replace(LOADED, copies=ModelCopies(0))
ONE, TWO = Spec(predictor=Component()), Spec(predictor=Component(), transformer=Component())
PRESET = Component(labels={KEY: "0"})
LISTS = KServeLists(annotations=frozenset({KEY}), labels=frozenset({KEY}))


def an_object(mode="Standard", *conditions, spec=ONE, model=LOADED, url="http://x", kind="InferenceService"):
    status = Status(url=url, conditions=conditions, deployment_mode=mode, model_status=model)
    return ReducedObject(kind, Metadata("a", "b", "u", "5"), spec, status)


@pytest.mark.parametrize(
    ("obj", "target", "cost"),
    [
        pytest.param(an_object("Standard", READY, SETTLED), LABEL, RESTART, id="Ready"),
        pytest.param(an_object("Standard", NOT_READY, SETTLED), LABEL, RESTART, id="not Ready but serving"),
        pytest.param(an_object("Standard", Condition("Stopped", "True")), LABEL, FREE, id="stopped"),
        pytest.param(an_object("Knative", Condition("Stopped", "True")), LABEL, FREE, id="stopped in Knative mode"),
        pytest.param(an_object("Standard", Condition("Stopped", "False")), LABEL, RESTART, id="not stopped"),
        pytest.param(an_object("Standard", READY, SETTLED, model=EMPTY), LABEL, FREE, id="0 replicas"),
        pytest.param(
            an_object("Standard", READY, SETTLED, model=EMPTY, spec=TWO), LABEL, RESTART,
            id="0 replicas, but a transformer",
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
