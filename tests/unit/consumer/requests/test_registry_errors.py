"""Every error that was recorded from a real registry, and what proxies say, has its class."""

import json
import re

import pytest
from msgspec.structs import replace

from consumer.requests.registry_errors import (
    AmbiguousError,
    Answer,
    OtherVersionError,
    Request,
    RequestKind,
    UnprovenError,
    classify,
)
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError, UnauthorizedError
from tests.unit.consumer.requests.recorded_errors import CLASSES, EXPECTED, RECORDED, expected


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
        (text(409), TransientError),
        (text(409, ""), TransientError),
        (text(409, "<html>Conflict</html>", "text/html"), TransientError),
        (Answer(409, "application/json", b'{"kind": "Status", "code": 409, "message": "no"}'), TransientError),
        (Answer(409, "application/json"), TransientError),
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
    ("asked", "wanted"),
    [
        (CREATE, ConflictError),
        (ENVIRONMENT, ConflictError),
        (UPDATE, ConflictError),
        (GET, TransientError),
        (FIND, TransientError),
        (LIST, TransientError),
    ],
    ids=str,
)
def test_only_a_write_can_collide_with_something_else(asked, wanted):
    assert type(classify(asked, said(409, "taken"))) is wanted


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


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=UTF-8",
        "application/json",
        "Application/JSON; charset=UTF-8",
        "APPLICATION/JSON",
        " application/json ;charset=utf-8",
        "",
    ],
)
def test_the_registrys_own_form_is_known_by_its_media_type_in_any_case_or_where_that_is_missing_by_its_body(
    content_type,
):
    absence = said(404, "no inference service found for name=x")
    assert type(classify(FIND, replace(absence, content_type=content_type))) is NotFoundError


@pytest.mark.parametrize("content_type", ["application/jsonp", "application/problem+json", "text/plain", "text/html"])
def test_another_media_type_is_not_the_registrys_whatever_its_body(content_type):
    absence = said(404, "no inference service found for name=x")
    assert type(classify(FIND, replace(absence, content_type=content_type))) is OtherVersionError


@pytest.mark.parametrize("body", [b"", b"Conflict", b"<html>", b"{}", b'{"message": "no such route"}', b"\xff"])
@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
@pytest.mark.parametrize("asked", ALL, ids=str)
def test_without_media_type_and_without_the_registrys_form_nothing_is_condemned_or_believed(asked, status, body):
    assert isinstance(classify(asked, Answer(status, "", body)), TransientError)


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
