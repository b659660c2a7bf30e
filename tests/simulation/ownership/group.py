"""A group of consumers that share shards: the real `Shards` of each, on a model of the broker that fails as brokers do.

Latencies, lost requests, lost answers, late requests, outages, full stops of the broker's clock for members; processes
that are paused, killed and started again under their old name, or ended in order. All by one seed.
"""

import asyncio
import random
from collections import Counter
from functools import partial

from msgspec import Struct

from consumer.ownership.fence import Fence, Term
from consumer.ownership.targets import Lease, Me, Seat, target
from consumer.shards import Hooks, Shards
from shared.errors import ConflictError, TransientError, UnreachableError
from tests.simulation.ownership.hosts import Host, World

SHARDS = 3
LEASE_S = 4.0
API_TIMEOUT_S = 5.0


class Tenure(Struct):
    """The time in which a process took itself for the owner of a shard, as its fence would have said at any moment."""

    process: str
    shard: int
    since: float
    term: Term
    ended: float = float("inf")

    @property
    def until(self) -> float:
        return min(self.ended, self.term.valid_until)


class Broker:
    """The stream of leases, on a server that may be away."""

    def __init__(self, world: World, chance: random.Random, faults: Counter) -> None:
        self._world = world
        self._chance = chance
        self._faults = faults
        self.down_until = 0.0
        self.calm = False
        self._sequence = 0
        self.leases: dict[int, tuple[Lease, int]] = {}
        self._members: dict[str, tuple[Seat, float]] = {}

    def happens(self, rate: float, what: str) -> bool:
        if self.calm or self._chance.random() >= rate:
            return False
        self._faults[what] += 1
        return True

    def latency_s(self) -> float:
        if self.happens(0.04, "slow"):
            return self._chance.uniform(0.1, 0.5 * LEASE_S)
        return self._chance.uniform(0.001, 0.005)

    async def call(self, host: Host, operation, timeout_s: float):
        future = host.loop.create_future()

        def answer(set_it):
            if not future.done():
                set_it()

        def arrive():
            if self._world.now < self.down_until:
                if self._chance.random() < 0.5:  # it waits in the client's buffer for the connection to come back
                    self._faults["late"] += 1
                    self._world.at(self.down_until + self.latency_s(), arrive)
                return
            try:
                settle = partial(future.set_result, operation())
            except ConflictError as error:
                settle = partial(future.set_exception, error)
            if self.happens(0.03, "lost reply"):
                return
            self._world.after(self.latency_s(), lambda: host.deliver(lambda: answer(settle)))

        if not self.happens(0.02, "lost request"):
            self._world.after(self.latency_s(), arrive)
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError as error:
            raise UnreachableError("no answer") from error

    def join(self, me: Me, ttl_s: float, expect: int | None) -> int:
        standing = next((seat.sequence for seat in self.seats() if seat.me.member == me.member), 0)
        if expect not in {None, standing}:
            raise ConflictError("wrong last sequence")
        self._sequence += 1
        self._members[me.member] = Seat(me, self._sequence), self._world.now + ttl_s
        return self._sequence

    def leave(self, member: str) -> None:
        self._members.pop(member, None)

    def seats(self) -> tuple[Seat, ...]:
        return tuple(seat for seat, until in self._members.values() if self._world.now < until)

    def members(self, cluster_id: str) -> frozenset[str]:
        return frozenset(seat.me.member for seat in self.seats() if not seat.me.is_stranger_to(cluster_id))

    def write(self, shard: int, lease: Lease, expect: int) -> int:
        if self.leases.get(shard, (None, 0))[1] != expect:
            raise ConflictError("wrong last sequence")
        self._sequence += 1
        self.leases[shard] = lease, self._sequence
        return self._sequence


class Adapter:
    """The port `Leases` of one process."""

    def __init__(self, broker: Broker, host: Host) -> None:
        self._broker = broker
        self._host = host

    def _call(self, operation, timeout_s: float = API_TIMEOUT_S):
        return self._broker.call(self._host, operation, timeout_s)

    async def join(self, me, lease_s, timeout_s, expect=None):
        return await self._call(lambda: self._broker.join(me, lease_s, expect), timeout_s)

    async def leave(self, me):
        await self._call(lambda: self._broker.leave(me.member))

    async def members(self, cluster_id=""):
        return await self._call(lambda: self._broker.members(cluster_id))

    async def seats(self):
        return await self._call(self._broker.seats)

    async def read(self, shard):
        return await self._call(lambda: self._broker.leases.get(shard, (Lease(), 0)))

    async def write(self, shard, lease, expect, timeout_s):
        return await self._call(lambda: self._broker.write(shard, lease, expect), timeout_s)

    async def delivered(self, shard):
        return await self._call(lambda: 0)


