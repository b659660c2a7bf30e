"""A cluster, a broker and a producer in memory, for histories with faults at every step.

The producer is the real state machine, checkpoint and inventory; only the loop around them and the two servers are
played. Every choice comes from one seeded generator, every fault is counted.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from producer.checkpoint import Checkpoint
from producer.inventory import Change, Entry, Epoch, Inventory
from producer.items import (
    Begin,
    Bookmark,
    Closed,
    Gone,
    Item,
    Lost,
    Malformed,
    Observed,
    Page,
    Refused,
    Resync,
    Seen,
    Silent,
    Waited,
)
from producer.states import (
    Advance,
    BeginPass,
    EndPass,
    GetPage,
    Observe,
    OpenInitial,
    OpenWatch,
    Remove,
    Settle,
    State,
    Trouble,
    Wait,
)
from producer.watch import start, step
from shared.events import Event, EventType
from shared.objects import ObjectKey, compare_resource_versions
from tests.unit.producer.observed import observed

NAMES = ("a", "b", "c", "d")  # few enough for the mass-delete guard to keep out of it
MODELS = ("", "1", "2")
Write = Seen | Gone


@dataclass
class Cluster:
    """etcd and its API server: objects, one counter, a bounded history."""

    version: int = 10
    objects: dict[str, Observed] = field(default_factory=dict)
    history: list[tuple[int, Write]] = field(default_factory=list)
    begins_after: int = 10
    uids: int = 0

    def write(self, chance: random.Random) -> None:
        name = chance.choice(NAMES)
        self.version += chance.randint(1, 3)
        now = self.objects.get(name)
        if now is None:
            self.uids += 1
            self._put(observed(name, uid=f"u{self.uids}", version=self.version, model=chance.choice(MODELS)))
        elif chance.random() < 0.4:
            del self.objects[name]
            self.history.append((self.version, Gone(replace_version(now, self.version))))
        else:
            model = chance.choice((*MODELS, now.model))  # often the same: only the version moves
            self._put(observed(name, uid=now.uid, version=self.version, model=model))

    def _put(self, found: Observed) -> None:
        self.objects[found.key.name] = found
        self.history.append((self.version, Seen(found)))

    def backup(self) -> "Cluster":
        return replace(self, objects=dict(self.objects), history=[])

    def restore(self, backup: "Cluster") -> None:
        """Put an older copy back; what was done since has never happened, but uids are not given twice."""
        self.version, self.objects = backup.version, dict(backup.objects)
        self.restart()

    def restart(self) -> None:
        self.history, self.begins_after = [], self.version

    def after(self, position: int) -> list[Write] | None:
        """The events after a position, or None when it has expired."""
        if position < self.begins_after:
            return None
        return [write for version, write in self.history if version > position]


def replace_version(found: Observed, version: int) -> Observed:
    return observed(found.key.name, uid=found.uid, version=version, model=found.model)


@dataclass
class Stream:
    """JetStream: the events in order, each id once."""

    events: list[Event] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0

    def publish(self, event: Event) -> int:
        if event.id in self.ids:
            self.duplicates += 1
            return self.ids[event.id]
        self.events.append(event)
        self.ids[event.id] = len(self.events)
        return len(self.events)

    def inventory(self) -> dict[ObjectKey, Entry]:
        return {
            e.key: Entry(
                e.uid, e.epoch, e.resource_version, e.digest, e.models, e.type is EventType.DELETED, self.ids[e.id]
            )
            for e in self.events
        }


class Producer:
    """One life of a producer; `clock` is the Unix second."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._epoch = Epoch()
        self._inventory = Inventory(self._epoch)
        self._checkpoint = Checkpoint()
        self._unsent: list[tuple[Event, str]] = []  # handed to the publisher, in order
        self._state: State
        self._state, effects = start()
        self._request = self._perform(effects)

    def turn(self) -> None:
        """Deal with the present request: feed its items until the state machine asks for something else."""
        request = self._request
        for item in self._items(request):
            self._state, effects = step(self._state, item)
            asked = self._perform(effects)
            if asked is not None:
                self._request = asked
                return
            if self._world.happens(0.3):
                self._send()
            if self._world.happens(0.05):
                self._world.write()
        if request is self._request and isinstance(request, OpenWatch | OpenInitial):
            self._feed(Closed(300.0))

    def resync(self) -> None:
        self._feed(Resync("test"))

    def settle(self) -> None:
        """Get everything acknowledged."""
        while self._unsent:
            self._send()

    def crash(self) -> None:
        """Die: what was handed to the publisher may be stored, none of it was seen to be."""
        stored = self._world.chance.randint(0, len(self._unsent))
        for event, _ in self._unsent[:stored]:
            self._world.stream.publish(event)

    def _feed(self, item: Item) -> None:
        self._state, effects = step(self._state, item)
        self._request = self._perform(effects) or self._request

    def _send(self) -> None:
        if self._unsent:
            event, position = self._unsent.pop(0)
            if self._world.fault("sent twice", 0.1):
                self._world.stream.publish(event)
            sequence = self._world.stream.publish(event)
            self._inventory.acknowledged(event.key, sequence)
            if position:
                self._checkpoint.acknowledged(position)

    def _items(self, request):
        match request:
            case Settle():
                self.settle()
                stored = self._world.stream.inventory()
                self._epoch.known(max((entry.epoch for entry in stored.values()), default=0))
                if not self._epoch.value:
                    self._epoch.begin(self._world.now_s())
                self._inventory.reload(stored)
                yield Begin()
            case Wait():
                yield Waited()
            case GetPage(token):
                yield self._world.page(token)
            case OpenInitial():
                yield from self._world.initial()
            case OpenWatch(position):
                yield from self._world.watch(int(self._checkpoint.position or position))

    def _perform(self, effects):
        for effect in effects:
            match effect:
                case Observe(found, live):
                    changes = self._inventory.observe(found, live=live, now_s=self._world.now_s())
                    self._publish(changes, found.resource_version if live else "")
                case Remove(found):
                    self._publish(self._inventory.remove(found), found.resource_version)
                case Advance(position):
                    self._checkpoint.passed(position)
                case BeginPass():
                    self._inventory.begin_pass()
                case EndPass(version, doubtful):
                    self._world.pass_ended()
                    outcome = self._inventory.end_pass(version, doubtful=doubtful, now_s=self._world.now_s())
                    self._publish(outcome.changes, "")
                    self._checkpoint.reset(version)
                case Trouble(reason):
                    self._world.troubles[reason] += 1
                case _:
                    return effect
        return None

    def _publish(self, changes: tuple[Change, ...], position: str) -> None:
        for change in changes:
            corrects = change.corrects
            if change.body is None:  # as the outbox does: the last message says what is corrected
                self.settle()
                corrects = self._world.stream.inventory()[change.key].sequence
            if position:
                self._checkpoint.sent(position)
            event = Event(
                change.type, change.key, change.uid, change.epoch, change.resource_version, change.digest,
                change.models, "c", "now", corrects,
            )  # fmt: skip
            self._unsent.append((event, position))
        if position:
            self._checkpoint.passed(position)


