"""List options and lists: paging, resourceVersion semantics. Pure.

A page of a list shows the objects as they were when the list began, reconstructed from the history; so a continue
token expires (410) exactly when the history no longer reaches back.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from sandbox.cluster import selectors
from sandbox.cluster.resources import Kind
from sandbox.cluster.status import ApiError, bad_request, expired, internal, invalid, version_too_large
from sandbox.cluster.store import Entry, Store

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query of a list or watch, parsed."""

    selector: selectors.Selector
    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout_s: float | None = None

    @property
    def version_number(self) -> int:
        """The asked resourceVersion, 0 when none is; raises ApiError for garbage: 400, and 500 for a watch."""
        if not self.version:
            return 0
        if not (self.version.isascii() and self.version.isdecimal()):
            message = f'strconv.ParseUint: parsing "{self.version}": invalid syntax'
            raise internal(message) if self.watch else bad_request(message)
        return int(self.version)


def parse(query: Mapping[str, str], kind: Kind, namespace: str) -> ListOptions:
    """Read a query; raises ApiError 400 or 422 as the real server does."""
    timeout = _number(query, "timeoutSeconds")
    initial = query.get("sendInitialEvents")
    options = ListOptions(
        selector=selectors.parse(
            query.get("labelSelector", ""), query.get("fieldSelector", ""), kind.fields, namespace
        ),
        limit=_number(query, "limit") or 0,
        token=query.get("continue", ""),
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        watch=_true(query.get("watch", "")),
        bookmarks=_true(query.get("allowWatchBookmarks", "")),
        initial_events=None if initial is None else _true(initial),
        timeout_s=None if timeout in (None, 0) else float(timeout or 0),
    )
    _check(options)
    return options


def _true(value: str) -> bool:
    return value.lower() in {"1", "t", "true"}


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def forbidden_option(field: str, why: str) -> ApiError:
    """422 for a list option that does not go with the others."""
    return invalid("ListOptions", "meta.k8s.io", "", (field, "FieldValueForbidden", f"Forbidden: {why}"))


def _check(options: ListOptions) -> None:
    if options.initial_events is not None:
        if not options.watch:
            raise forbidden_option("sendInitialEvents", "sendInitialEvents is forbidden for list")
        if options.match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise forbidden_option("resourceVersionMatch", why)
    elif options.match and options.watch:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise forbidden_option("resourceVersionMatch", why)
    if options.match and not options.watch:
        if not options.version:
            raise forbidden_option(
                "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if options.match == "Exact" and options.version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            raise forbidden_option("resourceVersionMatch", why)
    if options.token and options.version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


class _Token(msgspec.Struct, frozen=True, rename={"version": "rv"}):
    """What a continue token holds: the list's resourceVersion (-1: whatever is current), and the last key returned."""

    version: int
    start: str


def _encode(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def _decode(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise bad_request("continue key is not valid") from error


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list."""

    entries: list[Entry]
    version: int
    token: str = ""
    remaining: int | None = None


def list_page(store: Store, kind: Kind, options: ListOptions) -> Page:
    """Answer a list; raises ApiError 410 for an expired token or a forgotten Exact version, 504 for the future."""
    version, start = store.version, ""
    if options.token:
        token = _decode(options.token)
        version, start = (store.version if token.version < 0 else token.version), token.start
    elif options.version_number > store.version:
        raise version_too_large(options.version_number, store.version)
    elif options.match == "Exact":
        version = options.version_number
    try:
        entries = store.entries(kind.resource, version)
    except ApiError as error:
        raise (_expired_token(start) if options.token else error) from error
    return _cut(entries, version, start, options)


def _expired_token(start: str) -> ApiError:
    error = expired(_TOO_OLD)
    error.continue_token = _encode(_Token(-1, start))
    return error


def _cut(entries: list[Entry], version: int, start: str, options: ListOptions) -> Page:
    if start:
        entries = [entry for entry in entries if entry.key > start]
    if not options.selector.trivial:
        entries = [entry for entry in entries if options.selector(entry)]
    if options.limit <= 0 or len(entries) <= options.limit:
        return Page(entries, version)
    page = entries[: options.limit]
    # A selector hides how much remains, as on the real server.
    remaining = len(entries) - options.limit if not options.selector.asked else None
    return Page(page, version, _encode(_Token(version, page[-1].key)), remaining)
