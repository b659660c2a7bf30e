"""The demo's manifests."""

import pytest

from cli.demo.manifests import manifests

VALUES = {
    "fraud": "1",
    "fraud_1": "2",
    "fraud_2": "3",
    "assistant": "4",
    "assistant_1": "5",
    "assistant_2": "6",
    "unknown": "99",
    "secret": "s3cr3t-1",
}


def test_there_are_a_dozen_shapes_and_no_two_objects_share_a_name():
    found = manifests(VALUES)
    assert len(found) == len({manifest.name for manifest in found}) == len({manifest.shape for manifest in found}) == 12
    assert found[0].shape == "model format"


def test_labels_are_texts_as_kubernetes_wants_them():
    labels = [value for each in manifests(VALUES) for value in each.obj["metadata"].get("labels", {}).values()]
    assert labels
    assert all(isinstance(value, str) for value in labels)


def test_a_secret_is_planted_in_environment_arguments_userinfo_and_query():
    text = " ".join(str(manifest.obj["spec"]) for manifest in manifests(VALUES))
    assert "'value': 's3cr3t-1'" in text
    assert "--token=s3cr3t-1" in text
    assert "https://reader:s3cr3t-1@" in text
    assert "X-Amz-Signature=s3cr3t-1" in text


def test_a_placeholder_without_value_is_an_error():
    with pytest.raises(KeyError, match="secret"):
        manifests({name: value for name, value in VALUES.items() if name != "secret"})
