"""Every error that was recorded from a real registry, and what proxies say, has its class."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from consumer.registry_errors import (
    AmbiguousError,
    Answer,
    OtherVersionError,
    Request,
    RequestKind,
    UnprovenError,
    classify,
)
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError, UnauthorizedError

RECORDING = Path(__file__).parents[2] / "contract" / "registry" / "recordings" / "registry-v1alpha3.jsonl"
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


@pytest.mark.parametrize(("case", "step", "asked", "answer"), RECORDED)
def test_recorded_error_has_its_class(case, step, asked, answer):
    assert type(classify(asked, answer)) is CLASSES[expected(case)[step]]


def test_table_names_no_case_that_was_not_recorded():
    recorded = {(case, step) for case, step, *_ in (param.values for param in RECORDED)}
    assert len(recorded) == sum(len(steps) for steps in EXPECTED.values()) > 130


@pytest.mark.parametrize(("case", "step", "asked", "answer"), RECORDED)
def test_no_text_of_a_database_is_repeated(case, step, asked, answer):
    assert not re.search(r"user=|127\.0\.0\.1|dial|SQLSTATE", str(classify(asked, answer)))


GET = Request(RequestKind.BY_ID, "GET", "/registered_models/1")
FIND = Request(RequestKind.FIND, "GET", "/inference_service")
LIST = Request(RequestKind.LIST, "GET", "/inference_services")
CREATE = Request(RequestKind.CREATE_RECORD, "POST", "/inference_services")
ENVIRONMENT = Request(RequestKind.CREATE_ENVIRONMENT, "POST", "/serving_environments")
UPDATE = Request(RequestKind.UPDATE, "PATCH", "/inference_services/1")
ALL = (GET, FIND, LIST, CREATE, ENVIRONMENT, UPDATE)


def said(status: int, message: str) -> Answer:
    return Answer(status, "application/json; charset=UTF-8", json.dumps({"code": "Text", "message": message}).encode())


def text(status: int, body: str = "some proxy's words", content_type: str = "text/plain") -> Answer:
    return Answer(status, content_type, body.encode())


@pytest.mark.parametrize("asked", ALL, ids=str)
@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (text(401), UnauthorizedError),
        (said(401, "no"), UnauthorizedError),
        (text(403, "RBAC: access denied"), UnauthorizedError),
        (text(404, "404 page not found\n"), OtherVersionError),
        (text(404, ""), OtherVersionError),
        (text(404, "<html>", "text/html"), OtherVersionError),
        (text(410, "gone"), OtherVersionError),
        (said(410, "gone"), OtherVersionError),
        (said(409, "taken"), ConflictError),
        (said(400, "unknown field"), PermanentError),
        (said(400, "x: invalid filter query, type mismatch: bad request"), TransientError),
        (text(400, "Client sent an HTTP request to an HTTPS server.\n"), TransientError),
        (Answer(400, "application/json", b'{"kind": "Status", "code": 400, "message": "no"}'), TransientError),
        (Answer(400, "application/json", b'{"code": "Bad Request", "message"'), TransientError),
        (Answer(400, "text/plain", b'{"code": "Bad Request", "message": "x"}'), TransientError),
        (said(422, "required"), PermanentError),
        (text(422), TransientError),
        (text(405, ""), PermanentError),
        (text(405, "<html>", "text/html"), TransientError),
        (text(302, ""), TransientError),
        (text(408), TransientError),
        (text(429), TransientError),
        (said(500, "ERROR: value too long for type"), PermanentError),
        (said(500, "Error 1406 (22001): Data too long for column 'name'"), PermanentError),
        (said(500, "record not found"), TransientError),
        (text(500, "value too long"), TransientError),
        (text(502), TransientError),
        (text(503, "Datastore service is down"), TransientError),
        (text(504), TransientError),
    ],
)  # fmt: skip
def test_answer_means_the_same_whatever_was_asked(asked, answer, wanted):
    assert type(classify(asked, answer)) is wanted


@pytest.mark.parametrize(
    ("asked", "message", "wanted"),
    [
        (FIND, "no inference service found for name=x", NotFoundError),
        (FIND, "multiple inference services found for name=x", AmbiguousError),
        (FIND, "something else", TransientError),
        (CREATE, "no serving environment found for id 11: not found", NotFoundError),
        (CREATE, "no registered model found", TransientError),
        (ENVIRONMENT, "no serving environment found", TransientError),
        (LIST, "no inference service found", TransientError),
        (GET, "no registered model found for id 1: not found", UnprovenError),
        (UPDATE, "no InferenceService found for id 17: not found", UnprovenError),
    ],
)
def test_what_a_404_means_depends_on_what_was_asked(asked, message, wanted):
    assert type(classify(asked, said(404, message))) is wanted


@pytest.mark.parametrize("status", [200, 201, 204])
def test_success_is_no_error(status):
    assert classify(CREATE, Answer(status)) is None


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("", None), ("Mon, 30 Nov 2026 10:00:00 GMT", None), ("²", None)]
)
@pytest.mark.parametrize("status", [429, 503])
def test_wish_to_wait_is_kept(status, header, seconds):
    error = classify(GET, Answer(status, retry_after=header))
    assert isinstance(error, TransientError)
    assert error.retry_after_s == seconds


def test_message_of_the_registry_is_cut():
    message = str(classify(UPDATE, said(400, "x" * 100_000)))
    assert message == "PATCH /inference_services/1: 400 " + "x" * 200


def test_route_names_no_id():
    assert Request(RequestKind.LIST, "GET", "/serving_environments/11/inference_services").route == (
        "/serving_environments/{id}/inference_services"
    )
