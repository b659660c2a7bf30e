"""What a chaos run writes down while it goes on, and what it reads of the streams when it has ended."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import nats
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

from consumer.ownership.targets import Lease
from consumer.records import PROPERTY
from sandbox.registry import RegistryServer
from sandbox.registry.store import Row
from shared.events import decode
from tests.chaos.judge import Effect, Leases, Told
from tests.e2e.pipeline import MODEL, STREAMS, VERSION
from tests.eventually import eventually

_READ_WITHIN_S = 30.0


class Writes:
    """Every write to a record of the registry, held against what it replaces at the moment in which it lands.

    `older`: it is of an older state. `idle`: it changes nothing but what rides along.
    """

    def __init__(self, registry: RegistryServer) -> None:
        self.seen: Counter[str] = Counter()
        store = registry.registry.store
        self._put = store._put
        self._before = store.get
        store._put = self._watched  # the one place where a row is stored

    def _watched(self, row: Row) -> None:
        if row.kind.collection == "inference_services":
            before = self._before(row.kind, row.id)
            self.seen["create" if before is None else "update"] += 1
            if before is not None:
                self._compare(before, row)
        self._put(row)

    def _compare(self, before: Row, after: Row) -> None:
        was, now = _stamp(before), _stamp(after)
        if _freshness(now) < _freshness(was):
            self.seen["older"] += 1
        if before.fields == after.fields and _content(was) == _content(now) and _url(before) == _url(after):
            self.seen["idle"] += 1


def _stamp(row: Row) -> dict[str, Any]:
    return dict(json.loads(row.properties.get(PROPERTY, {}).get("string_value", "{}")))


def _freshness(stamp: dict[str, Any]) -> tuple[int, bool, int]:
    return int(stamp.get("epoch", 0)), bool(stamp.get("deleted")), int(stamp.get("resourceVersion") or 0)


def _content(stamp: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in stamp.items() if name not in {"epoch", "resourceVersion", "digest", "generation"}
    }


def _url(row: Row) -> Any:
    return row.properties.get("url")


def effects(path: Path) -> list[Effect]:
    """Return what the consumers have written down of their effects; a line that a kill cut off is no effect.

    Events of Kubernetes are none: they tell people what was done, whenever there is time for it.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    written = (msgspec.json.decode(line, type=Effect) for line in lines)
    return [effect for effect in written if "/events" not in effect.what]


async def stored_leases(url: str) -> Leases:
    """Return all leases of shards that the broker has stored."""
    messages = await _read(url, STREAMS.lease, "isvc.*.lease.shard.*")
    return Leases(
        (
            message.metadata.timestamp.timestamp(),
            int(message.subject.rpartition(".")[2]),
            msgspec.json.decode(message.data, type=Lease).member,
        )
        for message in messages
    )


async def told(url: str) -> list[Told]:
    """Return all events that the broker holds, in its order."""
    return [_told(message) for message in await _read(url, STREAMS.events, "isvc.*.evt.>")]


async def looks(url: str) -> int:
    """Return how many looks the stream holds: what the sweep found to differ, and had repaired."""
    return len(await _read(url, STREAMS.events, "isvc.*.look.>"))


async def dead_letters(url: str) -> list[str]:
    """Return which messages are among the dead letters, and why."""
    letters = [message.headers or {} for message in await _read(url, STREAMS.dlq, "isvc.*.dlq.>")]
    return [f"{each['isvc-subject']} is a dead letter: {unquote(each['isvc-reason'])}" for each in letters]


def _told(message: Msg) -> Told:
    event = decode(message.headers)
    labels = json.loads(message.data)["metadata"].get("labels", {})
    model, version = labels.get(MODEL, ""), labels.get(VERSION, "")
    return Told(event.uid, int(event.resource_version), model, version, message.metadata.sequence.stream)


async def _read(url: str, stream: str, subject: str) -> list[Msg]:
    """Return the stream's messages of these subjects, when nothing is killed any more."""
    client = await nats.connect(url.split(","))
    found: list[Msg] = []

    async def take(message: Msg) -> None:
        found.append(message)

    try:
        jetstream = client.jetstream(timeout=5)
        info = await jetstream.stream_info(stream, subjects_filter=subject)
        count = sum((info.state.subjects or {}).values())
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        await jetstream.subscribe(subject, stream=stream, cb=take, ordered_consumer=True, config=config)
        await eventually(lambda: len(found) >= count, f"{count} messages of {stream}", _READ_WITHIN_S)
    finally:
        await client.close()
    return found
