"""Messages as the broker delivers them, and the work they ask for."""

import msgspec
from msgspec.structs import replace

from consumer.delivery.work import Work, receive
from consumer.freshness import Freshness
from shared.events import Event, EventType, encode
from shared.objects import ObjectKey, ReducedObject
from shared.subjects import Subjects
from tests.unit.consumer.fakes import FakeMessage
from tests.unit.consumer.worlds import KEY, MODEL, SEEN, UID, VERSION, an_object, seen

SUBJECTS = Subjects("isvc", "prod-a", 16)
CLUSTER_ID = "c-1"


def an_event(obj: ReducedObject, type_: EventType = EventType.UPDATED, **changes: object) -> Event:
    key = replace(KEY, namespace=obj.metadata.namespace, name=obj.metadata.name)
    event = Event(
        type=type_,
        key=key,
        uid=obj.metadata.uid,
        epoch=1,
        resource_version=obj.metadata.resource_version,
        digest="v1:0123456789abcdef",
        models=tuple(value for name, value in obj.metadata.labels.items() if name == MODEL),
        cluster_id=CLUSTER_ID,
        time=SEEN,
    )
    return replace(event, **changes)


def delivered(event: Event, obj: ReducedObject, sequence: int = 1, num_delivered: int = 1) -> FakeMessage:
    return FakeMessage(
        sequence,
        subject=SUBJECTS.event(event.key),
        headers=encode(event),
        body=msgspec.json.encode(obj),
        num_delivered=num_delivered,
    )


def event_work(
    obj: ReducedObject | None = None, type_: EventType = EventType.UPDATED, sequence: int = 1, **changes: object
) -> Work:
    """Return the work of an event, through the door that every message takes."""
    obj = obj or an_object()
    return receive(delivered(an_event(obj, type_, **changes), obj, sequence), CLUSTER_ID)


def look_work(key: ObjectKey = KEY, sequence: int = 1) -> Work:
    return receive(FakeMessage(sequence, subject=SUBJECTS.look(key)), CLUSTER_ID)


def small_work(
    version: int,
    *,
    uid: str = UID,
    name: str = "iris",
    label: str = "11",
    sequence: int | None = None,
    creates_first: bool = False,
) -> Work:
    """Return the work of an event, without its way over the wire."""
    observation = seen(an_object({MODEL: "1", VERSION: label}, version=str(version)))
    key = replace(KEY, name=name)
    observation = replace(observation, uid=uid, key=key, freshness=Freshness(1, str(version)), time=f"t{version}")
    message = FakeMessage(version if sequence is None else sequence)
    return Work(key, message, observation, creates_first=creates_first)
