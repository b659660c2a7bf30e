"""The loop around `watch.step`, as `producer/reflector.py` runs it, for one kind and scope.

Every place where the real one awaits is a place where all others may go on, so nothing here needs an event loop: a
follower is a coroutine that the world resumes, or drops (a crash).
"""

from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from producer import watch
from producer.audit import Audit, Missed, listed, older
from producer.changes import Change
from producer.checkpoint import Checkpoint
from producer.inventory import Inventory
from producer.items import Begin, Bookmark, Item, Lost, Page, Resync, Waited
from producer.passes import Outcome, Scope, Verified
from producer.relay import GUARD_AGAIN_S
from producer.states import (
    Advance,
    BeginPass,
    Effect,
    EndPass,
    GetPage,
    Observe,
    OpenInitial,
    OpenWatch,
    Remove,
    Request,
    Settle,
    State,
    Trouble,
    Wait,
)
from shared.events import SyncMarker
from shared.objects import Kind
from tests.simulation.producer.cluster import Api

if TYPE_CHECKING:
    from tests.simulation.producer.process import Process


class Pause:
    """An await at which the others may go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Follower:
    """`heard` is the highest version that it knows of, `numbering` and `stream` the etcd's and the broker's in
    which its pass began."""

    def __init__(self, process: "Process", kind: Kind, namespace: str) -> None:
        self.kind = kind
        self.namespace = namespace
        self.scope: Scope = frozenset({namespace}) if namespace else None
        self.inventory = Inventory(process.epoch)
        self.heard = 0
        self.numbering = self.stream = 0
        self.passed = ""  # the position up to which the inventory has been told everything
        self.looks = 0  # passes in a row whose deletes were held
        self.idle = False  # nothing to do until something new comes
        self._process = process
        self._api = Api(process.world.cluster, process.world.chance, kind, namespace)
        self._checkpoint = Checkpoint()
        self._wanted = ""
        self._life = self._run()
        self._after_pass = None
        self._auditing = None

    def go_on(self) -> None:
        self._life.send(None)

    def after_pass(self) -> None:
        """Let what follows a pass (its marker, the second look) go on, too."""
        if self._after_pass is not None:
            try:
                self._after_pass.send(None)
            except StopIteration:
                self._after_pass = None

    def audit(self) -> None:
        """Begin to look for what the watch has missed."""
        if self._auditing is None and self.passed:
            self._auditing = self._audit()

    def go_on_with_audit(self) -> None:
        if self._auditing is not None:
            try:
                self._auditing.send(None)
            except StopIteration:
                self._auditing = None

    @property
    def busy(self) -> bool:
        if self.looks > 2:
            return False  # waits for a person: a second look did not release the deletes
        under_way = self._after_pass is not None or self._auditing is not None
        return not self.idle or under_way or bool(self._wanted)

    def resync(self, reason: str) -> None:
        self._wanted = reason

    def die(self) -> None:
        self._life.close()
        self._stop_after_pass()
        if self._auditing is not None:
            self._auditing.close()

    async def _run(self) -> None:
        state, effects = watch.start()
        while True:
            request = await self._perform(effects)
            assert request is not None, "a state without a source of items"
            state, effects = await self._follow(state, request)

    async def _follow(self, state: State, request: Request) -> tuple[State, tuple[Effect, ...]]:
        source = self._source(request)
        while True:
            await Pause()
            item: Item | None
            if self._wanted:
                item, self._wanted = Resync(self._wanted), ""
            elif isinstance(request, Settle):
                item = await self._settled()
            else:
                item = next(source)
            self.idle = item is None
            if item is None:
                continue
            if isinstance(item, Page | Bookmark):
                self.heard = int(item.resource_version)
            state, effects = watch.step(state, item)
            if effects and isinstance(effects[-1], Request):
                return state, effects
            await self._perform(effects)
            self.idle = isinstance(item, Bookmark)

    def _source(self, request: Request) -> Iterator[Item | None]:
        match request:
            case GetPage(token):
                return (self._api.page(token) for _ in range(1))  # answered when it is read
            case OpenInitial():
                return self._api.initial()
            case OpenWatch(position):
                return self._api.watch(int(self._checkpoint.position or position))
            case Wait():
                return iter([Waited()])
            case Settle():
                return iter(())

    async def _settled(self) -> Item:
        process = self._process
        self._stop_after_pass()
        await process.pipeline.barrier()
        if process.world.broker.away:
            return Lost("the broker is away")
        entries, marker = process.load(self.kind, self.namespace)
        process.missing.discard(self.kind)
        while process.missing:  # the epoch is that of all kinds
            await Pause()
        if not process.epoch.value:
            process.epoch.begin(self._now_s())
        self.inventory.reload(entries, (marker.epoch, marker.resource_version) if marker else (0, ""))
        return Begin()

    async def _perform(self, effects: tuple[Effect, ...]) -> Request | None:
        for effect in effects:
            match effect:
                case Observe(found, live):
                    if live:
                        self._hear(found.resource_version)
                    await self._publish(self._changes(effect), found.resource_version if live else "")
                case Remove(found):
                    self._hear(found.resource_version)
                    await self._publish(self._changes(effect), found.resource_version)
                case Advance(position):
                    self._hear(position)
                    self._pass(position)
                case BeginPass():
                    self._begin_pass()
                case EndPass(version, doubtful):
                    await self._end_pass(version, doubtful)
                case Trouble(reason):
                    self._process.world.chance.met(f"trouble: {reason}")
                    if reason == "absent":
                        await self._publish(self.inventory.kind_absent(self._now_s()).changes, "")
                case _:
                    return effect
        return None

    def _changes(self, effect: Observe | Remove) -> tuple[Change, ...]:
        if self.scope is not None and effect.object.key.namespace not in self.scope:
            return ()
        if isinstance(effect, Remove):
            return self.inventory.remove(effect.object, now_s=self._now_s())
        return self.inventory.observe(effect.object, live=effect.live, now_s=self._now_s())

    async def _publish(self, changes: tuple[Change, ...], position: str) -> None:
        for change in changes:
            if position:
                self._checkpoint.sent(position)
            await self._process.publish(change, partial(self._acknowledged, change, position))
        if position:
            self._pass(position)

    def _pass(self, position: str) -> None:
        self._checkpoint.passed(position)
        self.passed = position

    def _acknowledged(self, change: Change, position: str, sequence: int) -> None:
        self.inventory.acknowledged(change.key, sequence)
        if position:
            self._checkpoint.acknowledged(position)

    async def _end_pass(self, version: str, doubtful: int) -> None:
        self.heard = int(version)
        outcome = self._concluded(version, doubtful)
        self.looks = self.looks + 1 if outcome.held else 0
        self._process.world.pass_ended(self, outcome)
        await self._publish(outcome.changes, "")
        self._checkpoint.reset(version)
        self.passed = version
        if outcome.complete and self.scope != frozenset():
            marker = SyncMarker(tuple(sorted(self.scope or ())), version, self._process.epoch.value)
            self._after_pass = self._announce(marker)
        elif outcome.held:
            self._after_pass = self._look_again()

    def _begin_pass(self) -> None:
        if not self.namespace:
            self.scope = self._process.selected
        self.numbering = self._process.world.cluster.restored
        self.stream = self._process.world.broker.created
        self.passed = ""  # a position of the time before says nothing about what the pass will find
        self.inventory.begin_pass(self.scope)

    def _concluded(self, version: str, doubtful: int) -> Outcome:
        """End a pass; entries outside the scope have gone with their namespace, if that has gone."""
        chance, gone = self._process.world.chance, self._process.world.cluster.vanished
        outside = {key.namespace for key in self.inventory.absent() if not self.inventory.covers(key)}
        verified = Verified(vanished=frozenset(outside & gone))
        if verified.vanished:
            chance.met("unselected namespace has gone")
        outcome = self.inventory.end_pass(version, doubtful=doubtful, now_s=self._now_s(), verified=verified)
        if outcome.left_scope:
            chance.met("objects left the scope")
        return outcome

    async def _audit(self) -> None:
        """Look for what the watch has missed, as `audit.run_audit` does, and tell the world."""
        world = self._process.world
        audit, began = Audit(self.inventory), self.passed
        api = Api(world.cluster, world.chance, self.kind, self.namespace)

        async def page(token: str) -> Item:
            await Pause()
            return api.page(token)

        version = await listed(audit, page)
        while version and older(self.passed, version) and not audit.void:
            await Pause()
        if not version or audit.void:
            return
        if older(version, began):
            world.audited(self, Missed(restored=True))
        else:
            world.audited(self, audit.conclude(version, audit.absent(version)))

    async def _announce(self, marker: SyncMarker) -> None:
        await self._process.pipeline.barrier()
        await self._process.outbox.announce(self.kind, marker)

    async def _look_again(self) -> None:
        due_s = self._now_s() + GUARD_AGAIN_S
        while self._now_s() < due_s:
            await Pause()
        self.resync("second look at held deletes")

    def _stop_after_pass(self) -> None:
        if self._after_pass is not None:
            self._after_pass.close()
            self._after_pass = None

    def _hear(self, version: str) -> None:
        self.heard = max(self.heard, int(version))

    def _now_s(self) -> int:
        return self._process.world.chance.now_s
