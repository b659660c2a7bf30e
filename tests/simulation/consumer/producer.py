"""The producer as the consumer meets it: real events of real reductions, in order for each object, mostly.

What it does to the stream on bad days is played: it is away and compares afterwards, a second one says late or twice
what the first one said, etcd is restored. How the real one comes to that is `tests/simulation/producer`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.events import Event, EventType, encode
from shared.objects import Kind, ObjectKey
from shared.subjects import shard_of
from tests.simulation.consumer.cluster import Living
from tests.simulation.consumer.process import CLUSTER_ID

if TYPE_CHECKING:
    from tests.simulation.consumer.world import World

LATE_S_MAX = 40.0


@dataclass(frozen=True)
class Said:
    key: ObjectKey
    living: Living
    digest: str
    epoch: int
    deleted: bool


class Producer:
    """`under_way` counts what is on its way into the stream."""

    def __init__(self, world: "World") -> None:
        self.epoch = 1_000
        self.away = False
        self.under_way = 0
        self._world = world
        self._said: dict[str, Said] = {}  # by uid
        self._models: dict[str, tuple[str, ...]] = {}
        self._free_at_s = 0.0
        self._life = 0

    def saw(self, what: EventType, key: ObjectKey, living: Living) -> None:
        """Follow the watch stream: publish what changed the digest."""
        if self.away:
            return
        said = self._said.get(living.uid)
        if what is not EventType.UPDATED or said is None or said.digest != living.reduced(key)[1]:
            self._say(what, key, living, None)

    def lag(self, seconds: float) -> None:
        """Fall behind: what it sees from now on is published later."""
        self._free_at_s = max(self._free_at_s, self._world.loop.time() + seconds)

    def relist(self) -> None:
        """Compare a complete list with what was said and with what the stream holds, and say what differs."""
        world = self._world
        alive = {living.uid for living in world.cluster.objects.values()}
        for uid, said in list(self._said.items()):
            last = world.broker.last(world.subjects.event(said.key))
            on_top = last is not None and last.event is not None and last.event.uid == uid
            on_top = on_top and last.event.type is not EventType.DELETED  # type: ignore[union-attr]  # it is there
            if uid not in alive and (not said.deleted or on_top):
                gone = Living(uid, world.cluster.version, said.living.content)
                self._say(EventType.DELETED, said.key, gone, last.sequence if last else 0)
        for key, living in world.cluster.objects.items():
            known = self._said.get(living.uid)
            digest = living.reduced(key)[1]
            last = world.broker.last(world.subjects.event(key))
            event = last.event if last else None
            right = event is not None and (event.uid, event.digest, event.epoch) == (living.uid, digest, self.epoch)
            if known is None or (known.digest, known.epoch, known.deleted) != (digest, self.epoch, False) or not right:
                what = EventType.CREATED if known is None else EventType.UPDATED
                self._say(what, key, living, last.sequence if last else 0)

    def kind_absent(self, kind: Kind) -> None:
        """Find a kind uninstalled, and say the ends that a person has released.

        No list proves them, so each is said at the last known resourceVersion: only that it is an end makes it news.
        """
        for said in list(self._said.values()):
            if said.key.kind is kind and not said.deleted:
                last = self._world.broker.last(self._world.subjects.event(said.key))
                self._say(EventType.DELETED, said.key, said.living, last.sequence if last else 0)

    def restored(self) -> None:
        """Notice that etcd was put back: a new epoch, everything is said anew, what was under way is dropped."""
        self.epoch += 1
        self._life += 1
        self.under_way = 0
        self.away = False
        self._models = {}
        for one in self._world.broker.told:
            if one.event is not None:
                self._remember(one.event)
        self.relist()

    def _remember(self, event: Event) -> None:
        known = self._models.get(event.uid, ())
        self._models[event.uid] = (*known, *(model for model in event.models if model not in known))

    def _say(self, what: EventType, key: ObjectKey, living: Living, corrects: int | None) -> None:
        world, chance = self._world, self._world.chance
        body, digest = living.reduced(key)
        label = living.content.model
        models = self._models.get(living.uid, ())
        if label and label not in models:
            models = (*models, label)
        event = Event(
            type=what,
            key=key,
            uid=living.uid,
            epoch=self.epoch,
            resource_version=str(living.resource_version),
            digest=digest,
            models=models,
            cluster_id=CLUSTER_ID,
            time=world.now(),
            corrects=corrects,
        )
        self._said[living.uid] = Said(key, living, digest, self.epoch, what is EventType.DELETED)
        if corrects is None and what is not EventType.DELETED and chance.fault("published late"):
            self._later(chance.between(0.5, LATE_S_MAX), event, living, body)
            return
        self._models[living.uid] = models
        self._free_at_s = max(self._free_at_s, world.loop.time() + chance.latency_s())
        self._later(self._free_at_s - world.loop.time(), event, living, body)
        if chance.fault("published twice"):
            self._later(self._free_at_s - world.loop.time() + chance.between(0.0, LATE_S_MAX), event, living, body)

    def _later(self, delay_s: float, event: Event, living: Living, body: bytes) -> None:
        self.under_way += 1
        self._world.loop.call_later(delay_s, self._store, self._life, event, living, body)

    def _store(self, life: int, event: Event, living: Living, body: bytes) -> None:
        if life != self._life:
            return
        self.under_way -= 1
        world = self._world
        self._remember(event)
        subject = world.subjects.event(event.key)
        shard = shard_of(event.key, world.subjects.shards)
        world.broker.store(shard, subject, encode(event), body, event.key, event=event, living=living)
