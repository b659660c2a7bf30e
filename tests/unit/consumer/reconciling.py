"""A reconciler over two registries and a cluster, with what each observation cost."""

from consumer.act import Actor
from consumer.reconcile import How, Reconciler
from tests.unit.consumer.fakes import FakeKubernetes, FakeRegistries, FakeRegistry
from tests.unit.consumer.worlds import READY, SETTINGS, an_object, carrying, seen

EVENT, CREATED, FORCED_LOOK, LOOK = How(), How(creates_first=True), How(forced=True, is_look=True), How(is_look=True)
STOPPED = {"serving.kserve.io/stop": "true"}
BEFORE_READY, WHEN_READY = an_object(version="10"), an_object(status=READY, version="20")


class World:
    """`registry` has the name `first`, `other` has `second`; `looks` are those asked for, `told` the notices."""

    def __init__(self, settings=SETTINGS):
        self.registry = FakeRegistry()
        self.registry.environments["team-a"] = "3"
        self.kubernetes = FakeKubernetes()
        self.looks = []
        self.told = []
        actor = Actor(
            self.kubernetes, settings, lambda _: None, lambda _: None, lambda _, notice: self.told.append(notice)
        )
        self.other = FakeRegistry()
        self.other.environments["team-a"] = "3"
        self.registries = FakeRegistries(settings, first=self.registry, second=self.other)
        self.reconciler = Reconciler(
            actor, self.registries, settings, lambda key, delay_s: self.looks.append((key, delay_s))
        )

    async def see(self, observation, how=EVENT):
        self.kubernetes.put(observation.obj)
        return await self.reconciler.reconcile(observation, how)

    async def cost_of(self, observation, how=EVENT):
        """Return the word for what came of it, and the reads, writes and patches that it took."""
        before = (self.registry.reads, self.registry.writes, self.kubernetes.calls["patch"])
        result = await self.see(observation, how)
        after = (self.registry.reads, self.registry.writes, self.kubernetes.calls["patch"])
        return (result.word, *(now - then for then, now in zip(before, after, strict=True)))

    async def link(self):
        """Let the object be recorded, linked and known; what that cost is not counted."""
        await self.see(seen(BEFORE_READY), CREATED)
        await self.see(self.echo("11"))
        self.registry.calls.clear()
        self.kubernetes.calls.clear()

    def echo(self, version):
        """Return the event that our own patch causes."""
        return seen(carrying(an_object(version=version), self.registry.only.id))
