"""What a Kubernetes API's answers mean, as a table; and token files that rotate."""

import os

import httpx
import pytest

from shared.errors import (
    ConflictError,
    NotFoundError,
    PermanentError,
    TransientError,
    UnauthorizedError,
    UnreachableError,
)
from shared.kubernetes_errors import Answer, Identity, error_of, identity_in, raise_for, translated
from shared.tokens import TokenFile

WHAT = "patching isvc/ns/name"
DENIED = 'admission webhook "inferenceservice.kserve-webhook-server.validator" denied the request: bad runtime'
FORBIDDEN = (
    'inferenceservices.serving.kserve.io is forbidden: User "system:serviceaccount:a:b" cannot patch resource '
    '"inferenceservices" in API group "serving.kserve.io" in the namespace "ns"'
)


def status(code: int, message: str = "", reason: str = "", headers: dict[str, str] | None = None, **details: object):
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        "details": details,
    }
    return httpx.Response(code, json=body, headers=headers)


def meaning(response: httpx.Response):
    return error_of(Answer.of(response), WHAT)


@pytest.mark.parametrize(
    ("response", "error", "told"),
    [
        (status(401, "Unauthorized"), UnauthorizedError, "401 Unauthorized"),
        (httpx.Response(401, text="no"), UnauthorizedError, "401 no"),
        (httpx.Response(403, text="<html>Blocked</html>"), UnauthorizedError, "a proxy?"),
        (
            status(403, FORBIDDEN, "Forbidden"),
            TransientError,
            'no right to patch inferenceservices in API group "serving.kserve.io" in the namespace "ns": grant it',
        ),
        (status(403, "quota exceeded", "Forbidden"), TransientError, "403 quota exceeded"),
        (status(403, DENIED), PermanentError, DENIED),
        (status(400, DENIED), PermanentError, DENIED),
        (status(422, DENIED), PermanentError, DENIED),
        (status(404, "not found", "NotFound"), NotFoundError, "404"),
        (status(409, "the object has been modified", "Conflict"), ConflictError, "409"),
        (status(410, "too old resource version", "Expired"), ConflictError, "410"),
        (status(422, "the server rejected our request", "Invalid"), ConflictError, "422"),
        (status(400, "bad field selector", "BadRequest"), PermanentError, "400"),
        (status(415, "unsupported", "UnsupportedMediaType"), PermanentError, "415"),
        (status(429, "too many requests"), TransientError, "429"),
        (status(500, 'Internal error occurred: failed calling webhook "x"'), TransientError, "failed calling webhook"),
        (httpx.Response(503, text="apiserver not ready"), TransientError, "503 apiserver not ready"),
        (status(504, "Too large resource version", "Timeout"), TransientError, "504"),
        (httpx.Response(302, headers={"Location": "https://login"}), TransientError, "302"),
    ],
)
def test_an_answer_means(response, error, told):
    found = meaning(response)
    assert type(found) is error
    assert str(found).startswith(WHAT)
    assert told in str(found)


@pytest.mark.parametrize(
    ("response", "seconds"),
    [
        (status(429, headers={"Retry-After": "7"}), 7.0),
        (status(503, retryAfterSeconds=3), 3.0),
        (status(503), None),
        (status(503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), None),
    ],
)
def test_the_servers_wish_for_patience_is_kept(response, seconds):
    assert meaning(response).retry_after_s == seconds


def test_a_long_message_is_cut_and_put_on_one_line():
    text = str(meaning(status(500, "a\nb" * 1000)))
    assert len(text) < 350
    assert "\n" not in text


def test_a_status_carries_reason_and_causes():
    response = status(504, "x", "Timeout", causes=[{"reason": "ResourceVersionTooLarge", "message": "x"}])
    answer = Answer.of(response)
    assert (answer.reason, answer.causes) == ("Timeout", ("ResourceVersionTooLarge",))


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'"text"', b"{", b"\xff\xfe"])
def test_an_error_body_of_any_kind_is_read(content):
    assert type(meaning(httpx.Response(500, content=content))) is TransientError


def test_a_success_in_json_passes():
    raise_for(httpx.Response(200, json={}), WHAT)
    raise_for(httpx.Response(201, json={}, headers={"Content-Type": "application/json;charset=utf-8"}), WHAT)


def test_a_success_in_html_is_no_answer():
    with pytest.raises(UnreachableError, match=r"text/html.*not JSON"):
        raise_for(httpx.Response(200, html="<html>Log in</html>"), WHAT)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"metadata":{"ui', b"\xff", b"[" * 100_000, b'{"metadata":{"uid":""}}']
)
def test_a_success_that_holds_no_object_is_no_answer(content):
    with pytest.raises(UnreachableError, match=f"^{WHAT}: the answer is no object$"):
        identity_in(httpx.Response(200, content=content), WHAT)


def test_a_success_says_whose_object_it_holds():
    body = {"kind": "Namespace", "metadata": {"name": "a", "uid": "u1"}}
    assert identity_in(httpx.Response(200, json=body), WHAT) == Identity("Namespace", "", "a", "u1")


def test_a_failure_is_raised():
    with pytest.raises(NotFoundError):
        raise_for(status(404), WHAT)


@pytest.mark.parametrize(
    "raised",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout(""),
        httpx.RemoteProtocolError("cut short"),
        httpx.InvalidURL("http:login"),
        UnicodeError("xn--a"),
    ],
)
def test_no_answer_is_unreachable(raised):
    with pytest.raises(UnreachableError, match=WHAT) as caught, translated(WHAT):
        raise raised
    assert caught.value.__cause__ is raised


async def test_a_token_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path)
    assert await token.current() == "Bearer one"
    path.write_text("three")
    assert await token.current() == "Bearer three"


async def test_a_token_file_swapped_by_symbolic_links_as_the_kubelet_does_is_noticed(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"token-{name}")
        os.utime(tmp_path / name, ns=(1, 1))
    link = tmp_path / "token"
    link.symlink_to("a")
    token = TokenFile(link)
    assert await token.current() == "Bearer token-a"
    (tmp_path / "new").symlink_to("b")
    (tmp_path / "new").rename(link)
    assert await token.current() == "Bearer token-b"


async def test_an_unchanged_token_file_is_not_read_again_until_its_token_is_refused(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    os.utime(path, ns=(1, 1))
    token = TokenFile(path)
    await token.current()
    path.write_text("two")  # same inode, size and time: only a refusal tells
    os.utime(path, ns=(1, 1))
    assert await token.current() == "Bearer one"
    assert await token.refused("Bearer one") == "Bearer two"
    assert await token.current() == "Bearer two"


@pytest.mark.parametrize(("content", "told"), [(None, "No such file"), ("  \n", "is empty")])
async def test_a_token_file_without_a_token_is_told(tmp_path, content, told):
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UnauthorizedError, match=told):
        await TokenFile(path).current()
