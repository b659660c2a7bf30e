"""A handler of looks that name records, over two registries."""

from msgspec.structs import replace

from consumer.act import Actor
from consumer.delivery.work import receive
from consumer.handle import Handler, Hooks, Sources
from consumer.looks import RecordRef, encode
from consumer.reconcile import Reconciler
from tests.unit.consumer.deliveries import CLUSTER_ID, SUBJECTS
from tests.unit.consumer.fakes import (
    FakeDeadLetters,
    FakeEvents,
    FakeKubernetes,
    FakeMessage,
    FakeRegistries,
    FakeRegistry,
)
from tests.unit.consumer.worlds import KEY, SETTINGS, an_object, carrying, record_of, seen

NOW = "2026-11-30T12:00:00Z"
OTHER_CLUSTER = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
IN_SYNC = seen(carrying(an_object(), "7"))
RECORD = record_of(IN_SYNC)


class World:
    """Two registries, `a` is the object's; a handler of looks."""

    def __init__(self, settings=SETTINGS) -> None:
        self.a, self.b = FakeRegistry(), FakeRegistry()
        self.kubernetes = FakeKubernetes()
        self.events = FakeEvents()
        self.registries = FakeRegistries(settings, a=self.a, b=self.b)
        actor = Actor(self.kubernetes, settings, lambda _: None, lambda _: None)
        reconciler = Reconciler(actor, self.registries, settings, lambda *_: None)
        hooks = Hooks(lambda: 0.5, lambda: NOW, lambda *_: None)
        self.handler = Handler(reconciler, Sources(self.events, actor.live), FakeDeadLetters(), hooks)

    def lives(self, observation=IN_SYNC) -> None:
        self.kubernetes.put(observation.obj)

    async def look(self, *refs: RecordRef):
        message = FakeMessage(subject=SUBJECTS.look(KEY), headers=encode(refs))
        return await self.handler.handle(receive(message, CLUSTER_ID))
