"""What may stand in a capture file, whoever gave it to us. Pure.

Every line that is written passes through here. Objects are reduced once more (`shared/reduce.py`: an allow-list), of
records' properties only ours keep their values, every URI in every text loses userinfo and query, and the finished line
is searched for credentials like a line of the log. On demand names become tokens, too (`anonymity.py`).
"""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from consumer.discovery import COMPONENT_LABEL, EXTERNAL_ADDRESSES, DiscoverySettings, Service
from consumer.records import PROPERTY, URL_PROPERTY, Stamp, encode_stamp, string_property
from replay.capture import (
    Action,
    Captured,
    CaptureError,
    Facts,
    Footer,
    Header,
    Line,
    RecordFact,
    Redaction,
    encode,
)
from replay.upkeep.anonymity import Anonymizer
from replay.upkeep.rewriting import encode_over
from shared.decoding import UNDECODABLE
from shared.errors import BadEventError
from shared.logs import redact
from shared.reduce import known_prefixes, reduce_object
from shared.uris import clean_text, clean_uri

REDACTED: Final = "***"
ANONYMOUS: Final = "anonymous"
_TRACE_CHARS: Final = frozenset("0123456789abcdef-")
_TRACE_MAX: Final = 64


class Redactor:
    """Redacts the lines of one file; `header` is the redacted one.

    With an anonymizer, members and lines that this release does not know are left out, since they may hold names.
    """

    def __init__(self, header: Header, anonymizer: Anonymizer | None = None) -> None:
        self._prefixes = known_prefixes(header.deciding.prefix)
        self._anonymizer = anonymizer
        found = _header(header, ANONYMOUS if anonymizer else header.redaction.profile)
        self.header = anonymizer.header(found) if anonymizer else found

    @property
    def is_anonymous(self) -> bool:
        """Whether names become tokens."""
        return self._anonymizer is not None

    def header_text(self, text: bytes = b"") -> bytes:
        """Return the first line; `text` is the one whose place it takes."""
        return self._finished(self.header, text)

    def line(self, line: Line) -> bytes:
        """Return the text of a line. Raises BadEventError for an event whose object cannot be reduced."""
        return self._finished(self._redacted(line), b"")

    def rewritten(self, line: Line | None, text: bytes) -> bytes | None:
        """Return what takes the place of a file's line; None where nothing may. Raises BadEventError as `line`."""
        if line is not None:
            return self._finished(self._redacted(line), text)
        return None if self._anonymizer else _scrubbed_text(text)

    def _redacted(self, line: Line) -> Line:
        match line:
            case Captured():
                found: Line = self._event(line)
            case Facts():
                name = clean_uri(line.registry) if "://" in line.registry else line.registry
                found = replace(line, registry=name, records=tuple(map(_record, line.records)))
            case Header():
                found = _header(line, line.redaction.profile)
            case Action() | Footer():
                found = line
        return self._anonymizer.line(found) if self._anonymizer else found

    def _event(self, line: Captured) -> Captured:
        raw = _object(line)
        reduced = reduce_object(raw, self._prefixes)
        # Of a reduced object only the annotations that stayed are there to be counted.
        told = raw["metadata"].get("hasAnnotations")
        if isinstance(told, bool):
            reduced["metadata"]["hasAnnotations"] = told
        trace = (
            line.traceparent
            if len(line.traceparent) <= _TRACE_MAX and _TRACE_CHARS.issuperset(line.traceparent)
            else ""
        )
        return replace(line, data=msgspec.json.encode(reduced), traceparent=trace)

    def _finished(self, line: Line, text: bytes) -> bytes:
        keep = text and not self._anonymizer
        return _scrubbed_text(encode_over(line, text) if keep else encode(line))


def _object(line: Captured) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line.data, type=dict[str, Any])
    except UNDECODABLE as error:
        raise BadEventError(f"the object of {line.event.key} does not decode") from error


def _header(header: Header, profile: str) -> Header:
    deciding = header.deciding
    discovery = deciding.discovery
    return replace(
        header,
        deciding=replace(
            deciding,
            discovery=_discovery(discovery) if discovery is not None else None,
            services=tuple(map(_service, deciding.services)),
        ),
        redaction=Redaction(profile),
    )


def _discovery(settings: DiscoverySettings) -> DiscoverySettings:
    return replace(settings, url=None if settings.url is None else clean_uri(settings.url))


def _service(service: Service) -> Service:
    """Keep of a Service what leads to a registry."""
    key, _ = COMPONENT_LABEL
    return replace(
        service,
        labels={name: text for name, text in service.labels.items() if name == key},
        annotations={name: clean_uri(text) for name, text in service.annotations.items() if name in EXTERNAL_ADDRESSES},
    )


def _record(record: RecordFact) -> RecordFact:
    return replace(record, properties={name: _property(name, value) for name, value in record.properties.items()})


def _property(name: str, value: Any) -> Any:
    """Return what stays of a custom property: of ours the content, of a user's only that it is there."""
    text = value.get("string_value") if isinstance(value, dict) else None
    if name == URL_PROPERTY and isinstance(text, str):
        return string_property(clean_uri(text))
    if name == PROPERTY and isinstance(text, str):
        try:
            stamp = msgspec.json.decode(text, type=Stamp)
        except UNDECODABLE:
            return string_property(REDACTED)  # edited by hand: a reader takes it for none, as it took the original
        return encode_stamp(replace(stamp, storage_uri=clean_uri(stamp.storage_uri)))
    if not isinstance(value, dict):
        return string_property(REDACTED)
    return {key: each if key == "metadataType" else _emptied(each) for key, each in value.items()}


def _emptied(value: Any) -> Any:
    """Return a value of the same type that says nothing."""
    match value:
        case bool():
            return False
        case int() | float():
            return 0
        case _:
            return REDACTED


def _scrubbed_text(text: bytes) -> bytes:
    """Return a line whose every text was cleaned, and which was then searched once more as a whole.

    Raises CaptureError when it is no JSON.
    """
    try:
        document = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise CaptureError(f"does not decode: {error}") from error
    return redact(msgspec.json.encode(_scrubbed(document)).decode()).encode()


def _scrubbed(value: Any) -> Any:
    match value:
        case str():
            return clean_text(value) if "://" in value else value
        case dict():
            return {_scrubbed(key): _scrubbed(each) for key, each in value.items()}
        case list():
            return [_scrubbed(each) for each in value]
        case _:
            return value