class WatchedFence(Fence):
    """A fence whose terms are noted."""

    def __init__(self, process: str, world: World, tenures: list[Tenure]) -> None:
        super().__init__(SHARDS, lambda: world.now)
        self._process = process
        self._world = world
        self._tenures = tenures

    def grant(self, term: Term) -> None:
        super().grant(term)
        self._tenures.append(Tenure(self._process, term.shard, self._world.now, term))

    def withdraw(self, term: Term) -> None:
        super().withdraw(term)
        for tenure in self._tenures:
            if tenure.term is term:
                tenure.ended = min(tenure.ended, self._world.now)


class Work:
    """A duty that takes its time to end."""

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s

    def begin(self, term: Term) -> None:
        pass

    async def end(self, term: Term) -> None:
        await asyncio.sleep(self._takes_s)

    def lost(self, term: Term) -> None:
        pass


class Process:
    """One consumer, from its start to its end."""

    def __init__(self, group: "Group", member: str, number: int) -> None:
        self.member = member
        self.name = f"{member}/{number}"
        self.host = group.world.host()
        self.fence = WatchedFence(self.name, group.world, group.tenures)
        self.ending = False
        self._group = group
        self._task = self.host.spawn(self._run(Me(member, self.name), group.chance.uniform(0.0, 2.0)))

    async def _run(self, me: Me, takes_s: float) -> None:
        group = self._group
        hooks = Hooks(lambda *_: None, lambda clean: group.seen.update([f"taken, clean {clean}"]), group.count_lost)
        shards = Shards(self.fence, Adapter(group.broker, self.host), me, LEASE_S, hooks)
        try:
            while True:
                try:
                    await shards.start(Work(takes_s))
                    break
                except TransientError:
                    await asyncio.sleep(0.25)
            await shards.run()
        finally:
            await shards.leave()
            self.host.kill()

    def stop(self) -> None:
        self.ending = True
        self.host.deliver(self._task.cancel)

    def kill(self) -> None:
        self.host.kill()
        for tenure in self._group.tenures:
            if tenure.process == self.name:
                tenure.ended = min(tenure.ended, self._group.world.now)


class Group:
    """Everything of one run."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.faults: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.tenures: list[Tenure] = []
        self.broker = Broker(self.world, self.chance, self.faults)
        self._started = 0
        self.processes: list[Process] = []

    def count_lost(self, why: str) -> None:
        self.seen[f"lost, {why}"] += 1

    def start(self, member: str) -> None:
        self._started += 1
        self.processes.append(Process(self, member, self._started))

    @property
    def running(self) -> list[Process]:
        return [process for process in self.processes if process.host.alive and not process.ending]

    def run(self, troubles_s: float = 60.0, calm_s: float = 8 * LEASE_S) -> None:
        """Let everything go wrong for a while, then nothing."""
        for member in "abc":
            self.start(member)
        while self.world.now < troubles_s:
            self.world.run(self.world.now + self.chance.expovariate(1 / LEASE_S))
            self._trouble()
        self.broker.calm = True
        self.world.run(self.world.now + calm_s)

    def _trouble(self) -> None:
        what = self.chance.choice(["pause", "pause", "kill", "stop", "outage", "join"])
        self.faults[what] += 1
        victim = self.chance.choice(self.running or self.processes)
        match what:
            case "pause":
                victim.host.pause(self.chance.uniform(0.1, 2.5) * LEASE_S)
            case "outage":
                self.broker.down_until = self.world.now + self.chance.uniform(0.1, 2.0) * LEASE_S
            case "kill" if victim.host.alive:
                victim.kill()
                self._again(victim)
            case "stop" if victim.host.alive:
                victim.stop()
                self._again(victim)
            case "join":
                self.start(f"extra-{self._started}")
                self.world.after(self.chance.uniform(1, 5) * LEASE_S, self.processes[-1].stop)

    def _again(self, ended: Process) -> None:
        """Start a successor of the same name when the old process is gone, as a pod does."""

        def start() -> None:
            if ended.host.alive:
                self.world.after(0.5, start)
            else:
                self.start(ended.member)

        self.world.after(self.chance.uniform(0, 2 * LEASE_S), start)

    def overlaps(self) -> list[str]:
        """Return every moment in which two processes took themselves for the owner of one shard."""
        found = []
        for shard in range(SHARDS):
            tenures = sorted((t for t in self.tenures if t.shard == shard), key=lambda tenure: tenure.since)
            for place, one in enumerate(tenures):
                found += [
                    f"shard {shard}: {one.process} until {one.until:.3f}, {other.process} since {other.since:.3f}"
                    for other in tenures[place + 1 :]
                    if other.process != one.process and max(one.since, other.since) < min(one.until, other.until)
                ]
        return found

    def unowned(self) -> list[int]:
        """Return the shards that are not, at this moment, in the hands of the one process they are meant for."""
        members = {process.member for process in self.running}
        return [
            shard
            for shard in range(SHARDS)
            if [p.member for p in self.running if p.fence.owns(shard)] != [target(shard, members)]
        ]

    def close(self) -> None:
        self.world.close()


def played(seed: int) -> Group:
    """Return a group after a run."""
    group = Group(seed)
    try:
        group.run()
    finally:
        group.close()
    return group
