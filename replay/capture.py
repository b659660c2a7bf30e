"""The lines of a capture file `isvc-capture/1`, as values. Pure; `files.py` reads and writes them.

JSON Lines: what happened, in the order of the stream, with everything that `plan` needs to decide again.

    {"capture": "isvc-capture/1", ...}        the header, first
    {"facts": {...}}                          what a registry held before all events (`at: start`), or after them
    {"specversion": "1.0", ...}               one event: a CloudEvent in structured form
    {"action": {...}}                         what a consumer did, where that is known
    {"footer": {...}}                         the end; a file without it was cut

What a reader does not know is written again as it was. A greater number is refused (docs/isvc-capture-1.schema.json).
"""

from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec
from msgspec import UNSET

from consumer.discovery import DiscoverySettings, Service
from consumer.plan import PlanSettings
from consumer.records import Identity
from consumer.writeback import KServeLists, Target, WriteBack, WriteBackForm
from shared import events
from shared.decoding import UNDECODABLE
from shared.errors import BadEventError, IsvcSyncError
from shared.events import MESSAGE_ID, Event
from shared.objects import ObjectKey, ReducedObject
from shared.reduce import ID_NAME

FORMAT: Final = "isvc-capture/1"
ONLY_REGISTRY: Final = "registry"  # the name of the one registry where a capture tells of no discovery

_NAME, _, _MAJOR = FORMAT.partition("/")


class CaptureError(IsvcSyncError):
    """A file is no capture, or one line of it does not decode; the message names file and line."""


class CutError(CaptureError):
    """A file was cut so early that nothing of it can be read."""


class Deciding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The settings by which the consumer decided; see `PlanSettings`, `DiscoverySettings`.

    `registry_url` and what follows tell which registry an object has; all empty: there was one, and it did not matter.
    """

    prefix: str = "modelregistry.kubeflow.org/"
    environment: str = "{namespace}"
    write_back: WriteBack = WriteBack.SAFE
    write_back_form: WriteBackForm = WriteBackForm.LABEL
    denied_labels: tuple[str, ...] = ()
    denied_annotations: tuple[str, ...] = ()
    discovery: DiscoverySettings | None = None
    services: tuple[Service, ...] = ()


class Redaction(msgspec.Struct, frozen=True, rename="camel"):
    """What was taken out: `profile` is `reduced` (the form of the stream) or `anonymous` (names are tokens, too)."""

    profile: str = "reduced"


class Header(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The first line. `source`: where the events come from; `first_seq`: the stream sequence of the first one.

    `consumed`: a consumer of ours was at work there, so that an id that appears on an object may be the one it wrote.
    """

    capture: str  # FORMAT; no default, so that it is always written
    created: str
    tool: str
    cluster: str = ""
    cluster_id: str
    source: Literal["stream", "cluster", "watch-file", "simulation"]
    stream: str = ""
    first_seq: int = 0
    consumed: bool = True
    deciding: Deciding = Deciding()
    redaction: Redaction = Redaction()

    @property
    def plan_settings(self) -> PlanSettings:
        deciding = self.deciding
        lists = KServeLists(frozenset(deciding.denied_annotations), frozenset(deciding.denied_labels))
        return PlanSettings(
            us=Identity(self.cluster, self.cluster_id),
            prefix=deciding.prefix,
            environment=deciding.environment,
            write_back=deciding.write_back,
            target=Target(deciding.prefix.rstrip("/") + ID_NAME, deciding.write_back_form, lists),
        )


