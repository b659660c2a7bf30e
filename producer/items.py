"""What the API server can tell the reflector, as values: the inputs of `watch.step`. Pure.

Bytes become items in `producer/reading.py` and nowhere else.
"""

from typing import Any, Final

import msgspec

from shared.objects import Kind, ObjectKey

TOO_LARGE: Final = "ResourceVersionTooLarge"  # the cause in a Status whose server has not come so far as was asked for


class Watched(msgspec.Struct, frozen=True):
    """What a list and its watch are about; `namespace` is empty for all of them."""

    kind: Kind
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} in {self.namespace}" if self.namespace else str(self.kind)


class Observed(msgspec.Struct, frozen=True):
    """An object as it was at `resource_version`, reduced. `model` is the registered-model id it carries, or empty."""

    key: ObjectKey
    uid: str
    resource_version: str
    digest: str
    model: str
    body: dict[str, Any]


class Begin(msgspec.Struct, frozen=True):
    """All that was published is acknowledged and the inventory is read: a pass may begin."""


class Page(msgspec.Struct, frozen=True):
    """One page of a list. `token` asks for the next one, empty on the last."""

    items: "tuple[Observed | Unidentified, ...]"
    resource_version: str
    token: str


class Seen(msgspec.Struct, frozen=True):
    """ADDED or MODIFIED."""

    object: Observed


class Gone(msgspec.Struct, frozen=True):
    """DELETED, with the object's last state."""

    object: Observed


class Bookmark(msgspec.Struct, frozen=True):
    resource_version: str
    initial_end: bool = False


class Unidentified(msgspec.Struct, frozen=True):
    """An object that cannot be told from others: without uid, resourceVersion or name, or with one that cannot be.

    `why` says what is wrong.
    """

    name: str
    why: str


class Malformed(msgspec.Struct, frozen=True):
    """Bytes that are no watch event and no list: the stream cannot be believed any more."""

    why: str


class Refused(msgspec.Struct, frozen=True):
    """An answer that is no success: an HTTP status, or an ERROR event in a stream that began well."""

    code: int
    reason: str = ""
    message: str = ""
    causes: tuple[str, ...] = ()
    retry_after_s: float | None = None
    in_stream: bool = False


class Closed(msgspec.Struct, frozen=True):
    """The server ended the stream in an orderly way: normal, and often silent about a reason."""

    lived_s: float


class Lost(msgspec.Struct, frozen=True):
    """No connection, or one that broke."""

    why: str


class Silent(msgspec.Struct, frozen=True):
    """Nothing came for longer than the bookmark interval: the connection is dead, or the server has nothing for us."""


class Waited(msgspec.Struct, frozen=True):
    """The pause that was asked for is over."""


class Resync(msgspec.Struct, frozen=True):
    """Somebody wants a new pass: the stream was re-created, the mass-delete guard wants a second look.

    `probe`: whether the server can stream its state is found out anew.
    """

    reason: str
    probe: bool = False


Failure = Unidentified | Malformed | Refused | Closed | Lost | Silent
Item = Begin | Page | Seen | Gone | Bookmark | Waited | Resync | Failure
