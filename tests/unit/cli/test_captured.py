"""What a capture needs in the registry."""

from cli.captured import seeds
from sandbox.cluster.play import Line, RecordedEvent


def line(model: str | None, version: str | None, prefix: str = "modelregistry.kubeflow.org/") -> Line:
    pairs = {f"{prefix}registered-model-id": model, f"{prefix}model-version-id": version}
    labels = {key: value for key, value in pairs.items() if value is not None}
    return Line(event=RecordedEvent("ADDED", {"metadata": {"name": "x", "resourceVersion": "1", "labels": labels}}))


def test_models_and_versions_are_those_that_labels_name():
    found = seeds([line("1", "7"), line("2", "8"), line("1", "7"), Line(did="something")])
    assert (found.models, found.versions) == (("1", "2"), {"7": "1", "8": "2"})


def test_a_version_belongs_to_the_model_beside_which_it_stands_first():
    assert seeds([line("1", "7"), line("2", "7")]).versions == {"7": "1"}


def test_labels_that_are_no_ids_or_missing_need_nothing():
    found = seeds([line("", "7"), line("abc", "8"), line(None, "9"), line("3", "x"), line("4", None)])
    assert (found.models, found.versions) == (("3", "4"), {})


def test_labels_under_the_other_known_prefix_count():
    assert seeds([line("5", "6", "modelregistry.opendatahub.io/")]).versions == {"6": "5"}


def test_a_version_may_have_the_id_of_a_model():
    assert seeds([line("1", "1"), line("2", "3")]).versions == {"1": "1", "3": "2"}
