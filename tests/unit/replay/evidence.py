"""What is found of one object, as evidence for its life: everything in order, but for what a test says otherwise."""

from typing import Any

import msgspec

from consumer.observation import Observation
from consumer.records import Record
from replay.capture import Captured, Position
from replay.life.conclusion import Life
from replay.life.facts import Delivery, Evidence, Live, Past, Standing
from replay.life.pending import Cause
from shared.events import Event, EventType, SyncMarker
from shared.objects import ReducedObject
from tests.unit.consumer.worlds import FACTS, KEY, READY, SEEN, SETTINGS, UID, an_object, carrying, record_of, seen

HOME = "http://registry"
LINKED = carrying(an_object(status=READY), "7")
RECORD = record_of(seen(LINKED))
EVERYWHERE = SyncMarker((), "1", 1)
IDLE = Delivery(shard=3, delivered=50, acked=50)
STOP = {"serving.kserve.io/stop": "true"}
BARE = an_object({}, status=READY)


def event(obj: ReducedObject, seq: int = 5, kind: EventType = EventType.UPDATED, digest: str = "v1:d") -> Past:
    told = Event(kind, KEY, obj.metadata.uid, 1, obj.metadata.resource_version, digest, ("1",), "c-1", SEEN)
    return Past(Captured(told, msgspec.json.encode(obj), Position(seq)))


def evidence(obj: ReducedObject = LINKED, *records: Record, state: Observation | None = None, **given: Any) -> Evidence:
    """Return what is found of an object that lives, was told by one event that is handled, and has these records."""
    state = state or seen(obj)
    standing = Standing(seen=state, home=HOME, facts=FACTS)
    found = {
        "past": (event(obj),),
        "standings": {UID: standing},
        "records": {HOME: records},
        "live": Live(state),
        "delivery": IDLE,
        "marker": EVERYWHERE,
    }
    return Evidence(key=KEY, settings=SETTINGS, **(found | given))


def gone(**given: Any) -> Evidence:
    """Return what is found of an object that was deleted, and whose end was told."""
    state = seen(LINKED, gone=True)
    found = {"state": state, "past": (event(LINKED, kind=EventType.DELETED),), "live": Live()}
    return evidence(LINKED, *given.pop("those", ()), **(found | given))


def causes(found: Life) -> list[Cause]:
    return [each.cause for section in found.sections for each in section.pending]
