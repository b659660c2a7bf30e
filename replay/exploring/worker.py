"""One worker of an exploration, owner of one shard: the consumer's own worker, queue, fence, handler, reconciler. Pure.

Its environment and its memory are its own; what is shared (registries, cluster, stream) is behind `wire.py`.
"""

import math
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from msgspec import Struct

from consumer.act import Actor
from consumer.delivery.work import Work, receive
from consumer.delivery.workqueue import WorkQueue
from consumer.handle import Handler, Hooks, Sources
from consumer.ownership.fence import Fence, FencedDeadLetters, Held, Term
from consumer.ownership.suspects import Suspects
from consumer.ownership.suspicion import Suspicion
from consumer.reconcile import Reconciler
from consumer.verdict import Verdict
from consumer.worker import Custody, Worker
from replay.exploring.loop import OWNER
from replay.exploring.servers import Servers
from replay.exploring.story import Told
from replay.exploring.wire import (
    AT_HAND,
    DeadLettersWire,
    KubernetesWire,
    LastEventsWire,
    RegistryWire,
    Sender,
    served,
)
from replay.surroundings import Registries
from shared.errors import TransientError

KEEP_ALIVE_S: Final = 10.0


class Message:
    """As `consumer/delivery/message.py` has it. An answer is a plain publish that may not leave, or get lost."""

    def __init__(self, process: "Process", told: Told, num_delivered: int) -> None:
        self.subject = told.subject
        self.headers = told.headers
        self.body = told.body
        self.sequence = told.sequence
        self.num_delivered = num_delivered
        self.provenance: dict[str, str] = {}
        self._name = told.name
        self._process = process

    async def ack(self) -> None:
        self._answer(self._process.durable.answered)

    async def terminate(self, reason: str) -> None:
        del reason
        self._answer(self._process.durable.answered)

    async def in_progress(self) -> None:
        self._answer(self._process.durable.in_progress)

    def _answer(self, answer: Callable[[int], None]) -> None:
        servers, scheduler = self._process.servers, self._process.servers.scheduler
        if self._process.dead:
            return
        if scheduler.fault("ack not sent", self._name):
            raise TransientError("not connected")
        if not scheduler.fault("ack lost", self._name):
            servers.loop.call_later(scheduler.delay_s(f"ack of {self._name}"), answer, self.sequence)


class Nobody:
    """No message here is suspect of having killed a process, so nobody is asked to witness. `suspects.Witness`."""

    async def name(self, term: Term, sequence: int) -> None:
        raise AssertionError(f"message {sequence} of shard {term.shard} is suspect")

    async def acquit(self, term: Term, sequence: int) -> None:
        raise AssertionError(f"message {sequence} of shard {term.shard} is suspect")

    def unname(self, term: Term) -> None:
        raise AssertionError(f"shard {term.shard} has a suspect")


class Reports(Struct, frozen=True):
    """Whom a process tells: that a fault has killed it, and that it was given a message."""

    died: Callable[["Process"], None]
    delivered: Callable[["Process", Told], None]


class Process(Sender):
    """The owner of a shard, until `lose`."""

    def __init__(self, servers: Servers, shard: int, reports: Reports) -> None:
        super().__init__(servers, Fence(servers.workers, servers.loop.time), lambda: reports.died(self))
        self.shard = shard
        self.durable = servers.durables[shard]
        self._delivered = reports.delivered
        header = servers.story.header
        settings = header.plan_settings
        self.term = Term(shard, 1, servers.loop.time(), math.inf, Suspicion())
        self.fence.grant(self.term)
        self.worker = Worker(WorkQueue(settings.prefix), Custody(self.fence, Suspects(self.fence, Nobody())))
        actor = Actor(KubernetesWire(self), settings, self.fence.check, lambda _: None)
        registries = Registries(header.deciding, settings, self._opened, servers.loop.time)
        reconciler = Reconciler(actor, registries, settings, self.worker.look_again)
        hooks = Hooks(lambda: servers.scheduler.draw(f"retry of {AT_HAND.get()}"), servers.now, lambda *_: None)
        dead_letters = FencedDeadLetters(DeadLettersWire(self), self.fence)
        self.handler = Handler(reconciler, Sources(LastEventsWire(self), actor.live), dead_letters, hooks)
        self._context = copy_context()
        self._context.run(OWNER.set, self)
        self._context.run(self._start)

    def pull(self) -> None:
        """Take the shard over, or begin anew after a reconnect."""
        self.durable.reset(lambda told, count: self._context.run(self._take, told, count))

    def lose(self) -> None:
        """Find that another one owns the shard now, as `intake.py` does."""
        self.fence.withdraw(self.term)
        self.worker.drop(self.shard)
        self._end_requests()

    def die(self) -> None:
        self.dead = True
        self.servers.loop.cancel(self)
        self._end_requests()

    def _end_requests(self) -> None:
        """Let what is on the wire land before the next owner begins, or never."""
        for asked in self.under_way.values():
            if asked.timer is not None:
                asked.timer.cancel()
            if asked.lands:
                served(asked.serve)
        self.under_way.clear()

    def _start(self) -> None:
        self.servers.loop.create_task(self.worker.run(self._handle))
        self.servers.loop.create_task(self.worker.keep_alive(KEEP_ALIVE_S))

    async def _handle(self, work: Work) -> Verdict:
        AT_HAND.set(str(work.key))
        return await self.handler.handle(work)

    def _opened(self, name: str) -> RegistryWire:
        return RegistryWire(self, self.servers.registry(name))

    def _take(self, told: Told, num_delivered: int) -> None:
        if self.dead or not self.fence.holds(self.term):
            return
        message = Held(Message(self, told, num_delivered), self.term, self.fence)
        self.worker.offer(receive(message, self.servers.story.header.cluster_id))
        self._delivered(self, told)