class World:
    """A cluster, a stream, and one producer at a time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster()
        self.stream = Stream()
        self.faults: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self.calm = False
        self.unnoticed = False
        self._clock = 1_000
        self._backup = self.cluster.backup()
        self._page: tuple[int, list[Observed]] = (0, [])
        self.producer = Producer(self)

    def pass_ended(self) -> None:
        self.unnoticed = False

    def write(self) -> None:
        """Change something, unless the numbering of a restored etcd could then catch up with the old one unnoticed.

        Nothing in the API tells such a catching up from an ordinary life.
        """
        if not self.unnoticed:
            self.cluster.write(self.chance)

    def happens(self, share: float) -> bool:
        return not self.calm and self.chance.random() < share

    def fault(self, name: str, share: float) -> bool:
        happened = self.happens(share)
        self.faults[name] += happened
        return happened

    def now_s(self) -> int:
        self._clock += 1
        return self._clock

    def live_through(self, turns: int) -> None:
        """Let cluster, producer and misfortune take their turns."""
        for _ in range(turns):
            for _ in range(self.chance.randint(0, 4)):
                self.write()
            if self.fault("backup", 0.1):
                self._backup = self.cluster.backup()
            if self.fault("etcd restored", 0.04):
                self.unnoticed |= self._backup.version < self.cluster.version
                self.cluster.restore(self._backup)
            if self.fault("API server restarted", 0.05):
                self.cluster.restart()
            if self.fault("storage of the broker lost", 0.02):
                self.stream = Stream()
                self.producer.resync()
            if self.fault("crash", 0.1):
                self.producer.crash()
                self.producer = Producer(self)
            self.producer.turn()

    def come_to_rest(self) -> None:
        """No more faults: until the producer has said everything."""
        self.calm = True
        for _ in range(20):
            self.producer.turn()
        self.producer.settle()

    # what the API server answers

    def page(self, token: str) -> Item:
        if self.fault("list refused", 0.1):
            return self.chance.choice(
                [Refused(503), Refused(410), Refused(404), Refused(403), Lost("x"), Malformed("x")]
            )
        if not token:
            self._page = (self.cluster.version, sorted(self.cluster.objects.values(), key=lambda found: found.key))
        version, found = self._page
        begin = int(token or 0)
        return Page(tuple(found[begin : begin + 2]), str(version), str(begin + 2) if begin + 2 < len(found) else "")

    def initial(self):
        if self.fault("no WatchList", 0.03):
            yield Refused(422)
            return
        position, found = self.cluster.version, sorted(self.cluster.objects.values(), key=lambda one: one.key)
        for one in found:
            yield Seen(one)
            if self.fault("initial stream cut", 0.1):
                yield self.chance.choice([Lost("reset"), Closed(2.0), Silent(), Malformed("half a line")])
                return
        yield Bookmark(str(position), initial_end=True)
        yield from self._live(position)

    def watch(self, position: int):
        if self.fault("watch refused", 0.1):
            yield self.chance.choice([Refused(503), Refused(429), Refused(401), Refused(403), Lost("refused")])
            return
        yield from self._live(position)

    def _live(self, position: int):
        if position > self.cluster.version:
            self.faults["future position"] += 1
            yield Silent()
            return
        events = self.cluster.after(position)
        if events is None:
            self.faults["expired position"] += 1
            yield Refused(410, "Expired", in_stream=True)
            return
        while events:
            if self.fault("watch broken", 0.05):
                yield self.chance.choice(
                    [Lost("reset"), Malformed("half a line"), Closed(0.1), Refused(500, in_stream=True)]
                )
                return
            yield events[0]
            position = int(events[0].object.resource_version)
            events = self.cluster.after(position)  # more may have happened meanwhile
        yield Bookmark(str(position))


def freshest(events: list[Event], uid: str) -> Event:
    """What a consumer keeps of a uid: the greatest of (epoch, resourceVersion, deleted), whatever came last."""
    kept: Event | None = None
    for event in events:
        if event.uid == uid and (kept is None or not older(event, kept)):
            kept = event
    assert kept is not None
    return kept


def older(event: Event, kept: Event) -> bool:
    if event.epoch != kept.epoch:
        return event.epoch < kept.epoch
    if EventType.DELETED in {kept.type, event.type} and kept.type != event.type:
        return kept.type is EventType.DELETED
    return compare_resource_versions(event.resource_version, kept.resource_version) < 0
