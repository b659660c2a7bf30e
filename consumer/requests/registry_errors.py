"""What an answer of the Model Registry means for the work. Pure: a request and an answer in, an error or None out.

The registry's answers cannot be taken at their word. Its own faults and plain overload look like "not found" (every
error below a read by id becomes a 404) or like "bad filter" (every database error that carries an SQLSTATE), and a 500
can be for good. What stands in front of it answers in its own forms; only the registry's own form, a JSON object with
the texts `code` and `message` (for 405: no body), can condemn a request, or say that something exists or does not.

    401, 403                        UnauthorizedError    403 is always a proxy's
    404 of a find: "no ..."         NotFoundError        the one 404 that can be believed
    404 of a find: "multiple ..."   AmbiguousError       names are found by LIKE: list, and compare exactly
    404 of a create                 NotFoundError        the environment; a database fault says so, too
    404 by id, 404 of a PATCH       UnprovenError        look again
    404 of another form, 410        OtherVersionError    this API version is not served (any more)
    400 "invalid filter query"      TransientError       our filters are none or constant: a database fault
    400, 422; 405 without a body    PermanentError       the request itself
    409 of a write                  ConflictError        name or externalId: the text blames the name for all
    500 "... too long"              PermanentError       a name or a property's key
    all else, other forms too       TransientError       with Retry-After

What refuses the question for the API version condemns nothing: another version may be served (`registry_client.py`).

What an answer says of the registry's health (`bearing_of`) is another question: a 409 of its own is a sign of life, a
500 is none, and a 404 that proves nothing says nothing of that either.

Texts of 5xx answers show the database's user and address and are never repeated; those of 4xx are cut.
"""

import re
from enum import Enum, auto
from typing import Final

import msgspec

from consumer.requests.circuit import Bearing
from shared.decoding import UNDECODABLE
from shared.errors import (
    ConflictError,
    IsvcSyncError,
    NotFoundError,
    NotSentError,
    PermanentError,
    TransientError,
    UnauthorizedError,
)

_MESSAGE_CHARS: Final = 200
_BAD_FILTER: Final = "invalid filter query"
_TOO_LONG: Final = ("value too long", "Data too long")  # PostgreSQL, MySQL
_ID: Final = re.compile(r"(?<=/)\d+")


class UnprovenError(TransientError):
    """A 404 that proves nothing: the object may well exist. Confirm by a find or a list."""


class AmbiguousError(TransientError):
    """Several records match a name's pattern: list them and compare."""


class OtherVersionError(TransientError):
    """The API version in the path is not served: probe again."""


class RequestKind(Enum):
    """What was asked, as far as the meaning of a 404 depends on it."""

    FIND = auto()
    BY_ID = auto()
    LIST = auto()
    CREATE_RECORD = auto()
    CREATE_ENVIRONMENT = auto()
    UPDATE = auto()


_WRITES: Final = frozenset({RequestKind.CREATE_RECORD, RequestKind.CREATE_ENVIRONMENT, RequestKind.UPDATE})


class Request(msgspec.Struct, frozen=True):
    """A request to the registry; `path` begins after the API version."""

    kind: RequestKind
    method: str
    path: str
    params: dict[str, str] = {}
    body: bytes = b""

    @property
    def route(self) -> str:
        """The path without ids: one name for all requests of a sort."""
        return _ID.sub("{id}", self.path)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Answer(msgspec.Struct, frozen=True):
    status: int
    content_type: str = ""
    body: bytes = b""
    retry_after: str = ""

    @property
    def message(self) -> str | None:
        """What the registry itself says, or None when the answer is not of its form: a proxy's, or no API path.

        The registry always names its media type; where something in front has taken that away, the body decides.
        """
        if _media_type(self.content_type) not in {"application/json", ""}:
            return None
        try:
            return msgspec.json.decode(self.body, type=_ErrorBody).message
        except UNDECODABLE:
            return None

    @property
    def retry_after_s(self) -> float | None:
        """The wish of who answered, in seconds; a date (never seen here) counts as none."""
        return float(self.retry_after) if self.retry_after.isdecimal() else None


class _ErrorBody(msgspec.Struct, frozen=True):
    code: str  # the status as a text; other servers' JSON errors have a number here
    message: str


def classify(request: Request, answer: Answer) -> IsvcSyncError | None:
    """Return what the answer means, or None for a success."""
    if 200 <= answer.status < 300:
        return None
    message = answer.message
    error: IsvcSyncError
    match answer.status:
        case 401 | 403:
            error = UnauthorizedError(f"{request}: {answer.status}, the registry or a proxy refuses our credentials")
        case 404 | 410:
            error = _not_there(request, answer.status, message)
        case 409 if message is not None and request.kind in _WRITES:
            error = ConflictError(_said(request, answer, message))
        case 400 if message is not None and _BAD_FILTER in message:
            error = TransientError(f"{request}: 400 for a filter that is not wrong, a fault of the registry's database")
        case 400 | 422 if message is not None:
            error = PermanentError(_said(request, answer, message))
        case 405 if not answer.body:
            error = PermanentError(f"{request}: 405, the registry does not know this method here")
        case 500 if message is not None and any(phrase in message for phrase in _TOO_LONG):
            error = PermanentError(f"{request}: 500, a name or a property's key is too long for the registry")
        case _:
            error = _anything_else(request, answer)
    return error


def bearing_of(request: Request, error: IsvcSyncError) -> Bearing:
    """Return what a request that ended with this error says about the registry's health."""
    match error:
        case NotFoundError() if request.kind is RequestKind.CREATE_RECORD:
            return Bearing.NOTHING  # a database fault says the same
        case NotFoundError() | AmbiguousError() | ConflictError() | PermanentError():
            return Bearing.WELL
        case UnprovenError() | OtherVersionError() | NotSentError():
            return Bearing.NOTHING
        case _:
            return Bearing.ILL


def _not_there(request: Request, status: int, message: str | None) -> IsvcSyncError:
    if status == 410 or message is None:
        return OtherVersionError(f"{request}: {status}, and not from this version of the registry's API")
    what = f"{request}: 404 {message[:_MESSAGE_CHARS]}"
    match request.kind:
        case RequestKind.FIND if message.startswith("no "):
            return NotFoundError(what)
        case RequestKind.FIND if message.startswith("multiple "):
            return AmbiguousError(what)
        case RequestKind.CREATE_RECORD if message.startswith("no serving environment"):
            return NotFoundError(what)
        case RequestKind.BY_ID | RequestKind.UPDATE:
            return UnprovenError(f"{what}; this proves nothing, look again")
        case _:
            return TransientError(what)


def _anything_else(request: Request, answer: Answer) -> TransientError:
    if 300 <= answer.status < 400:
        hint = "redirects are not followed: is the registry's address right?"
    elif answer.status in {429, 502, 503, 504}:
        hint = "the registry is down or overloaded"
    elif answer.status >= 500:
        hint = "a fault of the registry"
    else:
        hint = "not from the registry itself: is something in front of it?"
    return TransientError(f"{request}: {answer.status}, {hint}", retry_after_s=answer.retry_after_s)


def _said(request: Request, answer: Answer, message: str) -> str:
    return f"{request}: {answer.status} {message[:_MESSAGE_CHARS]}".rstrip()


def _media_type(content_type: str) -> str:
    """Return the type without its parameters. Its case says nothing (RFC 9110, 8.3.1)."""
    return content_type.partition(";")[0].strip().lower()
