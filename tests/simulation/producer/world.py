"""A cluster, a broker, and producers in one process's memory; what can happen to them, each a method."""

from producer.audit import Missed
from producer.forgetting import FORGET_AFTER_S, due
from producer.guard import GUARD_MIN
from producer.inventory import Inventory
from producer.passes import Outcome, Scope
from producer.publisher import Message
from shared.events import Event
from shared.objects import Kind, ObjectKey
from tests.simulation.histories import NOTHING
from tests.simulation.producer import claims
from tests.simulation.producer.broker import Broker
from tests.simulation.producer.chance import Chance
from tests.simulation.producer.cluster import NAMES, NAMESPACES, Cluster
from tests.simulation.producer.follower import Follower
from tests.simulation.producer.process import SUBJECTS, Process

SCOPES: tuple[tuple[str, ...], ...] = ((), ("n1",), ("n2",), ("n1", "n2"), ("n2", "n3"))
SELECTIONS: tuple[Scope, ...] = (None, frozenset(), frozenset({"n1"}), frozenset({"n1", "n2"}), frozenset({"n3"}))
ROUND_S = 10
ROUNDS = 300
QUIET_ROUNDS = 9  # longer than the interval of bookmarks


class World:
    """`leader` is the process that should publish, `others` run beside it, `paused` once led and may wake up.

    `ceiling` is what the numbering of a restored etcd must not reach while a follower in `unlisted` has not listed
    since (0: no limit). See the known limit "numbering overtakes" in the tests.
    """

    def __init__(self, faults: frozenset[str]) -> None:
        self.chance = Chance(faults)
        self.cluster = Cluster()
        self.broker = Broker()
        self.scope: tuple[str, ...] = ()
        self.selection: Scope = None  # by the labels of namespaces
        self.overlapped = False  # whether two producers have ever been at it together
        self.numbering_lost = False  # whether a producer began while a new stream did not say everything yet
        self.unsaid: set[Follower] = set()  # who has not listed since the storage was lost
        self.ceiling = 0
        self.unlisted: set[Follower] = set()
        self._backup = self.cluster.backup()
        self.others: list[Process] = []
        self.paused: list[Process] = []
        self._started = 0
        self.leader = self._start()

    @property
    def running(self) -> list[Process]:
        return [self.leader, *self.others]

    # what happens in the cluster

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 5)):
            if self._may_write(3):
                self.cluster.write(self.chance)

    def delete_many(self) -> object:
        """Delete all of a kind, or nearly all."""
        kind, spared = self.chance.choice(tuple(Kind)), self.chance.randint(0, 3)
        victims = [key for key in self.cluster.objects if key.kind is kind][spared:]
        for key in victims:
            if self._may_write(1):
                self.cluster.delete(key)
        return None if len(victims) > GUARD_MIN else NOTHING

    def delete_namespace(self) -> object:
        """Delete a namespace with all that is in it."""
        namespace = self.chance.choice(NAMESPACES)
        victims = [key for key in self.cluster.objects if key.namespace == namespace]
        if not victims or not self._may_write(len(victims)):
            return NOTHING
        for key in victims:
            self.cluster.delete(key)
        self.cluster.vanished.add(namespace)
        return None

    def change_selection(self) -> None:
        """Put the label that selects a namespace on others."""
        self.selection = self.chance.choice(SELECTIONS)
        for process in self.running:
            process.notice_selection()

    def fill(self) -> None:
        """Create what does not exist in a namespace."""
        kind, namespace = self.chance.choice(tuple(Kind)), self.chance.choice(NAMESPACES)
        for key in (ObjectKey(kind, namespace, name) for name in NAMES):
            if key not in self.cluster.objects and self._may_write(1):
                self.cluster.create(key)

    def _may_write(self, versions: int) -> bool:
        return not self.ceiling or self.cluster.version + versions < self.ceiling

    def restart_api(self) -> None:
        self.cluster.restart()

    def back_up(self) -> None:
        self._backup = self.cluster.backup()

    def restore(self) -> object:
        """Put etcd back to the last backup."""
        if self._backup.version >= self.cluster.version:
            return NOTHING
        known = [self.ceiling, *(follower.heard for follower in self._followers())]
        said = [event for event, _ in self.broker.inventory()]
        said += [one.event for process in self.running for one in process.pipeline.waiting if one.event is not None]
        known += [
            max((int(event.resource_version) for event in said if event.key.kind is kind), default=0) for kind in Kind
        ]
        self.cluster.restore(self._backup)
        self.ceiling = min((version for version in known if version > self._backup.version), default=0)
        self.unlisted = self._followers()
        return None

    def _followers(self) -> set[Follower]:
        return {follower for process in self.running for follower in process.followers}

    def pass_ended(self, follower: Follower, outcome: Outcome) -> None:
        if outcome.held:
            self.chance.met("deletes held")
        if follower.stream == self.broker.created:
            self.unsaid.discard(follower)
        if follower.numbering == self.cluster.restored:
            self._listed({follower})

    def _listed(self, followers: set[Follower]) -> None:
        self.unlisted -= followers
        if not self.unlisted:
            self.ceiling = 0

    # what happens to the broker

    def restart_broker(self) -> None:
        self.broker.restart()

    def turn_broker_off_or_on(self) -> None:
        self.broker.away = not self.broker.away

    def lose_storage(self) -> None:
        self.broker.lose_storage()
        self.unsaid = self._followers()
        self.numbering_lost |= any(not follower.stream for follower in self.unsaid)

    def forget(self) -> object:
        """Let a week pass, and purge old tombstones up to and including themselves, as the leader does."""
        if self.others or self.paused or self.broker.away:
            return NOTHING
        self.chance.now_s += FORGET_AFTER_S
        self.leader.turn()
        purged = [self._forget(follower.inventory) for follower in self.leader.followers]
        return None if any(purged) else NOTHING

    def _forget(self, inventory: Inventory) -> int:
        """Forget what is due; the consumers have taken all that is stored."""
        tombstones = [
            one for one in due(inventory.tombstones(), self.chance.now_s) if one[1].sequence <= self.broker.newest
        ]
        for key, entry in tombstones:
            if self.chance.share(0.1):
                self.write()  # the name may be taken again before the purge
                self.leader.turn()
            self.broker.purge(SUBJECTS.event(key), entry.sequence)
            inventory.forget(key, entry)
        return len(tombstones)

    # what happens to time and producers

    def turn(self) -> None:
        """Let the producers work, while the cluster goes on and time passes."""
        self.chance.pass_time(self.chance.choice((0, 1, 5, 30, 200)))
        for process in self.running:
            process.turn()
            if self.chance.share(0.2):
                self.write()

    def stop_clock_or_start_it(self) -> None:
        self.chance.stands_still = not self.chance.stands_still

    def crash(self) -> None:
        """Kill the leader between two instructions; its successor starts."""
        waiting = self.leader.pipeline.heads
        self.chance.met("crash before a publish" if any(not one.sequence for one in waiting) else "crash after all")
        if any(one.sequence for one in waiting):
            self.chance.met("crash between publish and PubAck")
        self._succeed(self.leader)

    def _succeed(self, ended: Process) -> None:
        self.leader = self._start()
        self._end(ended)

    def change_leader(self) -> None:
        """The leader is paused (a long stop of the machine), and another one takes over."""
        self.paused.append(self.leader)
        self.leader = self._start()
        self._retired(self.paused[-1])

    def wake(self) -> object:
        """A paused old leader wakes up: it publishes what it had in flight, and more, until it notices."""
        if not self.paused:
            return NOTHING
        old = self.paused.pop(self.chance.randint(0, len(self.paused) - 1))
        if old.pipeline.waiting:
            self.chance.met("an old leader publishes")
        self.overlapped = True
        for _ in range(self.chance.choice((0, 1, 10))):
            old.turn()
        for _ in range(self.chance.randint(0, 2 * len(old.pipeline.waiting))):
            old.pipeline.advance()
        self._end(old)
        return None

    def duplicate(self) -> object:
        """A second producer starts beside the first."""
        if len(self.others) == 2:
            return NOTHING
        self.overlapped = True
        self.others.append(self._start())
        return None

    def end_duplicate(self) -> object:
        if not self.others:
            return NOTHING
        self._end(self.others.pop(0))
        return None

    def change_scope(self) -> None:
        """Another setting of namespaces: the leader is started again with it."""
        self.scope = self.chance.choice(SCOPES)
        self._succeed(self.leader)

    def relist(self) -> None:
        self.leader.resync("periodic list")

    def audit(self) -> None:
        """The leader looks for what its watches have missed."""
        for follower in self.leader.followers:
            follower.audit()

    def audited(self, follower: Follower, missed: Missed) -> None:
        """Check that no healthy watch is accused: of one that has not noticed a restore yet, anything may be said."""
        self.chance.met("audit concluded")
        if missed:
            self.chance.met("audit found a restore")
            assert follower.numbering < self.cluster.restored, f"{missed}: the audit accuses the watch"
            follower.resync("the audit found something")

    def approve(self) -> object:
        """A person releases what is held and has really gone."""
        living = {now.uid for now in self.cluster.objects.values()}
        accepted = 0
        for follower in self.leader.followers:
            gone = frozenset(one for one in follower.inventory.held if one[1] not in living)
            accepted += len(follower.inventory.approve(gone))
            if gone:
                follower.resync("a person released deletes")
                follower.looks = 0
        if accepted:
            self.chance.met("a person released deletes")
        return None if accepted else NOTHING

    def _start(self) -> Process:
        self._started += 1
        process = Process(self, self.scope, self._started)
        if self.ceiling:
            self.unlisted |= set(process.followers)
        if self.unsaid:
            self.numbering_lost = True
            self.unsaid |= set(process.followers)
        return process

    def _end(self, process: Process) -> None:
        process.die()
        self._retired(process)

    def _retired(self, process: Process) -> None:
        """Expect nothing more of a process; its successor, if there is one, has been started."""
        self.unsaid -= set(process.followers)
        self._listed(set(process.followers))

    def handed(self, event: Event, message: Message, before: list[Event]) -> None:
        claims.said(self, event, message, before)

    # the end

    def come_to_rest(self) -> None:
        """No more faults, one producer: until it has said everything."""
        self.chance.calm, self.broker.away = True, False
        while self.others:
            self.end_duplicate()
        if self.overlapped:
            self.relist()  # what two producers leave behind is repaired by the next list
        for follower in self.leader.followers:
            follower.looks = 0
        quiet = 0
        for _ in range(ROUNDS):
            self.chance.pass_time(ROUND_S)
            quiet = quiet + 1 if self.leader.rest() else 0
            if quiet == QUIET_ROUNDS and self.approve() is NOTHING:
                return
        raise AssertionError("the producer does not come to rest")

    def close(self) -> None:
        for process in (*self.running, *self.paused):
            process.die()
