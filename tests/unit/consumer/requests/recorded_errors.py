"""Every error that was recorded from a real registry, and the class that it is to have."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from consumer.requests.registry_errors import (
    AmbiguousError,
    Answer,
    OtherVersionError,
    Request,
    RequestKind,
    UnprovenError,
)
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError

RECORDING = Path(__file__).parents[3] / "contract" / "registry" / "recordings" / "registry-v1alpha3.jsonl"
PREFIX = "/api/model_registry/v1alpha3"
CLASSES = {
    "N": NotFoundError,
    "A": AmbiguousError,
    "U": UnprovenError,
    "V": OtherVersionError,
    "P": PermanentError,
    "C": ConflictError,
    "T": TransientError,
}
# Case (its beginning) to the classes of its errors, by step.
EXPECTED = {
    "health endpoints answer text OK": {5: "P"},
    "an unknown path or version is 404 text/plain": {1: "V", 2: "V", 3: "V", 4: "V"},
    "a registered model is created with defaults": {3: "C"},
    "a duplicate externalId is 409 and blames the name": {2: "C"},
    "a missing required field is 422": {1: "P", 2: "P", 3: "P", 4: "P", 5: "P", 6: "P"},
    "a registered model is found by name or externalId": {3: "P", 5: "N", 6: "N"},
    "PATCH of a model without state un-archives it": {4: "P", 5: "P"},
    "ids by path": {1: "U", 2: "U", 3: "U", 5: "P", 6: "P", 7: "U", 8: "U", 9: "P"},
    "methods that do not exist are 405": dict.fromkeys(range(1, 9), "P"),
    "model versions: created, unique per model": {2: "C", 8: "P", 9: "N"},
    "a version may be created under a model that does not exist": {2: "P"},
    "a serving environment is created, duplicated, found": {2: "C", 6: "A", 7: "N", 8: "P", 13: "P", 14: "C"},
    "externalId is unique across kinds": {1: "C", 3: "C", 4: "P"},
    "a duplicate inference service name is 409": {1: "C"},
    "a duplicate externalId is 409 and blames the new name": {1: "C", 2: "C"},
    "only the environment is checked on create": {2: "N", 3: "N", 4: "N", 5: "P", 6: "P", 7: "P"},
    "the nested create": {1: "P", 3: "N"},
    "enums and unknown or server-set fields are refused": dict.fromkeys(range(1, 8), "P"),
    "an inference service is found by name and parent": {
        5: "N", 6: "P", 7: "P", 8: "N", 9: "N", 10: "N", 11: "P", 12: "N", 13: "A",
    },
    "find by name is LIKE": {4: "A", 7: "A", 8: "N", 10: "N", 12: "T"},
    "PATCH: null keeps": {4: "P"},
    "PATCH externalId: change, collide": {1: "C", 3: "N"},
    "PATCH refuses immutable": dict.fromkeys(range(1, 7), "P"),
    "PATCH of an id that is absent": {1: "U", 2: "U", 3: "P"},
    "custom properties: types": {2: "P", 3: "P", 4: "P", 6: "P", 7: "P", 8: "P"},
    "a struct property poisons later PATCHes": {2: "P"},
    "lengths": {2: "P", 3: "P", 4: "P", 5: "P"},
    "JSON decoding": dict.fromkeys(range(1, 7), "P"),
    "the model and the version of an inference service": {4: "T", 5: "U", 6: "U"},
    "serve models are append-only": {2: "C", 3: "T", 5: "P", 6: "V"},
    "pages: size, token": {14: "P", 15: "P", 16: "P", 17: "P"},
    "nested list: an unknown environment is empty": {2: "P"},
    "the nested list of versions filters": {6: "T"},
    "artifacts": {3: "N"},
    "filterQuery works on registered models": {4: "T"},
    "20 parallel creates of one name": {2: "C"},
    "20 parallel creates of one externalId": {2: "C"},
    "20 parallel creates of one environment": {2: "C"},
    "the database is stopped": {
        1: "U", 2: "U", 3: "N", 4: "T", 5: "U", 6: "U", 7: "T", 8: "T", 9: "T", 10: "T", 11: "T", 12: "T",
    },
    "the database refuses connections with an SQLSTATE": {
        1: "U", 2: "U", 3: "N", 4: "T", 5: "U", 6: "U", 7: "T", 8: "T", 9: "T", 10: "T", 11: "T", 12: "T",
    },
    "before the database was ever reached": {1: "T", 2: "T", 3: "T"},
}  # fmt: skip


def kind_of(method: str, path: str) -> RequestKind:
    """Sort a recorded request as the adapter would have sorted it."""
    if method == "PATCH":
        return RequestKind.UPDATE
    if method == "POST":
        creates_record = path.endswith("inference_services")
        return RequestKind.CREATE_RECORD if creates_record else RequestKind.CREATE_ENVIRONMENT
    if re.fullmatch(r"/(registered_model|model_version|serving_environment|inference_service|model_artifact)", path):
        return RequestKind.FIND
    return RequestKind.BY_ID if re.search(r"/(-?\d+|abc)$|/(model|version)$", path) else RequestKind.LIST


def expanded(value: Any) -> Any:
    if isinstance(value, dict):
        return value["$repeat"] * value["times"] if "$repeat" in value else {k: expanded(v) for k, v in value.items()}
    return value


def _recorded_errors():
    for line in RECORDING.read_text().splitlines():
        exchange = json.loads(line)
        request, response = exchange["request"], exchange["response"]
        if response.get("status", 0) < 400:
            continue
        path = urlsplit(request["path"]).path.removeprefix(PREFIX)
        body = json.dumps(expanded(response["body"])) if "body" in response else response.get("text", "")
        answer = Answer(response["status"], response["headers"].get("content-type", ""), body.encode())
        asked = Request(kind_of(request["method"], path), request["method"], path)
        yield pytest.param(
            exchange["case"], exchange["step"], asked, answer, id=f"{exchange['case'][:50]}-{exchange['step']}"
        )


RECORDED = list(_recorded_errors())


def expected(case: str) -> dict[int, str]:
    (steps,) = (steps for beginning, steps in EXPECTED.items() if _is_case(case, beginning))
    return steps


def _is_case(case: str, beginning: str) -> bool:
    """One beginning is the beginning of another one: the longest counts."""
    return max((known for known in EXPECTED if case.startswith(known)), key=len, default=None) == beginning
