"""A handler over fakes, and what came of each message: its result and what an owner was told."""

from consumer.act import Actor
from consumer.handle import Handler, Hooks, Sources
from consumer.reconcile import Reconciler
from tests.unit.consumer.fakes import FakeDeadLetters, FakeEvents, FakeKubernetes, FakeRegistries, FakeRegistry
from tests.unit.consumer.worlds import SETTINGS

LATER = "2026-11-30T12:00:00Z"


class World:
    """`words` are the results, `told` the notices, in order."""

    def __init__(self):
        self.registry = FakeRegistry()
        self.kubernetes = FakeKubernetes()
        self.events = FakeEvents()
        self.dead_letters = FakeDeadLetters()
        self.words = []
        self.told = []
        actor = Actor(self.kubernetes, SETTINGS, lambda _: None, lambda _: None, self._tell)
        registries = FakeRegistries(SETTINGS, only=self.registry)
        self.reconciler = Reconciler(actor, registries, SETTINGS, lambda *_: None)
        hooks = Hooks(lambda: 0.5, lambda: LATER, lambda _, word: self.words.append(word), self._tell)
        self.handler = Handler(self.reconciler, Sources(self.events, actor.live), self.dead_letters, hooks)

    async def handle(self, work):
        """Handle a message of an object that stands as it says."""
        if work.seen is not None:
            self.kubernetes.put(work.seen.obj)
            self.events.by_key[work.key] = work.seen
        return await self.handler.handle(work)

    @property
    def topics(self):
        return [notice.topic for _, notice in self.told]

    def _tell(self, about, notice):
        self.told.append((about, notice))
