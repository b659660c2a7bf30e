"""What travels over the broker: one event for one relevant change of one object, and the sync marker.

CloudEvents 1.0 in binary mode (NATS binding): every attribute is a `ce-` header in lower case, the body is the reduced
object. The headers alone are the producer's inventory, so they hold whatever it compares; the body is read by the
consumer only.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import msgspec

from shared.decoding import UNDECODABLE
from shared.errors import BadEventError
from shared.objects import Kind, ObjectKey, compare_resource_versions

T = TypeVar("T")

MESSAGE_ID: Final = "Nats-Msg-Id"  # the server's name for the key of its dedupe window, spelt as it wants it
_SOURCE_PREFIX: Final = "/clusters/"
_SAFE: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~"
_PLAIN: Final = re.compile(f"[A-Za-z0-9{re.escape(_SAFE)}]*").fullmatch  # nearly all: `quote` takes ten times as long
_SEQUENCE_DIGITS: Final = 20  # the CloudEvents extension `sequence` is compared as text


class EventType(StrEnum):
    """What happened to the object; the value is the verb in the CloudEvents type."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


class Event(msgspec.Struct, frozen=True):
    """One change of one object: all but the object itself.

    `epoch` is the Unix second in which the present numbering of resourceVersions began (it grows when etcd is
    restored). `models` lists every registered-model id that this uid has carried, oldest first. `cluster_id` is the
    identity of the cluster. `time` says when the producer saw the change (RFC 3339). `corrects` is set on synthetic
    events only, those made from a comparison of a list with the inventory: the stream sequence of the inventory entry
    that it corrects, or 0 when there was none. `truncated` says that the body holds only what decisions need.
    """

    type: EventType
    key: ObjectKey
    uid: str
    epoch: int
    resource_version: str
    digest: str
    models: tuple[str, ...]
    cluster_id: str
    time: str
    corrects: int | None = None
    truncated: bool = False

    @property
    def id(self) -> str:
        """The message id: the same for the same change, whoever publishes it and however often.

        A synthetic event adds what it corrects, so that the broker's dedupe window never swallows a repair.
        """
        parts = [self.uid, str(self.epoch), self.resource_version, digest8(self.digest), self.type.value[0]]
        if self.corrects is not None:
            parts.append(str(self.corrects))
        return ":".join(parts)

    @property
    def synthetic(self) -> bool:
        return self.corrects is not None


def digest8(digest: str) -> str:
    """Return the first eight hex digits of a digest `v1:<hex>`."""
    return digest.partition(":")[2][:8]


def encode(event: Event) -> dict[str, str]:
    """Return the headers of an event (the body is the reduced object as JSON)."""
    event_id = event.id
    plain = {
        "ce-specversion": "1.0",
        "ce-id": event_id,
        "ce-source": _SOURCE_PREFIX + event.cluster_id,
        "ce-type": f"io.kserve.{event.key.kind.kubernetes_kind.lower()}.{event.type}.v1",
        "ce-subject": f"{event.key.namespace}/{event.key.name}",
        "ce-time": event.time,
        "ce-datacontenttype": "application/json",
        "ce-kind": event.key.kind,
        "ce-namespace": event.key.namespace,
        "ce-name": event.key.name,
        "ce-uid": event.uid,
        "ce-resourceversion": event.resource_version,
        "ce-epoch": str(event.epoch),
        "ce-digest": event.digest,
        "ce-models": ",".join(event.models),
        "ce-sequence": event.resource_version.rjust(_SEQUENCE_DIGITS, "0"),
        "ce-partitionkey": str(event.key),
    }
    if event.synthetic:
        plain["ce-synthetic"] = "true"
    if event.truncated:
        plain["ce-truncated"] = "true"
    return {name: _quoted(value) for name, value in plain.items()} | {MESSAGE_ID: _quoted(event_id)}


def decode(headers: Mapping[str, str] | None) -> Event:
    """Return the event that the headers describe. Raises BadEventError that names the header at fault."""
    given = {name.lower(): unquote(value) if "%" in value else value for name, value in (headers or {}).items()}
    try:
        synthetic = given.get("ce-synthetic") == "true"
        event = Event(
            type=_parsed(given, "ce-type", lambda text: EventType(text.split(".")[3])),
            key=ObjectKey(_parsed(given, "ce-kind", Kind), given["ce-namespace"], given["ce-name"]),
            uid=given["ce-uid"],
            epoch=_parsed(given, "ce-epoch", int),
            resource_version=given["ce-resourceversion"],
            digest=given["ce-digest"],
            models=tuple(model for model in given["ce-models"].split(",") if model),
            cluster_id=given["ce-source"].removeprefix(_SOURCE_PREFIX),
            time=given["ce-time"],
            corrects=_parsed(given, "ce-id", lambda text: int(text.rpartition(":")[2])) if synthetic else None,
            truncated=given.get("ce-truncated") == "true",
        )
    except KeyError as error:
        raise BadEventError(f"header {error.args[0]} is missing") from error
    if not event.uid or not event.digest:
        raise BadEventError("header ce-uid or ce-digest is empty")
    compare_resource_versions(event.resource_version, event.resource_version)
    return event


def _parsed(given: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(given[name])
    except (ValueError, IndexError) as error:
        raise BadEventError(f"header {name} does not decode: {given[name][:80]!r}") from error


def cluster_id_of(headers: Mapping[str, str] | None) -> str | None:
    """Return the cluster id that a message of ours comes from, None where it does not say."""
    given = {name.lower(): unquote(value) for name, value in (headers or {}).items()}
    source = given.get("ce-source")
    return None if source is None else source.removeprefix(_SOURCE_PREFIX)


class SyncMarker(msgspec.Struct, frozen=True, rename="camel"):
    """Said by the producer when every event of a complete pass is acknowledged: up to here the stream is the cluster.

    `scope` lists the namespaces that the pass compared, or is empty for all of them.
    """

    scope: tuple[str, ...]
    resource_version: str
    epoch: int


def encode_marker(marker: SyncMarker, *, kind: Kind, cluster_id: str, time: str) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a sync marker."""
    name = kind.kubernetes_kind.lower()
    headers = {
        "ce-specversion": "1.0",
        "ce-id": f"sync:{cluster_id}:{kind}:{marker.epoch}:{marker.resource_version}:{time}",
        "ce-source": _SOURCE_PREFIX + cluster_id,
        "ce-type": f"io.kserve.{name}.synced.v1",
        "ce-time": time,
        "ce-datacontenttype": "application/json",
    }
    return {key: _quoted(value) for key, value in headers.items()}, msgspec.json.encode(marker)


def decode_marker(headers: Mapping[str, str] | None, body: bytes) -> tuple[str, SyncMarker]:
    """Return cluster id and marker. Raises BadEventError."""
    given = {name.lower(): unquote(value) for name, value in (headers or {}).items()}
    try:
        return given["ce-source"].removeprefix(_SOURCE_PREFIX), msgspec.json.decode(body, type=SyncMarker)
    except (KeyError, *UNDECODABLE) as error:
        raise BadEventError(f"the sync marker does not decode: {error}") from error


def _quoted(value: str) -> str:
    """Percent-encode what the CloudEvents binding wants encoded: blanks, quotes, percent signs, non-ASCII."""
    return value if _PLAIN(value) else quote(value, safe=_SAFE)
