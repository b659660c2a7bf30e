"""What changed on an object, in words."""

import pytest
from msgspec.structs import replace

from replay.life.words import SPEC_NAMED, changed_words, first_words
from shared.objects import Address, Component, Condition, Model, ModelFormat, ModelStatus, Spec, Status
from tests.unit.consumer.worlds import MODEL, PREFIX, READY, VERSION, an_object

STOP = {"serving.kserve.io/stop": "true"}
BEFORE = an_object(status=READY)
FAILED = replace(READY, model_status=ModelStatus(transition_status="BlockedByFailedLoad"))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (an_object({MODEL: "2", VERSION: "11"}, status=READY), ("label registered-model-id 1 -> 2",)),
        (an_object({MODEL: "1"}, status=READY), ("label model-version-id removed, was 11",)),
        (an_object({MODEL: "1", VERSION: ""}, status=READY), ('label model-version-id 11 -> ""',)),
        (an_object(annotations=STOP, status=READY), ("stopped",)),
        (an_object(annotations={PREFIX + "url": "http://r"}, status=READY), ("annotation url http://r",)),
        (an_object(status=replace(READY, url="http://new")), ("url http://iris.example -> http://new",)),
        (an_object(status=replace(READY, url="")), ("url removed",)),
        (an_object(status=replace(READY, address=Address("http://a"))), ()),
        (an_object(status=replace(READY, conditions=(Condition("Ready", "False"),))), ("Ready True -> False",)),
        (an_object(status=replace(READY, conditions=())), ("Ready True -> unknown",)),
        (an_object(status=FAILED), ("cannot be loaded: BlockedByFailedLoad",)),
        (an_object(status=replace(READY, deployment_mode="Knative")), ("mode Standard -> Knative",)),
        (an_object(status=replace(READY, serving_runtime_name="mlserver")), ("runtime mlserver",)),
        (an_object(status=READY, going=True), ("is being deleted since 2026-11-30T11:00:00Z",)),
        (an_object(status=READY, version="11"), ()),
    ],
)
def test_a_change_is_told(now, words):
    assert changed_words(BEFORE, now, PREFIX) == words


def test_what_ends_is_told_as_well():
    assert changed_words(an_object(annotations=STOP), an_object(), PREFIX) == ("started again",)
    assert changed_words(an_object(status=FAILED), BEFORE, PREFIX) == ("can be loaded again",)
    reached = Status(deployment_mode="Standard", address=Address("http://a"))
    assert changed_words(an_object(status=reached), an_object(), PREFIX) == ("address removed",)


def test_the_label_of_another_prefix_keeps_it():
    now = an_object({"modelregistry.opendatahub.io/registered-model-id": "1", MODEL: "1", VERSION: "11"})
    assert changed_words(an_object(), now, PREFIX) == ("label modelregistry.opendatahub.io/registered-model-id 1",)


def test_of_a_spec_a_few_changes_are_named_and_the_others_counted():
    model = Model(ModelFormat("onnx", "2"), storage_uri="s3://models/other", runtime="triton")
    changed = Spec(predictor=Component(model=model), transformer=Component(model=Model(runtime="t")))
    words = changed_words(an_object(), an_object(spec=changed), PREFIX)
    assert words[0] == "spec.predictor.model.modelFormat.name sklearn -> onnx"
    assert (len(words), words[-1]) == (SPEC_NAMED + 1, "1 more of the spec")


def test_a_long_text_is_cut():
    [words] = changed_words(BEFORE, an_object(status=replace(READY, url="http://" + "x" * 500)), PREFIX)
    assert (len(words) < 200, words.endswith("…")) == (True, True)


def test_the_first_event_tells_what_there_is():
    words = first_words(an_object(annotations=STOP, status=READY), PREFIX)
    assert words[:3] == ("label model-version-id 11", "label registered-model-id 1", "stopped")
    assert {"Ready True", "url http://iris.example", "mode Standard"} <= set(words)
    assert first_words(an_object({}, status=Status()), PREFIX) == ("no label of ours",)
