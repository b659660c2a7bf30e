"""A cluster, a broker, a registry and the owners of two shards in one process's memory; what can happen to them."""

from consumer.act import WRITES_PER_S
from consumer.plan import PlanSettings
from consumer.records import PROPERTY, Identity, Stamp, encode_stamp, external_id
from consumer.writeback import Target, WriteBack, WriteBackForm
from sandbox.registry.store import Row
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects, shard_of
from tests.simulation.consumer.broker import Broker
from tests.simulation.consumer.chance import CAREFUL, Chance
from tests.simulation.consumer.cluster import (
    ID_LABEL,
    NAMES,
    NAMESPACES,
    PREFIX,
    Cluster,
    Content,
    Living,
    a_change,
    a_content,
)
from tests.simulation.consumer.loop import VirtualLoop
from tests.simulation.consumer.process import CLUSTER_ID, Process
from tests.simulation.consumer.producer import Producer
from tests.simulation.consumer.registry import REFUSING, STOPPED, Registry, Said
from tests.simulation.consumer.truth import overwrites_newer
from tests.simulation.histories import NOTHING

SHARDS = 2
ZOMBIE_S = 20.0
REST_S_MAX = 3_000.0


class World:
    """`owners` are the processes by shard, None between two lives. `violations` are broken promises, as they happen."""

    def __init__(self, options: frozenset[str]) -> None:
        self.chance = Chance(options)
        self.loop = VirtualLoop()
        self.subjects = Subjects("isvc", "east", SHARDS)
        write_back = WriteBack.SAFE if CAREFUL in options else WriteBack.ALWAYS
        self.settings = PlanSettings(
            us=Identity("east", CLUSTER_ID),
            prefix=PREFIX,
            environment="{namespace}",
            write_back=write_back,
            target=Target(ID_LABEL, WriteBackForm.LABEL),
        )
        self.violations: list[str] = []
        self.under_way = 0
        self.cluster = Cluster()
        self.broker = Broker(self.loop, self.chance, SHARDS)
        self.registry = Registry(lambda: int(self.loop.time() * 1000), self._written)
        self.producer = Producer(self)
        self.overtaken: set[str] = set()  # uids about which a late request wrote over something newer
        self.landed_late: dict[str, list[Said]] = {}  # what requests that nobody waited for have written, by uid
        self.foreign: dict[int, Row] = {}  # records of another cluster, as they are
        self.buried_late: set[ObjectKey] = set()  # whose dead letter a late request has changed
        self.due_forgotten: set[str] = set()  # uids whose id was due when the owner of their shard ended
        self.poisoned: set[ObjectKey] = set()
        self.patched: dict[str, tuple[int, int]] = {}  # uid -> epoch and resourceVersion of our last write to it
        self._backup = (dict(self.cluster.objects), self.cluster.version)
        self.owners: list[Process | None] = [None] * SHARDS
        with self.loop.running():
            for shard in range(SHARDS):
                self._start(shard)

    def now(self) -> str:
        minutes, seconds = divmod(self.loop.time(), 60)
        hours, minutes = divmod(minutes, 60)
        return f"2026-12-01T{int(hours):02}:{int(minutes):02}:{seconds:06.3f}Z"

    # what happens in the cluster

    def write(self) -> None:
        """Let people and KServe do something, most of it to few objects."""
        for _ in range(self.chance.randint(1, 4)):
            kind = Kind.ISVC if self.chance.share(0.8) else Kind.LLMISVC
            key = ObjectKey(kind, self.chance.choice(NAMESPACES), self.chance.choice(NAMES))
            self._write(key)
            if self.chance.share(0.5):
                self.loop.run_for(self.chance.choice((0.0, 0.02, 0.1)))

    def _write(self, key: ObjectKey) -> None:
        now = self.cluster.objects.get(key)
        if now is None:
            self.create(key, a_content(self.chance))
        elif now.content.going or self.chance.share(0.15):
            if not now.content.going and self.chance.share(0.3):
                self.change(key, going=True)  # something has a finalizer on it
                return
            self.delete(key)
            if self.chance.share(0.4):  # at once again under the same name
                self.create(key, a_content(self.chance))
        else:
            self.change(key, **a_change(self.chance, now.content))
            if self.chance.share(0.2):  # and back again
                self.loop.run_for(self.chance.choice((0.0, 0.3, 1.0)))
                self._undo(key, now)

    def _undo(self, key: ObjectKey, before: Living) -> None:
        now = self.cluster.objects.get(key)
        if now is not None and now.uid == before.uid:
            self.change(key, **{**vars(before.content), "id_label": now.content.id_label, "going": now.content.going})

    def create(self, key: ObjectKey, content: Content) -> None:
        self.cluster.create(key, content)
        self._tell(EventType.CREATED, key, self.cluster.objects[key])

    def change(self, key: ObjectKey, **changes: object) -> None:
        self.cluster.change(key, **changes)
        self._tell(EventType.UPDATED, key, self.cluster.objects[key])

    def delete(self, key: ObjectKey) -> None:
        self._tell(EventType.DELETED, key, self.cluster.delete(key))

    def _tell(self, what: EventType, key: ObjectKey, living: Living) -> None:
        self.producer.saw(what, key, living)

    def patch(self, key: ObjectKey, operations: list[dict[str, object]]) -> None:
        """Serve a JSON patch of a consumer."""
        value = self.cluster.patch(key, operations)
        living = self.cluster.objects[key]
        record = self.registry.row(value)
        about = record.row.name if record else ""
        if not about.partition("/")[2].startswith(living.uid):
            self.violations.append(
                f"{key}: the id of another object's record ({about}) was written to uid {living.uid}"
            )
        self.patched[living.uid] = (self.producer.epoch, living.resource_version)
        self._tell(EventType.UPDATED, key, living)

    def _written(self, before: Row | None, after: Row, late: bool) -> None:
        """Judge a write to a record at the moment at which it lands."""
        if after.id in self.foreign:
            self.violations.append(f"record {after.name}: of another cluster, and was changed")
        uid = uid_of(after)
        if late:
            self.landed_late.setdefault(uid, []).append(Said(after))
        if before is None or not overwrites_newer(Said(before), Said(after)):
            return
        self.chance.met("older over newer")
        if late:
            self.overtaken.add(uid)
        else:
            self.violations.append(f"{uid}: an older state was written over a newer one")

    def back_up(self) -> None:
        self._backup = (dict(self.cluster.objects), self.cluster.version)

    def restore(self) -> object:
        """Put etcd back to the last backup."""
        objects, version = self._backup
        if version >= self.cluster.version:
            return NOTHING
        self.cluster.objects, self.cluster.version = dict(objects), version
        self.producer.restored()
        return None

    def uninstall_a_kind(self) -> object:
        """A kind goes, with all its objects, while no producer watches; the next one finds it gone. It comes again."""
        kinds = sorted({key.kind for key in self.cluster.objects})
        if not kinds:
            return NOTHING
        kind = self.chance.choice(kinds)
        for key in [key for key in self.cluster.objects if key.kind is kind]:
            self.cluster.delete(key)
        self.producer.away = False
        self.producer.kind_absent(kind)
        self.producer.relist()
        return None

    # what happens to the stream

    def away_or_back(self) -> None:
        """The producer goes, or comes back and compares."""
        self.producer.away = not self.producer.away
        if not self.producer.away:
            self.producer.relist()

    def relist(self) -> None:
        self.producer.relist()

    def look(self) -> object:
        """Somebody asks for a look at an object."""
        keys = sorted({stored.key for stored in self.broker.told})
        if not keys:
            return NOTHING
        self.ask_for_look(self.chance.choice(keys))
        return None

    def look_at_what_goes(self) -> object:
        """An object changes and goes, and a look finds that out before its events are published.

        While no producer watches, it changes and changes back, and is looked at in between.
        """
        keys = sorted(key for key, living in self.cluster.objects.items() if not living.content.going)
        if not keys:
            return NOTHING
        key = self.chance.choice(keys)
        before = self.cluster.objects[key]
        self.producer.lag(self.chance.between(0.0, 4.0))
        for _ in range(2):
            self.change(key, **a_change(self.chance, self.cluster.objects[key].content))
        if not self.producer.away:
            self.delete(key)
        self.ask_for_look(key)
        if self.producer.away:
            self.loop.run_for(self.chance.choice((0.3, 1.0, 4.0)))
            self._undo(key, before)
        return None

    def ask_for_look(self, key: ObjectKey) -> None:
        self.broker.store(shard_of(key, SHARDS), self.subjects.look(key), {}, b"", key)

    def poison(self) -> object:
        """A message that does not decode."""
        told = [stored for stored in self.broker.told if stored.event is not None]
        if not told:
            return NOTHING
        original = self.chance.choice(told)
        headers = {name: value for name, value in original.headers.items() if name != "ce-uid"}
        self.poisoned.add(original.key)
        self.broker.store(shard_of(original.key, SHARDS), original.subject, headers, original.body, original.key)
        return None

    # what happens to the registry

    def database_down_or_up(self) -> None:
        self.registry.fault = self.chance.choice((STOPPED, REFUSING)) if self.registry.fault is None else None

    def foreign_record(self) -> object:
        """Another cluster of the same uids (a copied etcd) has recorded an object before us."""
        candidates = [
            (key, living)
            for key, living in sorted(self.cluster.objects.items())
            if living.content.model and not self._records_of(living.uid)
        ]
        if not candidates or self.under_way:
            return NOTHING
        key, living = self.chance.choice(candidates)
        model = living.content.model
        environment = self.registry.environment(key.namespace)
        stamp = Stamp("west", "other", key.kind, key.namespace, key.name, living.uid, 5_000, "1")
        row = self.registry.put(
            f"{environment}:{key.name}/{living.uid}",
            external_id(living.uid, model),
            environment,
            {"registeredModelId": model, "servingEnvironmentId": str(environment)},
            {PROPERTY: encode_stamp(stamp)},
        )
        self.foreign[row.id] = row
        return None

    def _records_of(self, uid: str) -> list[Said]:
        return [said for said in self.registry.rows() if uid_of(said.row) == uid]

    # what happens to time and consumers

    def turn(self) -> None:
        """Let time pass: now the instant between two requests, now longer than any."""
        self.loop.run_for(self.chance.choice((0.002, 0.01, 0.05, 0.2, 1.0, 4.0, 15.0)))

    def crash(self) -> object:
        """Kill a consumer at any await."""
        owner = self.chance.choice(self.owners)
        if owner is None:
            return NOTHING
        self.died(owner)
        return None

    def died(self, process: Process) -> None:
        """End a process; another one takes over from the ack floor, with nothing in its memory."""
        if process.dead:
            return
        self.due_forgotten |= process.due()
        process.die()
        if self.owners[process.shard] is process:
            self.owners[process.shard] = None
            process.durable.leave()
            self.loop.call_later(self.chance.between(0.1, 3.0), self._start, process.shard)

    def take_over(self) -> object:
        """Give a shard to another process, while what the old one has sent is still under way."""
        owner = self.chance.choice(self.owners)
        if owner is None:
            return NOTHING
        self.due_forgotten |= owner.due()
        owner.lose()
        self.owners[owner.shard] = None
        with self.loop.running():
            self._start(owner.shard)
        self.loop.call_later(ZOMBIE_S, owner.die)
        return None

    def reconnect(self) -> object:
        """A consumer loses the broker for a moment, and begins anew from the ack floor, with its memory."""
        owner = self.chance.choice(self.owners)
        if owner is None:
            return NOTHING
        owner.pull()
        return None

    def _start(self, shard: int) -> None:
        if self.owners[shard] is None:
            process = Process(self, shard)
            self.owners[shard] = process
            process.pull()

    # the end

    def come_to_rest(self) -> None:
        """No more faults: until everything is published, delivered and settled."""
        self.chance.calm = True
        self.registry.fault = None
        self.producer.away = False
        self._settle()
        self.producer.relist()
        self._settle()

    def sweep(self) -> None:
        """Stand in for the sweep: a look at each object, by which whatever differs is put right."""
        for key in sorted({stored.key for stored in self.broker.told if stored.event is not None}):
            self.ask_for_look(key)
        self._settle()

    def _settle(self) -> None:
        quiet = 0
        end_s = self.loop.time() + REST_S_MAX
        while self.loop.time() < end_s:
            self.loop.run_for(WRITES_PER_S + 7.0)  # longer than any look that is due
            quiet = quiet + 1 if self._quiet() else 0
            if quiet == 2:
                return
        raise AssertionError(f"the consumer does not come to rest: {self._why_not()}")

    def _quiet(self) -> bool:
        return self._why_not() == ""

    def _why_not(self) -> str:
        if self.producer.under_way:
            return "events are under way"
        if self.under_way:
            return "requests are under way"
        if None in self.owners:
            return "a shard has no owner"
        if not all(durable.idle for durable in self.broker.durables):
            return "messages are not acknowledged"
        if any(owner is not None and owner.worker.held() for owner in self.owners):
            return "messages are in hand"
        return ""

    def close(self) -> None:
        self.loop.cancel_all()


def uid_of(row: Row) -> str:
    """Return the uid that a record's name carries."""
    return row.public_name.split("/")[1]
