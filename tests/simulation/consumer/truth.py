"""What the stream says of each object in the end, said again in the words of the claims, and not in the consumer's."""

from dataclasses import dataclass

from consumer.records import Stamp
from shared.events import Event, EventType
from shared.objects import ObjectKey
from tests.simulation.consumer.broker import Stored
from tests.simulation.consumer.cluster import VERSIONS_OF, Content, Living
from tests.simulation.consumer.registry import Said

Freshness = tuple[int, bool, int]
MODEL_OF = {version: model for model, own in VERSIONS_OF.items() for version in own}


def freshness_of(event: Event, living: Living) -> Freshness:
    """Say again, and on its own, what `consumer/freshness.py` says."""
    gone = event.type is EventType.DELETED or living.content.going
    return event.epoch, gone, int(event.resource_version)


def _freshness_of(stamp: Stamp) -> Freshness:
    return stamp.epoch, stamp.deleted, int(stamp.resource_version)


def overwrites_newer(before: Said, after: Said) -> bool:
    was, now = before.stamp, after.stamp
    return was is not None and (now is None or _freshness_of(now) < _freshness_of(was))


def is_older(record: Said, state: Freshness) -> bool:
    stamp = record.stamp
    return stamp is None or _freshness_of(stamp) < state


@dataclass(frozen=True)
class Truth:
    """What the stream says of a uid in the end: its freshest event, and all its states from oldest to newest."""

    key: ObjectKey
    uid: str
    event: Event
    living: Living
    content: Content
    lives: bool
    states: tuple[Content, ...]
    carried: tuple[str, ...]


def truths(told: list[Stored]) -> dict[str, Truth]:
    by_uid: dict[str, list[tuple[Freshness, int, Event, Living]]] = {}
    for one in told:
        if one.event is not None and one.living is not None:
            entry = (freshness_of(one.event, one.living), one.sequence, one.event, one.living)
            by_uid.setdefault(one.event.uid, []).append(entry)
    found = {}
    for uid, entries in by_uid.items():
        entries.sort(key=lambda entry: entry[:2])
        freshness, _, event, living = entries[-1]
        carried = dict.fromkeys(model for entry in entries for model in entry[2].models)
        found[uid] = Truth(
            event.key,
            uid,
            event,
            living,
            living.content,
            not freshness[1],
            tuple(entry[3].content for entry in entries),
            tuple(carried),
        )
    return found


def recorded_version(content: Content) -> str:
    """Return the version that a record can name: one that is there, and of the labelled model."""
    return content.version if content.version and MODEL_OF.get(content.version) == content.model else ""


def complaint(content: Content) -> bool:
    """Whether a person must see this: a label that names nothing."""
    if not content.model:
        return False
    return content.model not in VERSIONS_OF or bool(content.version and content.version not in MODEL_OF)
