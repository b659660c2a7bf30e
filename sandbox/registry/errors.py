"""What goes wrong inside the registry, in the terms of its layers: the database below, the answers above."""

from http import HTTPStatus


class ApiError(Exception):
    """An answer that is no success: HTTP status and the two fields of its JSON body. `code` is a text, not a number."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code or HTTPStatus(status).phrase


def bad_request(message: str) -> ApiError:
    return ApiError(400, f"{message}: bad request")


def not_found(message: str) -> ApiError:
    return ApiError(404, f"{message}: not found")


def conflict(message: str) -> ApiError:
    return ApiError(409, f"{message}: conflict")


BAD_FILTER = "invalid filter query, type mismatch or invalid value in comparison"
"""What the server makes of every database error that carries an SQLSTATE, filter or not."""


class DatabaseError(Exception):
    """The database did not do it. An answer of its own carries an SQLSTATE in the text, a lost connection does not."""

    @property
    def has_sqlstate(self) -> bool:
        return "SQLSTATE" in str(self)


class DuplicateKeyError(DatabaseError):
    """A unique key, the name's or the external id's: the server cannot tell which."""


class Panic(Exception):  # noqa: N818 - Go's word for it
    """The server's handler died: the connection is closed without an answer, the server lives on."""
