"""From a change to a message: headers, body, trace, and what a tombstone's body is. Hands it to the publisher."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context

from producer.changes import Change
from producer.ledger import Ledger
from producer.publisher import Message, Publisher
from shared.decoding import UNDECODABLE
from shared.errors import PermanentError, TransientError
from shared.events import MESSAGE_ID, Event, SyncMarker, encode, encode_marker
from shared.objects import Kind
from shared.reduce import truncate
from shared.subjects import Subjects
from shared.telemetry import inject

logger = logging.getLogger(__name__)

# What is left of the largest object after truncation, headers included; the broker's default limit is 1 MiB.
PAYLOAD_BYTES_MIN: Final = 256 * 1024
_HEADER_SPARE_BYTES: Final = 512  # the protocol's own line, and the trace context that is added last
_READ_AGAIN_S: Final = 1.0
TEMPLATE: Final = "isvc.{cluster}.evt.{shard}.{kind}.{namespace}.{name}"


class Source(Struct, frozen=True):
    """Whose events these are, and for which broker.

    `api_version` is the group and version of a kind. `max_payload_bytes` is what the broker takes at present, headers
    included. `now` is the wall clock: when something was seen is part of an event.
    """

    cluster_id: str
    subjects: Subjects
    api_version: Callable[[Kind], str]
    max_payload_bytes: Callable[[], int]
    now: Callable[[], float] = time.time

    def time(self) -> str:
        """Return the present moment as CloudEvents wants it (RFC 3339)."""
        return datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Outbox:
    """Publishes changes and sync markers; waits while the publisher has no room."""

    def __init__(self, source: Source, publisher: Publisher, ledger: Ledger, tracer: Tracer) -> None:
        self._source = source
        self._publisher = publisher
        self._ledger = ledger
        self._tracer = tracer

    async def publish(self, change: Change, acknowledged: Callable[[int], None]) -> None:
        """Queue the message of a change; `acknowledged` is told its sequence in the stream."""
        body = change.body
        if body is None:
            change, body = await self._with_last_body(change)
        event = _event(change, self._source)
        headers, encoded = encode(event), msgspec.json.encode(body)
        if _size(headers, encoded) > self._source.max_payload_bytes():
            headers = encode(msgspec.structs.replace(event, truncated=True))
            encoded = msgspec.json.encode(truncate(body))
            logger.warning("object is too large for the broker: published truncated", extra={"object": str(change.key)})
        subject = self._source.subjects.event(change.key)
        span = self._tracer.start_span(
            f"send {TEMPLATE}",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "nats",
                "messaging.operation.type": "send",
                "messaging.operation.name": "publish",
                "messaging.destination.template": TEMPLATE,
                "messaging.destination.name": subject,
                "messaging.message.id": event.id,
            },
        )
        inject(headers, set_span_in_context(span))

        def done(sequence: int) -> None:
            span.set_attribute("messaging.nats.stream_sequence", sequence)
            span.end()
            acknowledged(sequence)

        await self._publisher.put(Message(str(change.key), subject, encoded, headers, done))

    async def announce(self, kind: Kind, marker: SyncMarker) -> None:
        """Publish the sync marker; everything that it speaks of must be acknowledged."""
        headers, body = encode_marker(marker, kind=kind, cluster_id=self._source.cluster_id, time=self._source.time())
        headers[MESSAGE_ID] = headers["ce-id"]
        subject = self._source.subjects.sync(kind)
        await self._publisher.put(Message(subject, subject, body, headers))

    async def settled(self) -> None:
        """Wait until everything is acknowledged that was published before."""
        await self._publisher.barrier()

    async def _with_last_body(self, change: Change) -> tuple[Change, dict[str, Any]]:
        """Return the change with the body of the object's last message, and with what it really corrects."""
        await self._publisher.barrier()  # the last message may be one of ours, still under way
        while True:
            try:
                stored = await self._ledger.last(change.key)
                break
            except (TransientError, PermanentError) as error:
                logger.warning("the last state of an object cannot be read yet", extra={"error": str(error)})
                await asyncio.sleep(_READ_AGAIN_S)
        if stored is None:
            return msgspec.structs.replace(change, corrects=0), _known(change, self._source)
        body = _decoded(stored.body, change) or _known(change, self._source)
        return msgspec.structs.replace(change, corrects=stored.sequence), body


def _event(change: Change, source: Source) -> Event:
    return Event(
        type=change.type,
        key=change.key,
        uid=change.uid,
        epoch=change.epoch,
        resource_version=change.resource_version,
        digest=change.digest,
        models=change.models,
        cluster_id=source.cluster_id,
        time=source.time(),
        corrects=change.corrects,
    )


def _size(headers: dict[str, str], body: bytes) -> int:
    """Return what the broker counts against its limit."""
    return _HEADER_SPARE_BYTES + sum(len(name) + len(value) + 4 for name, value in headers.items()) + len(body)


def _known(change: Change, source: Source) -> dict[str, Any]:
    """Return what is known of an object whose last state is lost: who it was."""
    key = change.key
    identity = {"name": key.name, "namespace": key.namespace, "uid": change.uid}
    return {
        "apiVersion": source.api_version(key.kind),
        "kind": key.kind.kubernetes_kind,
        "metadata": {**identity, "resourceVersion": change.resource_version, "labels": {}, "annotations": {}},
        "spec": {},
        "status": {},
    }


def _decoded(body: bytes, change: Change) -> dict[str, Any] | None:
    """Return the last body of the subject if it is that of the same object, not of another owner of its name.

    A second producer may have published about that one after the inventory was read.
    """
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except UNDECODABLE:
        return None
    metadata = found.get("metadata")
    return found if isinstance(metadata, dict) and metadata.get("uid") == change.uid else None
