"""One producer process: the real outbox over a played publisher and ledger, and a follower for each kind and scope."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from opentelemetry.trace import NoOpTracer

from producer.changes import Change, Entry
from producer.ledger import Stored, entry_of
from producer.outbox import Outbox, Source
from producer.passes import Epoch, Scope
from producer.publisher import Message
from shared.events import Event, SyncMarker, decode, decode_marker
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects
from tests.simulation.producer.broker import Sending
from tests.simulation.producer.cluster import NAMESPACES
from tests.simulation.producer.follower import Follower, Pause

if TYPE_CHECKING:
    from tests.simulation.producer.world import World

CLUSTER_ID = "c"
NAMING = NamingSettings(cluster_name="c")
SUBJECTS = Subjects("isvc", "east", 4)
IN_FLIGHT = 8
_TRACER = NoOpTracer()


class Pipeline:
    """The publisher's rules: in order within a key, again under the same id until the PubAck came, nothing dropped."""

    def __init__(self, world: "World", number: int) -> None:
        self.known: dict[tuple[Kind, str], int] = {}  # how far the stream was read, by kind and namespace
        self.handed: list[Event] = []  # everything that this process ever wanted to say, in order
        self._world = world
        self._number = number
        self._queues: dict[str, deque[Sending]] = {}

    async def put(self, message: Message) -> None:
        while sum(map(len, self._queues.values())) >= IN_FLIGHT:
            self._world.chance.met("back-pressure")
            await Pause()
        event = None if message.key.startswith("isvc.") else decode(message.headers)
        if event is not None:
            self._world.handed(event, message, self.handed)
            self.handed.append(event)
        known = self.known[event.key.kind, event.key.namespace] if event is not None else 0
        self._queues.setdefault(message.key, deque()).append(Sending(message, event, self._number, known))

    async def barrier(self) -> None:
        before = [one for queue in self._queues.values() for one in queue]
        while any(one in queue for queue in self._queues.values() for one in before):
            await Pause()

    @property
    def heads(self) -> list[Sending]:
        return [queue[0] for queue in self._queues.values()]

    @property
    def waiting(self) -> list[Sending]:
        return [one for queue in self._queues.values() for one in queue]

    def advance(self) -> None:
        """Send the head of one queue, or take its PubAck."""
        if not self._queues or self._world.broker.away:
            return
        chance = self._world.chance
        key = chance.choice(tuple(self._queues))
        head = self._queues[key][0]
        if head.sequence and not chance.fault("PubAck lost"):
            self._queues[key].popleft()
            if not self._queues[key]:
                del self._queues[key]
            head.message.acknowledged(head.sequence)
            return
        for _ in range(2 if chance.fault("sent twice") else 1):
            head.sequence = self._world.broker.publish(head, chance.now_s)


class Process:
    """A life of the producer. `scope` is its setting: namespaces, or empty for all of them.

    `selected` is what it last saw of the labels of namespaces; a setting of names does not ask for them.
    """

    def __init__(self, world: "World", scope: tuple[str, ...], number: int) -> None:
        self.world = world
        self.scope = scope
        self.epoch = Epoch()
        self.selected: Scope = None if scope else world.selection
        self.missing = set(Kind)
        self.pipeline = Pipeline(world, number)
        source = Source(CLUSTER_ID, SUBJECTS, NAMING.api_version, lambda: 1 << 20, lambda: float(world.chance.now_s))
        self.outbox = Outbox(source, self.pipeline, self, _TRACER)
        self._stream = world.broker.created
        self.followers = [Follower(self, kind, namespace) for kind in Kind for namespace in scope or ("",)]

    async def publish(self, change: Change, acknowledged: Callable[[int], None]) -> None:
        await self.outbox.publish(change, acknowledged)

    async def last(self, key: ObjectKey) -> Stored | None:
        """Answer as the ledger: the last event of an object."""
        while self.world.broker.away:
            await Pause()
        kept = self.world.broker.last(SUBJECTS.event(key))
        return None if kept is None else Stored(kept.sequence, kept.sent.message.body)

    def load(self, kind: Kind, namespace: str) -> tuple[dict[ObjectKey, Entry], SyncMarker | None]:
        """Read the inventory of a kind, in a namespace or (empty) in all of them, as the ledger does."""
        kept = self.world.broker.last(SUBJECTS.sync(kind))
        marker = decode_marker(kept.sent.message.headers, kept.sent.message.body)[1] if kept is not None else None
        found = self.world.broker.inventory()
        entries = {
            event.key: entry_of(event, one.sequence)
            for event, one in found
            if event.key.kind is kind and namespace in {"", event.key.namespace}
        }
        read = (namespace,) if namespace else NAMESPACES
        self.pipeline.known |= {(kind, namespace): self.world.broker.stored for namespace in read}
        self.epoch.known(max([marker.epoch if marker else 0, *(entry.epoch for entry in entries.values())]))
        return entries, marker

    def turn(self) -> None:
        """Do a little of everything."""
        chance = self.world.chance
        for _ in range(chance.randint(2, 10)):
            if chance.share(0.4):
                self.pipeline.advance()
            else:
                follower = chance.choice(self.followers)
                follower.go_on()
                follower.after_pass()
                follower.go_on_with_audit()
        if chance.share(0.1):
            self.look_at_stream()

    def rest(self) -> bool:
        """Do all that can be done at once, and say whether that was nothing."""
        self.look_at_stream()
        for follower in self.followers:
            follower.go_on()
            follower.after_pass()
            follower.go_on_with_audit()
        for _ in range(2 * len(self.pipeline.waiting)):
            self.pipeline.advance()
        return not self.pipeline.waiting and not any(follower.busy for follower in self.followers)

    def look_at_stream(self) -> None:
        """Notice that the stream was made anew, as the producer's keeper does."""
        if self._stream != self.world.broker.created and not self.world.broker.away:
            self._stream = self.world.broker.created
            self.epoch.begin(self.world.chance.now_s)
            self.resync("the event stream was created anew")

    def resync(self, reason: str) -> None:
        for follower in self.followers:
            follower.resync(reason)

    def notice_selection(self) -> None:
        """Learn which namespaces are selected now."""
        if not self.scope and self.selected != self.world.selection:
            self.selected = self.world.selection
            self.resync("other namespaces are selected")

    def die(self) -> None:
        """End between two instructions."""
        for follower in self.followers:
            follower.die()
