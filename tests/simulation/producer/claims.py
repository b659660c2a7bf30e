"""What must hold: of each event when a producer says it, and of the stream when all has come to rest.

What the product does not promise (docs/producer.md, "Known limits") is left out here by name, and nowhere else; each
has a test that shows it.
"""

from typing import TYPE_CHECKING

import msgspec

from consumer.freshness import Order, compare
from producer.publisher import Message
from shared.events import Event, EventType
from shared.objects import ObjectKey
from tests.simulation.producer.broker import PER_SUBJECT, events, freshness
from tests.simulation.producer.limits import (
    came_back,
    epochs_crossed,
    numbering_lost,
    overwritten,
    stale_on_top,
)

if TYPE_CHECKING:
    from tests.simulation.producer.world import World


def said(world: "World", event: Event, message: Message, before: list[Event]) -> None:
    """Check an event that a producer hands to its publisher, against the truth and what the same producer said."""
    if event.type is EventType.DELETED:
        assert event.uid in world.cluster.absent, f"{event.id}: deleted is said of what never went"
    assert msgspec.json.decode(message.body)["metadata"]["uid"] == event.uid, f"{event.id}: another object's body"
    earlier = next((one for one in reversed(before) if one.uid == event.uid), None)
    if earlier is None:
        return
    # With a second producer, a pass may end and forget before a late message hides the models: `limits.overwritten`.
    kept = world.overlapped or set(event.models) >= set(earlier.models)
    assert kept or event.uid in came_back([*before, event]), f"{event.id}: models were forgotten"
    if not event.synthetic:
        assert compare(freshness(event), freshness(earlier)) is not Order.OLDER, (
            f"{event.id}: falls behind {earlier.id}"
        )


def check(world: "World") -> None:
    """Check what the stream says at rest. A claim that fails says which object and why."""
    assert max(world.broker.sizes(), default=0) <= PER_SUBJECT
    _stream_is_the_cluster(world)
    _consumer_is_right(world)
    if not world.overlapped:
        _owners_in_order(world)


def _stream_is_the_cluster(world: "World") -> None:
    last = {event.key: event for event, _ in world.broker.inventory()}
    for key, living in world.cluster.objects.items():
        if not in_scope(world, key):
            continue
        found = living.observed(key)
        event = last.get(key)
        assert event is not None, f"{key} was never published"
        assert (event.uid, event.digest) == (found.uid, found.digest), f"{key}: the stream is behind"
        assert event.type is not EventType.DELETED, f"{key} lives, and its last message is a delete"
    for key, event in last.items():
        if in_scope(world, key) and key not in world.cluster.objects:
            assert event.type is EventType.DELETED, f"{key}: no delete in the stream"


def _consumer_is_right(world: "World") -> None:
    """Check what a consumer knows that kept the freshest event of each uid."""
    kept: dict[str, Event] = {}
    for event in events(world.broker.told):
        before = kept.get(event.uid)
        if before is None or compare(freshness(event), freshness(before)) is not Order.OLDER:
            kept[event.uid] = event
    models: dict[str, set[str]] = {}
    for event in events(world.broker.log):
        models.setdefault(event.uid, set()).update(event.models)
    silenced = overwritten(world) | came_back(events(world.broker.told))
    gone = overwritten(world, by_another_owner=True)
    crossed = epochs_crossed(world)
    living = {now.uid: now.observed(key) for key, now in world.cluster.objects.items()}
    for uid, event in kept.items():
        if not in_scope(world, event.key) or numbering_lost(world, event):
            continue
        if uid in living and uid not in crossed:
            assert event.type is not EventType.DELETED, f"{uid}: lives, and counts as deleted"
            assert stale_on_top(world, event) or event.digest == living[uid].digest, (
                f"{uid}: the freshest event is not the last state"
            )
        elif (
            uid in models and uid not in gone | crossed
        ):  # else it was lost with the storage: the consumer's sweep finds it
            assert event.type is EventType.DELETED, f"{uid}: no delete reached it"
        assert uid in silenced or set(event.models) >= models.get(uid, set()), f"{uid}: models were forgotten"


def _owners_in_order(world: "World") -> None:
    """Check that the next owner of a name is announced after the delete of the one before."""
    last: dict[ObjectKey, Event] = {}
    for event in events(world.broker.log):
        before = last.get(event.key)
        if before is not None and before.uid != event.uid:
            assert before.type is EventType.DELETED, f"{event.id} comes before the delete of {before.uid}"
        last[event.key] = event


def in_scope(world: "World", key: ObjectKey) -> bool:
    if world.scope:
        return key.namespace in world.scope
    return world.selection is None or key.namespace in world.selection
