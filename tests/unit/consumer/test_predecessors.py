"""Which records and finalizers are a predecessor's, and the patch that takes the latter off."""

import pytest

from consumer.predecessors import FINALIZERS, is_about, named_object, strip_operations
from consumer.records import PROPERTY, Record, string_property

UID = "0b7c4b0e-6f39-4a8e-9d3b-5f4c8a1f2e11"
KUBEFLOW, ODH = "modelregistry.kubeflow.org/finalizer", "modelregistry.opendatahub.io/finalizer"
KSERVE = "inferenceservice.finalizers"


def record(name: str = f"iris/{UID}", **others: object) -> Record:
    return Record(**{"id": "7", "name": name, "external_id": "", "environment_id": "3", "model_id": "1"} | others)


def test_a_predecessors_record_is_known_by_its_name_alone():
    assert named_object(record(properties={"url": string_property("http://iris")})) == ("iris", UID)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(record(external_id=f"kserve:{UID}/1"), id="with an externalId"),
        pytest.param(
            record(properties={PROPERTY: string_property("{}")}), id="with a property of ours, edited by hand"
        ),
        pytest.param(record(name=f"iris/{UID}/2"), id="named as ours are for a second model"),
        pytest.param(record(name="iris/prod"), id="named by a person"),
        pytest.param(record(name=f"iris/{UID.upper()}"), id="with no uid of Kubernetes"),
        pytest.param(record(name=UID), id="without a name"),
        pytest.param(record(model_id=""), id="of no model"),
    ],
)
def test_a_record_is_no_predecessors(other):
    assert named_object(other) is None


@pytest.mark.parametrize(
    ("found", "about"),
    [
        (record(), True),
        (record(name=f"iris/{UID}/2"), True),
        (record(name="x", external_id=f"kserve:{UID}/2"), True),
        (record(name=f"rose/{UID}"), False),
        (record(name=f"iris/{UID}0"), False),
        (record(name="x", external_id=f"kserve:{UID}0/2"), False),
    ],
)
def test_a_record_is_about_an_object_when_name_or_external_id_says_its_uid(found, about):
    assert is_about(found, "iris", UID) is about


def test_both_prefixes_and_nothing_else_are_a_predecessors():
    assert set(FINALIZERS) == {KUBEFLOW, ODH}


def test_each_finalizer_is_tested_at_its_place_and_the_last_goes_first():
    assert strip_operations("u", [KUBEFLOW, KSERVE, ODH]) == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/finalizers/0", "value": KUBEFLOW},
        {"op": "test", "path": "/metadata/finalizers/2", "value": ODH},
        {"op": "remove", "path": "/metadata/finalizers/2"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]


@pytest.mark.parametrize("present", [[], [KSERVE], [f"{KUBEFLOW}s", "kubeflow.org/finalizer"]])
def test_where_none_is_a_predecessors_there_is_nothing_to_patch(present):
    assert strip_operations("u", present) == []