class RecordFact(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One InferenceService of the registry; see `Record`. `environment` is the name of its serving environment."""

    id: str
    name: str
    external_id: str = ""
    environment: str
    model_id: str
    version_id: str = ""
    runtime: str = ""
    deployed: bool | None = None
    properties: dict[str, Any] = {}


class Facts(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What one registry held, before the first event that needs it; several lines add up.

    `versions`: version id to model id. `absent_models`, `absent_versions`: what labels name and it did not have.
    """

    at: Literal["start", "end"] = "start"
    registry: str = ONLY_REGISTRY
    models: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    absent_models: tuple[str, ...] = ()
    absent_versions: tuple[str, ...] = ()
    environments: dict[str, str] = {}  # name to id
    records: tuple[RecordFact, ...] = ()


class Position(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where in the stream a message stands; `time` is when the broker stored it (RFC 3339)."""

    seq: int
    subject: str = ""
    time: str = ""


class Captured(msgspec.Struct, frozen=True):
    """One event. `data` is the reduced object as JSON; `initial`: it says what was there before the first change.

    `traceparent`: the trace in which it was published (W3C), "" for none.
    """

    event: Event
    data: bytes
    position: Position
    initial: bool = False
    traceparent: str = ""

    @property
    def obj(self) -> ReducedObject:
        """Raises BadEventError when the body is no reduced object."""
        try:
            return _OBJECT.decode(self.data)
        except UNDECODABLE as error:
            raise BadEventError(f"the event of {self.event.key} does not decode: {error}") from error


class Action(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What a consumer did because of the event with that stream sequence (0: not known which).

    `kind`: the action's name in `consumer/actions.py`, or `ack`, `retry`, `dead`. `status`: of the HTTP exchange, 0 for
    none. `ms`: from the decision to its end. `tool`: the release that did it.
    """

    event: int = 0
    object: str
    kind: str
    reason: str = ""
    time: str = ""
    status: int = 0
    ms: float = 0.0
    member: str = ""
    tool: str = ""


class Footer(msgspec.Struct, frozen=True, rename="camel"):
    events: int
    last_seq: int


Line = Header | Facts | Captured | Action | Footer

_OBJECT = msgspec.json.Decoder(ReducedObject)
_ATTRIBUTES: Final = (
    *("specversion", "id", "type", "source", "subject", "time", "datacontenttype"),
    *("kind", "namespace", "name", "uid", "resourceversion", "epoch", "digest", "models"),
    *("sequence", "partitionkey", "synthetic", "truncated"),
)
_WRITTEN_ONLY: Final = {"specversion", "subject", "datacontenttype", "sequence", "partitionkey"}
_ABSENT: Final = msgspec.Raw()


class _Any(msgspec.Struct):
    """A line before it is known what it is."""

    capture: str | None = None
    specversion: str | None = None
    facts: msgspec.Raw = _ABSENT
    action: msgspec.Raw = _ABSENT
    footer: msgspec.Raw = _ABSENT


class _Told(msgspec.Struct):
    """The members of an event's line that are no CloudEvents attributes of ours."""

    data: msgspec.Raw
    nats: Position = Position(0)
    initial: bool = False
    traceparent: str = ""


_ANY = msgspec.json.Decoder(_Any)
_TOLD = msgspec.json.Decoder(_Told)
# Those that `events.decode` reads, all at once: a capture has many events.
_READ_NAMES: Final = tuple(name for name in _ATTRIBUTES if name not in _WRITTEN_ONLY)
_READ_HEADERS: Final = tuple(f"ce-{name}" for name in _READ_NAMES)
_READ = msgspec.json.Decoder(msgspec.defstruct("_Read", [(name, Any, UNSET) for name in _READ_NAMES]))
EVENT_MEMBERS: Final = frozenset((*_ATTRIBUTES, *_Told.__struct_encode_fields__))


def decode(text: bytes) -> Line | None:
    """Return what a line says, None for one of a kind that this release does not know.

    Raises CaptureError with the rest of a sentence: `is of a newer format`, `does not decode: ...`.
    """
    try:
        return _decoded(_ANY.decode(text), text)
    except (*UNDECODABLE, BadEventError) as error:
        raise CaptureError(f"does not decode: {error}") from error


def _decoded(line: _Any, text: bytes) -> Line | None:
    if line.capture is not None:
        require_known(line.capture)
        return msgspec.json.decode(text, type=Header)
    if line.specversion is not None:
        return _event(text)
    if line.facts:
        return msgspec.json.decode(line.facts, type=Facts)
    if line.action:
        return msgspec.json.decode(line.action, type=Action)
    if line.footer:
        return msgspec.json.decode(line.footer, type=Footer)
    return None


def encode(line: Line) -> bytes:
    """Return a line, without its end."""
    match line:
        case Header():
            return msgspec.json.encode(line)
        case Captured():
            return _encode_event(line)
        case Facts() | Action() | Footer():
            return msgspec.json.encode({type(line).__name__.lower(): line})


def require_known(capture: str) -> None:
    """Raise CaptureError unless a file of that format can be read."""
    name, _, major = capture.partition("/")
    if name != _NAME:
        raise CaptureError(f"is no capture: it says {capture[:40]!r}, not {FORMAT!r}")
    if major != _MAJOR:
        raise CaptureError(f"is of format {capture[:40]!r}, and this release reads {FORMAT!r}: use a newer isvc-sync")


def _event(text: bytes) -> Captured:
    values = msgspec.structs.astuple(_READ.decode(text))
    headers = {name: _header(value) for name, value in zip(_READ_HEADERS, values, strict=True) if value is not UNSET}
    told = _TOLD.decode(text)
    return Captured(events.decode(headers), bytes(told.data), told.nats, told.initial, told.traceparent)


def _header(value: Any) -> str:
    """Return an attribute as the header that `events.decode` reads."""
    if isinstance(value, str):
        return value.replace("%", "%25")
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _encode_event(line: Captured) -> bytes:
    attributes: dict[str, Any] = {
        name.removeprefix("ce-"): unquote(value)
        for name, value in events.encode(line.event).items()
        if name != MESSAGE_ID
    }
    for flag in ("synthetic", "truncated"):
        if flag in attributes:
            attributes[flag] = True
    extra: dict[str, Any] = {"initial": True} if line.initial else {}
    if line.traceparent:
        extra["traceparent"] = line.traceparent
    return msgspec.json.encode({**attributes, **extra, "nats": line.position, "data": msgspec.Raw(line.data)})


def key_of(text: str) -> ObjectKey:
    """Return the object that an action's line names. Raises CaptureError."""
    parts = text.split("/")
    if len(parts) != len(ObjectKey.__struct_fields__):
        raise CaptureError(f"{text[:80]!r} is no <kind>/<namespace>/<name>")
    return msgspec.convert(dict(zip(ObjectKey.__struct_fields__, parts, strict=True)), ObjectKey)
