"""What a Kubernetes API answers, in our words. Every request goes through `translated` and `raise_for`.

    401, 403 without a Status   UnauthorizedError  (the latter is a proxy's)
    403 by RBAC                 TransientError     names verb and resource: somebody must grant it, then it works
    4xx by an admission webhook PermanentError     about the object, whatever the code
    404                         NotFoundError
    409, 410, 422               ConflictError      look again (410: list again; 422: a failed `test` of a JSON patch)
    429, 5xx                    TransientError     with Retry-After; a webhook that cannot be called is a 500
    other 4xx                   PermanentError     the request itself is wrong

Texts are cut: they end up in logs and events.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

import httpx
import msgspec

from shared.decoding import UNDECODABLE
from shared.errors import (
    ConflictError,
    IsvcSyncError,
    NotFoundError,
    PermanentError,
    TransientError,
    UnauthorizedError,
    UnreachableError,
)
from shared.transport import NO_ANSWER

_MESSAGE_CHARS = 300
# The API server's own words, see k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go
_FORBIDDEN = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"(?P<rest>[^:]*)')
_DENIED = re.compile(r'admission webhook "[^"]*" denied the request')


class Answer(msgspec.Struct, frozen=True):
    """An answer that is no success. `reason`, `message`, `causes` come from its Status body, where it has one."""

    status: int
    is_status: bool
    reason: str
    message: str
    causes: tuple[str, ...]
    retry_after_s: float | None

    @classmethod
    def of(cls, response: httpx.Response) -> Self:
        """Read a response whose body has been read."""
        body = _json_object(response.content)
        details = body.get("details")
        if not isinstance(details, dict):
            details = {}  # a gateway's own idea of an error body
        causes = details.get("causes")
        is_status = body.get("kind") == "Status"
        return cls(
            status=response.status_code,
            is_status=is_status,
            reason=str(body.get("reason") or ""),
            # Always as UTF-8: a gateway may name a charset that Python has, and that is none (base64, undefined).
            message=_one_line(
                str(body.get("message") or "") if is_status else response.content.decode(errors="replace")
            ),
            causes=tuple(str(each.get("reason")) for each in _list(causes) if isinstance(each, dict)),
            retry_after_s=_retry_after_s(response.headers, details),
        )


class Identity(msgspec.Struct, frozen=True):
    """Who an object is. Only its uid is sure to be there."""

    kind: str
    namespace: str
    name: str
    uid: str


class _Metadata(msgspec.Struct):
    uid: Annotated[str, msgspec.Meta(min_length=1)]
    name: str = ""
    namespace: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata
    kind: str = ""


def error_of(answer: Answer, what: str) -> IsvcSyncError:
    """Return the error that says what `answer` means for the work; `what` names the request and its object."""
    text = f"{what}: {answer.status} {answer.message}".rstrip()
    error: IsvcSyncError
    match answer.status:
        case 401:
            error = UnauthorizedError(text)
        case status if status < 500 and _DENIED.search(answer.message):
            error = PermanentError(text)
        case 403 if not answer.is_status:
            error = UnauthorizedError(f"{text} (not from Kubernetes: a proxy?)")
        case 403:
            error = TransientError(f"{what}: {_missing_right(answer.message)}")
        case 404:
            error = NotFoundError(text)
        case 409 | 410 | 422:
            error = ConflictError(text)
        case status if status == 429 or status >= 500 or status < 400:
            error = TransientError(text, retry_after_s=answer.retry_after_s)
        case _:
            error = PermanentError(text)
    return error


def raise_for(response: httpx.Response, what: str) -> None:
    """Raise unless it is a success in JSON. Of an error the body must have been read; of a stream it need not.

    A proxy's login page comes with status 200: HTML is no answer.
    """
    if not response.is_success:
        raise error_of(Answer.of(response), what)
    content_type = response.headers.get("Content-Type", "")
    if not content_type.startswith("application/json"):
        raise UnreachableError(f"{what}: the answer is {content_type or 'of no type'}, not JSON: is it a proxy's?")


def identity_in(response: httpx.Response, what: str) -> Identity:
    """Return whose object a success holds. Raises UnreachableError when it holds none: a Status, or half of one."""
    try:
        found = msgspec.json.decode(response.content, type=_Object)
    except UNDECODABLE as error:
        raise UnreachableError(f"{what}: the answer is no object") from error
    metadata = found.metadata
    return Identity(found.kind, metadata.namespace, metadata.name, metadata.uid)


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what httpx raises when no answer comes, or none that it can take, into UnreachableError."""
    try:
        yield
    except NO_ANSWER as error:
        reason = _one_line(str(error)) or type(error).__name__
        raise UnreachableError(f"{what}: no answer ({reason})") from error


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except UNDECODABLE:
        return {}


def _missing_right(message: str) -> str:
    found = _FORBIDDEN.search(message)
    if found is None:
        return f"403 {message}"
    return f"no right to {found['verb']} {found['resource']}{found['rest']}: grant it to the account isvc-sync uses"


def _retry_after_s(headers: Mapping[str, str], details: Mapping[str, Any]) -> float | None:
    text = headers.get("Retry-After") or str(details.get("retryAfterSeconds") or "")
    return float(text) if text.isdecimal() else None  # Kubernetes sends seconds, never a date


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_CHARS]
