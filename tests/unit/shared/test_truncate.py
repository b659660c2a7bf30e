"""An object that is too large for a message is truncated, and keeps what decides."""

from typing import Any

import msgspec
import pytest

from shared.objects import ReducedObject
from shared.reduce import reduce_object, truncate
from tests.unit.shared.full_objects import A_COMPONENT, CONTAINER, ISVC, LLMISVC, METADATA, PREFIX, STATUS, with_value

HUGE = 1_200_000


def many(count: int, value: Any) -> list[Any]:
    return [value] * count


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("spec", "predictor", "containers"), many(20_000, CONTAINER), id="containers"),
        pytest.param(("spec", "canary"), many(500, {"trafficPercent": 1, "predictor": A_COMPONENT}), id="canaries"),
        pytest.param(("spec", "predictor", "storageUris"), many(20_000, {"uri": "s3://" + "x" * 60}), id="URIs"),
        pytest.param(("spec", "predictor", "model", "storageUri"), "s3://" + "x" * HUGE, id="a long URI"),
        pytest.param(("spec", "predictor", "model", "runtime"), "雪" * (HUGE // 3), id="a long name in Chinese"),
        pytest.param(("spec", "predictor", "name"), "\x01" * HUGE, id="control characters"),
        pytest.param(("spec", "predictor", "labels"), {f"{PREFIX}{n}": "x" * 63 for n in range(12_000)}, id="presets"),
        pytest.param(("spec", "baseRefs"), many(1200, {"name": "雪" * 1000}), id="references"),
        pytest.param(
            ("metadata", "labels"),
            {**METADATA["labels"], **{f"{PREFIX}{n}": "x" * 63 for n in range(12_000)}},
            id="labels",
        ),
        pytest.param(
            ("metadata", "annotations"),
            {**METADATA["annotations"], **{f"{PREFIX}{n}": "雪" * 1024 for n in range(400)}},
            id="annotations, before the one that stops",
        ),
        pytest.param(
            ("metadata", "annotations"),
            {**METADATA["annotations"], "serving.kserve.io/x": "x" * HUGE},
            id="a long annotation",
        ),
        pytest.param(
            ("status", "conditions"),
            [*many(1200, {"type": "Other", "status": "False", "reason": "雪" * 1000}), *STATUS["conditions"]],
            id="conditions, before Ready",
        ),
        pytest.param(("status", "addresses"), many(1200, {"url": "http://" + "雪" * 1000}), id="addresses"),
    ],
)
def test_a_huge_object_fits_when_truncated_and_keeps_what_decides(path, value):
    huge = reduce_object(with_value(ISVC if path[1] != "baseRefs" else LLMISVC, path, value))
    encoded = msgspec.json.encode(truncate(huge))
    assert len(encoded) <= 64 * 1024
    small, whole = msgspec.json.decode(encoded, type=ReducedObject), msgspec.convert(huge, ReducedObject)
    assert small.metadata.labels[PREFIX + "registered-model-id"] == "1"
    assert small.metadata.annotations["serving.kserve.io/stop"] == "true"
    assert small.metadata.deletion_timestamp == whole.metadata.deletion_timestamp
    for condition in ("Ready", "Stopped", "PredictorReady"):
        assert small.status.condition(condition).status == whole.status.condition(condition).status
    assert len(small.spec.components) == len(whole.spec.components)
    assert small.status.model_status == whole.status.model_status
    assert small.status.deployment_mode == whole.status.deployment_mode
    assert small.kind == whole.kind


@pytest.mark.parametrize("obj", [ISVC, LLMISVC], ids=["isvc", "llmisvc"])
def test_truncating_an_object_of_ordinary_size_takes_nothing_that_decides(obj):
    reduced = reduce_object(obj)
    small, whole = (msgspec.convert(form, ReducedObject) for form in (truncate(reduced), reduced))
    assert small.spec == whole.spec
    assert small.status.model_status == whole.status.model_status
    assert (small.status.url, small.status.address) == (whole.status.url, whole.status.address)
    assert small.status.addresses[:1] == whole.status.addresses[:1]
    assert small.metadata.labels.items() >= {PREFIX + "registered-model-id": "1"}.items()


def test_a_truncated_canary_keeps_the_id_that_is_preset_in_it():
    canaries = [
        {"trafficPercent": 10, "predictor": {"labels": {f"{PREFIX}inference-service-id": "0"}}},
        {"predictor": {}},
    ]
    huge = reduce_object(with_value(ISVC, ("spec", "canary"), canaries))
    small, whole = (msgspec.convert(form, ReducedObject) for form in (truncate(huge), huge))
    assert small.spec.canary == whole.spec.canary
    assert [each.predictor is not None and bool(each.predictor.labels) for each in small.spec.canary] == [True, False]
