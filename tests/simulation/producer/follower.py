"""The loop around `watch.step`, as `producer/reflector.py` runs it, for one kind and scope.

Every place where the real one awaits is a place where all others may go on, so nothing here needs an event loop: a
follower is a coroutine that the world resumes, or drops (a crash).
"""

from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from producer import watch
from producer.changes import Change
from producer.checkpoint import Checkpoint
from producer.inventory import Inventory
from producer.items import Begin, Bookmark, Item, Lost, Page, Resync, Waited
from producer.reflector import GUARD_AGAIN_S
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
    which its pass began, `held` how many deletes the guard keeps back."""

    def __init__(self, process: "Process", kind: Kind, namespace: str) -> None:
        self.kind = kind
        self.scope = (namespace,) if namespace else ()
        self.inventory = Inventory(process.epoch)
        self.heard = 0
        self.numbering = self.stream = 0
        self.held = 0
        self.looks = 0  # passes in a row whose deletes were held
        self.idle = False  # nothing to do until something new comes
        self._process = process
        self._api = Api(process.world.cluster, process.world.chance, kind, namespace)
        self._checkpoint = Checkpoint()
        self._wanted = ""
        self._life = self._run()
        self._after_pass = None

    def go_on(self) -> None:
        self._life.send(None)

    def after_pass(self) -> None:
        """Let what follows a pass (its marker, the second look) go on, too."""
        if self._after_pass is not None:
            try:
                self._after_pass.send(None)
            except StopIteration:
                self._after_pass = None

    @property
    def busy(self) -> bool:
        if self.looks > 2:
            return False  # waits for a person: a second look did not release the deletes
        return not self.idle or self._after_pass is not None or bool(self._wanted)

    def resync(self, reason: str) -> None:
        self._wanted = reason

    def die(self) -> None:
        self._life.close()
        self._stop_after_pass()

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
        entries, marker = process.load(self.kind, self.scope)
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
                    changes = self.inventory.observe(found, live=live, now_s=self._now_s())
                    await self._publish(changes, found.resource_version if live else "")
                case Remove(found):
                    self._hear(found.resource_version)
                    await self._publish(self.inventory.remove(found), found.resource_version)
                case Advance(position):
                    self._hear(position)
                    self._checkpoint.passed(position)
                case BeginPass():
                    self.numbering = self._process.world.cluster.restored
                    self.stream = self._process.world.broker.created
                    self.inventory.begin_pass(self.scope)
                case EndPass(version, doubtful):
                    await self._end_pass(version, doubtful)
                case Trouble(reason):
                    self._process.world.chance.met(f"trouble: {reason}")
                case _:
                    return effect
        return None

    async def _publish(self, changes: tuple[Change, ...], position: str) -> None:
        for change in changes:
            if position:
                self._checkpoint.sent(position)
            await self._process.publish(change, partial(self._acknowledged, change, position))
        if position:
            self._checkpoint.passed(position)

    def _acknowledged(self, change: Change, position: str, sequence: int) -> None:
        self.inventory.acknowledged(change.key, sequence)
        if position:
            self._checkpoint.acknowledged(position)

    async def _end_pass(self, version: str, doubtful: int) -> None:
        self.heard = int(version)
        outcome = self.inventory.end_pass(version, doubtful=doubtful, now_s=self._now_s())
        self.held = outcome.held
        self.looks = self.looks + 1 if outcome.held else 0
        self._process.world.pass_ended(self, outcome)
        await self._publish(outcome.changes, "")
        self._checkpoint.reset(version)
        if outcome.complete:
            marker = SyncMarker(self.scope, version, self._process.epoch.value)
            self._after_pass = self._announce(marker)
        elif outcome.held:
            self._after_pass = self._look_again()

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
