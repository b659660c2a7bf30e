"""What can be switched in the sandbox's registry: API versions, the behaviour of later releases, the database."""

import unicodedata
from typing import Annotated, Literal

import msgspec

Database = Literal["well", "stopped", "refusing", "never_reached"]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Switches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of all switches. The defaults are a healthy registry that serves both API versions."""

    versions: tuple[str, ...] = ("v1alpha3", "v1")
    """Served API versions; another one is an unknown path."""
    gone: tuple[str, ...] = ()
    """Versions that were withdrawn: 410."""
    sunset: str | None = None
    """An HTTP date: v1alpha3 answers carry it as `Sunset`, and a `Deprecation` header."""
    filter_all: bool = False
    """Later releases: every list honours `filterQuery`, and nested lists `name` and `externalId`."""
    strict_order: bool = False
    """Later releases: an unknown `orderBy` is 400 instead of being ignored."""

    database: Database = "well"
    """stopped: connections are refused. refusing: it answers with an SQLSTATE. never_reached: not since the start."""
    connection_limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Requests beyond so many in flight find no connection: they get the answers of `refusing`."""
    statement_s: Seconds = 0.005
    """How long a request holds its connection while there is a limit."""
    merge_pause_s: Seconds = 0.001
    """The time between read and write of a PATCH; what others write in it is lost."""

    require_token: str | None = None
    """A proxy in front wants this bearer token and answers 401 as text without it."""


PROFILES = {
    "default": Switches(),
    "v0.3.8": Switches(versions=("v1alpha3",)),
    "v1": Switches(filter_all=True, strict_order=True),
}
"""By release: v0.3.8 knows no /v1; `v1` is what later ones are meant to be."""

_CONNECT = "failed to connect to `user=mr database=mr`: 127.0.0.1:5432 (127.0.0.1): "
_STOPPED = _CONNECT + "dial error: dial tcp 127.0.0.1:5432: connect: connection refused"
_REFUSING = _CONNECT + 'server error: FATAL: database "mr" is not currently accepting connections (SQLSTATE 55000)'
_NO_CONNECTION = _CONNECT + "server error: FATAL: sorry, too many clients already (SQLSTATE 53300)"


def database_fault(switches: Switches, in_flight: int) -> str | None:
    """Return the database's answer to the `in_flight`-th request under way; None when it does its work."""
    match switches.database:
        case "stopped":
            return _STOPPED
        case "refusing":
            return _REFUSING
        case "well" | "never_reached":
            limit = switches.connection_limit
            return _NO_CONNECTION if limit is not None and in_flight > limit else None


def fold_mysql(text: str) -> str:
    """Return the text as MySQL's default collation compares it: blind to case, accents and blanks at the end."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char)).rstrip(" ")
