"""Nothing secret enters the reduced form, and no odd object breaks it.

What may stay is written down here a second time, by hand (`ALLOWED`), so that a field added to the one list without
the other is seen.
"""

import re
from typing import Any

import msgspec
import pytest

from shared.errors import BadEventError
from shared.objects import ReducedObject
from shared.reduce import digest_of, reduce_object, truncate
from tests.unit.shared.captured import every_object
from tests.unit.shared.full_objects import FRAMEWORK, ISVC, LLMISVC, METADATA, Path, pattern, places, with_value

COMPONENT = r"spec\.(predictor|transformer|explainer|canary\.\*\.predictor)"
REGISTRY_KEY = r"modelregistry\.(kubeflow\.org|opendatahub\.io)/[^.]+"
OUR_KEY = rf"((serving|networking)\.kserve\.io/[^.]+|{REGISTRY_KEY})"
ALLOWED = re.compile(
    "|".join(
        (
            r"apiVersion|kind",
            r"metadata\.(name|namespace|uid|resourceVersion|generation|creationTimestamp|deletionTimestamp)",
            rf"metadata\.(labels|annotations)\.{OUR_KEY}",
            rf"{COMPONENT}\.(name|scaleMetric|deploymentStrategy\.type|labels\.{REGISTRY_KEY})",
            rf"{COMPONENT}\.(minReplicas|maxReplicas|canaryTrafficPercent)",
            rf"{COMPONENT}\.(workerSpec\.)?containers\.\*\.(name|image)",
            rf"{COMPONENT}\.workerSpec\.(pipelineParallelSize|tensorParallelSize)",
            rf"{COMPONENT}\.({FRAMEWORK})\.(modelFormat\.(name|version)|runtime|runtimeVersion|protocolVersion)",
            rf"{COMPONENT}\.({FRAMEWORK})\.(storageUri|image|storage\.(key|path|schemaPath))",
            rf"{COMPONENT}\.storageUris\.\*\.(uri|mountPath)",
            r"spec\.canary\.\*\.trafficPercent",
            r"spec\.(model\.(uri|name)|replicas|baseRefs\.\*\.name)",
            r"status\.(url|address\.url|addresses\.\*\.url|conditions\.\*\.(type|status|reason))",
            r"status\.(deploymentMode|clusterServingRuntimeName|servingRuntimeName)",
            r"status\.modelStatus\.(transitionStatus|states\.(activeModelState|targetModelState)|copies\.totalCopies)",
        )
    )
)
IDENTITY = {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion"}


def leaves() -> list[tuple[str, Any, Path]]:
    return [
        (pattern(path), obj, path)
        for obj, path, value in places().values()
        if not isinstance(value, (dict, list)) and path
    ]


def written(obj: Any) -> tuple[str, str]:
    """Return what would enter the broker: the reduced form, and the truncated one."""
    reduced = reduce_object(obj)
    return msgspec.json.encode(reduced).decode(), msgspec.json.encode(truncate(reduced)).decode()


def test_the_places_are_those_of_real_objects_and_more():
    assert len(leaves()) > 500
    assert {"spec.predictor.model.storageUri", "status.components.predictor.url"} <= {name for name, _, _ in leaves()}


def test_a_word_survives_only_in_the_fields_that_are_allowed():
    survived = set()
    for name, obj, path in leaves():
        if name == "metadata.resourceVersion":
            continue
        if "CANARY" in "".join(written(with_value(obj, path, "CANARY"))):
            survived.add(name)
    assert {name for name in survived if not ALLOWED.fullmatch(name)} == set()
    assert {"spec.predictor.model.storageUri", "metadata.annotations.serving.kserve.io/stop"} <= survived


def test_a_secret_in_a_uri_survives_nowhere():
    for name, obj, path in leaves():
        if name not in IDENTITY:
            for uri in (
                "s3://CANARY:CANARY@host.example:80/path?CANARY=CANARY#CANARY",
                '{"a": ["https://CANARY:CANARY@host/x?CANARY"], "b": "https://u:CANARY@i/y"}',
            ):
                whole, slim = written(with_value(obj, path, uri))
                assert "CANARY" not in whole, name
                assert "CANARY" not in slim, name


def test_what_nobody_foresaw_does_not_survive():
    for obj, path, value in places().values():
        grown = (
            {**value, "CANARY": "CANARY", "canary": {"name": "CANARY", "value": "CANARY"}}
            if isinstance(value, dict)
            else [*value, "CANARY", ["CANARY"], {"value": "CANARY", "message": "CANARY"}]
        ) if isinstance(value, (dict, list)) else None  # fmt: skip
        if grown is not None:
            assert "CANARY" not in "".join(written(with_value(obj, path, grown))), pattern(path)


def test_an_object_in_the_place_of_a_text_does_not_survive():
    for name, obj, path in leaves():
        if name not in IDENTITY:
            assert "CANARY" not in "".join(written(with_value(obj, path, {"name": "CANARY", "CANARY": 1}))), name
            assert "CANARY" not in "".join(written(with_value(obj, path, ["CANARY"]))), name


@pytest.mark.parametrize("image", ["u:CANARY@registry.example/a:1", "https://registry.example/a?CANARY"])
def test_credentials_in_an_image_do_not_survive(image):
    path = ("spec", "predictor", "containers", 0, "image")
    assert "CANARY" not in "".join(written(with_value(ISVC, path, image)))


# --- odd objects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [7, -1, 1.5, True, None, "x", [], {}, [None], [[7]], {"x": None}], ids=repr)
def test_no_odd_value_in_any_place_raises_or_fails_to_decode(odd):
    tried = 0
    for obj, path, _ in places().values():
        changed = with_value(obj, path, odd)
        try:
            reduced = reduce_object(changed)
        except BadEventError:
            assert path in {(), ("metadata",)} or pattern(path) in IDENTITY
            continue
        tried += 1
        assert digest_of(reduced).startswith("v1:")
        for form in (reduced, truncate(reduced)):
            msgspec.json.decode(msgspec.json.encode(form), type=ReducedObject)
    assert tried > 500


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (None, "without metadata"),
        ([], "without metadata"),
        ({}, "without metadata"),
        ({"metadata": "x"}, "without metadata"),
        ({"metadata": {}}, "lacks metadata.name, namespace, resourceVersion, uid"),
        ({"metadata": {**METADATA, "uid": ""}}, "object team-a/iris lacks metadata.uid"),
        ({"metadata": {**METADATA, "uid": 7}}, "object team-a/iris lacks metadata.uid"),
        ({"metadata": {**METADATA, "resourceVersion": "x"}}, "resourceVersion 'x'"),
    ],
)
def test_an_object_without_identity_is_refused_with_what_it_lacks(raw, words):
    with pytest.raises(BadEventError, match=re.escape(words)):
        reduce_object(raw)


def test_reducing_what_is_reduced_changes_nothing():
    for obj in (ISVC, LLMISVC, *every_object()):
        reduced = reduce_object(obj)
        again = reduce_object(reduced)
        again["metadata"]["hasAnnotations"] = reduced["metadata"]["hasAnnotations"]
        assert again == reduced


def test_whether_there_are_foreign_annotations_is_kept():
    bare = {**ISVC, "metadata": {**METADATA, "annotations": {}}}
    foreign = {**ISVC, "metadata": {**METADATA, "annotations": {"a.example/b": "c"}}}
    assert [reduce_object(obj)["metadata"]["hasAnnotations"] for obj in (bare, foreign)] == [False, True]
    assert reduce_object(foreign)["metadata"]["annotations"] == {}
