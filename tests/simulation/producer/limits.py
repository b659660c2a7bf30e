"""What the producer does not promise: each known limit by its name in docs/producer.md, as narrow as it can be told.

`claims.py` leaves these out and nothing else; `test_known_limits.py` shows each. All but `numbering_lost` and
`came_back` need two producers at work together.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from consumer.freshness import Order, compare
from shared.events import Event, EventType
from tests.simulation.producer.broker import Kept, events, freshness

if TYPE_CHECKING:
    from shared.objects import ObjectKey
    from tests.simulation.producer.world import World


def overwritten(world: "World", *, by_another_owner: bool = False) -> set[str]:
    """Known limit: uids whose last message a second producer has overwritten, before it could know of it.

    By one about another owner of the name: then nothing in the stream says that they lived, so nobody says that they
    have gone. By one of the same uid: then it may lack a model that the first one named.
    """
    found: set[str] = set()
    last: dict[ObjectKey | str, Kept] = {}
    for one in world.broker.told:
        event = one.sent.event
        assert event is not None
        for before in (last.get(event.key), last.get(event.uid)):
            if before is None or before.sent.by == one.sent.by or before.nth <= one.sent.known:
                continue
            assert before.sent.event is not None
            if not by_another_owner or before.sent.event.uid != event.uid:
                found.add(before.sent.event.uid)
        last[event.key] = last[event.uid] = one
    return found


def epochs_crossed(world: "World") -> set[str]:
    """Known limit: uids whose delete a second producer said in an older epoch than what was said before it.

    The consumer takes that for old news; the next list says it again, unless another owner of the name came first. When
    etcd is put back once more, so that the object lives, it hides the newer epoch's delete from the next list.
    """
    found: set[str] = set()
    highest: dict[str, int] = {}
    for event in events(world.broker.told if world.overlapped else []):
        if event.epoch < highest.get(event.uid, 0) and event.type is EventType.DELETED:
            found.add(event.uid)
        highest[event.uid] = max(event.epoch, highest.get(event.uid, 0))
    return found


def numbering_lost(world: "World", event: Event) -> bool:
    """Known limit: etcd put back and the broker's storage lost at once, and then a new producer before all was said.

    It has not seen the old numbering, and finds its epoch in the new stream; what was said before counts as newer. The
    same when two producers that contradict each other had begun an epoch, of which the new stream does not know.
    """
    current = events(world.broker.log)
    unknown_epoch = event.epoch > max((one.epoch for one in current), default=0)
    renumbered = world.cluster.restored > 0 or unknown_epoch
    return world.numbering_lost and renumbered and event.id not in {one.id for one in current}


def came_back(said: Iterable[Event]) -> set[str]:
    """Known limit: uids that a restored etcd brought back after the next owner of their name was announced.

    Nobody remembers which models they carried before; the records of those were undeployed with their delete.
    """
    found: set[str] = set()
    owner: dict[ObjectKey, str] = {}
    former: set[str] = set()
    for event in said:
        before = owner.get(event.key, event.uid)
        if before != event.uid:
            former.add(before)
            if event.uid in former and event.type is not EventType.DELETED:
                found.add(event.uid)
        owner[event.key] = event.uid
    return found


def stale_on_top(world: "World", event: Event) -> bool:
    """Known limit: a second producer's late message lies on top of this one, and says by chance what is true again.

    The list then finds the stream right; the consumer, which knew it to be late, keeps this one.
    """
    last = next((one for one in reversed(events(world.broker.log)) if one.uid == event.uid), event)
    return event.uid in overwritten(world) and compare(freshness(last), freshness(event)) is Order.OLDER
