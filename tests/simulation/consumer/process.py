"""One consumer process, owner of one shard: the real worker, handler, reconciler, actor and registry adapter."""

import math
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING

from consumer.act import Actor
from consumer.delivery.work import Work, receive
from consumer.delivery.workqueue import WorkQueue
from consumer.environments import Environments, Place
from consumer.handle import Handler, Hooks, Sources
from consumer.lookup import Lookup
from consumer.observation import Observation
from consumer.ownership.fence import Fence, FencedDeadLetters, Held, Term
from consumer.ownership.suspects import Suspects
from consumer.ownership.suspicion import Suspicion
from consumer.reconcile import Reconciler
from consumer.registry import ModelRegistry
from consumer.worker import Custody, Worker
from replay.exploring.worker import Nobody
from shared.errors import BadEventError, TransientError
from tests.simulation.consumer.broker import Stored
from tests.simulation.consumer.loop import OWNER
from tests.simulation.consumer.wire import DeadLettersWire, KubernetesWire, LastEventsWire, RegistryWire

if TYPE_CHECKING:
    from tests.simulation.consumer.world import World

CLUSTER_ID = "c"
KEEP_ALIVE_S = 10.0
MANY = 3


class Message:
    """As `consumer/delivery/message.py` has it. An answer is a plain publish that may not leave, or get lost."""

    def __init__(self, process: "Process", stored: Stored, num_delivered: int) -> None:
        self.subject = stored.subject
        self.headers = stored.headers
        self.body = stored.body
        self.sequence = stored.sequence
        self.num_delivered = num_delivered
        self.provenance: dict[str, str] = {}
        self._process = process

    async def ack(self) -> None:
        self._answer(self._process.durable.answered)

    async def terminate(self, reason: str) -> None:
        del reason
        self._answer(self._process.durable.answered)

    async def in_progress(self) -> None:
        self._answer(self._process.durable.in_progress)

    def _answer(self, answer: Callable[[int], None]) -> None:
        world = self._process.world
        if self._process.dead:
            return
        if world.chance.fault("ack not sent"):
            raise TransientError("not connected")
        if not world.chance.fault("ack lost"):
            world.loop.call_later(world.chance.latency_s(), answer, self.sequence)


class Registries:
    """The one registry of this world; `wire` leads to it. Implements `reconcile.Registries`."""

    def __init__(self, process: "Process") -> None:
        world = process.world
        registry = ModelRegistry(RegistryWire(process), process.fence.budget_s)  # type: ignore[arg-type]  # only `call` is used
        place = Place("registry", registry, Environments(registry))
        self._lookup = Lookup(place, world.settings, world.loop.time)

    async def choose(self, seen: Observation) -> Lookup:
        del seen
        return self._lookup

    def named(self, name: str) -> Lookup:
        assert name == "registry"
        return self._lookup

    async def find(self, name: str) -> Lookup | None:
        return self.named(name)


class Process:
    """`dead`: nothing of it goes on. Its shard is its own until `lose`; what it has sent by then goes on."""

    def __init__(self, world: "World", shard: int) -> None:
        self.world = world
        self.shard = shard
        self.durable = world.broker.durables[shard]
        self.dead = False
        now = world.loop.time()
        self.fence = Fence(world.subjects.shards, world.loop.time)
        self.term = Term(shard, 1, now, math.inf, Suspicion())
        self.fence.grant(self.term)
        custody = Custody(self.fence, Suspects(self.fence, Nobody()))
        self.worker = Worker(WorkQueue(world.settings.prefix), custody)
        actor = Actor(KubernetesWire(self), world.settings, self.fence.check, lambda _: None)
        self._reconciler = Reconciler(actor, Registries(self), world.settings, self.worker.look_again)
        hooks = Hooks(world.chance.random, world.now, self._on_result)
        dead_letters = FencedDeadLetters(DeadLettersWire(self), self.fence)
        self.handler = Handler(self._reconciler, Sources(LastEventsWire(self), actor.live), dead_letters, hooks)
        self._context = copy_context()
        self._context.run(OWNER.set, self)
        self._context.run(self._start)

    def _start(self) -> None:
        self.world.loop.create_task(self.worker.run(self.handler.handle))
        self.world.loop.create_task(self.worker.keep_alive(KEEP_ALIVE_S))

    def pull(self) -> None:
        """Take the shard over, or begin anew after a reconnect."""
        self.durable.reset(lambda stored, count: self._context.run(self._take, stored, count))

    def due(self) -> set[str]:
        """Return the uids whose id it still has to write."""
        return {uid for uid, (known, _) in self._reconciler.memory._known.items() if known.due}

    def lose(self) -> None:
        """Find that another one owns the shard now, as `intake.py` does."""
        self.fence.withdraw(self.term)
        self.worker.drop(self.shard)

    def die(self) -> None:
        self.dead = True
        self.world.loop.cancel(self)

    def _take(self, stored: Stored, num_delivered: int) -> None:
        if self.dead or not self.fence.holds(self.term):
            return
        message = Held(Message(self, stored, num_delivered), self.term, self.fence)
        try:
            self.worker.offer(receive(message, CLUSTER_ID))
        except BadEventError as error:
            raise AssertionError(f"{stored.subject} names an object, yet: {error}") from error

    def _on_result(self, work: Work, word: str) -> None:
        self.world.chance.met(f"result: {word}")
        if word == "retry" and work.attempt > MANY:
            self.world.chance.met("many tries")
