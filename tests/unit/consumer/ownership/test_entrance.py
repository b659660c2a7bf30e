"""Who may join a group: nobody beside another cluster's consumers, and of those who come together the first."""

import asyncio
from itertools import combinations

import pytest
from msgspec.structs import replace

from consumer.ownership.entrance import Entrance
from consumer.ownership.group import Attempts
from consumer.ownership.targets import Lease, Me, Seat
from shared.errors import ConflictError, RefusedToStartError, TransientError, UnreachableError

LEASE_S = 10.0
OURS, THEIRS = Me("pod-0", "i-1", "c-1"), Me("pod-1", "i-2", "c-2")


class Table:
    """The leases as a model; implements `group.Leases`. `losing`: the answer to the next member record is lost."""

    def __init__(self):
        self.now = 0.0
        self.losing = False
        self.sequence = 0
        self.members = {}
        self.leases = {}

    async def join(self, me, lease_s, timeout_s, expect=None):
        if expect not in {None, self.members[me.member].sequence if me.member in self.members else 0}:
            raise ConflictError("another message stands there")
        self.sequence += 1
        self.members[me.member] = Seat(me, self.sequence)
        if self.losing:
            self.losing = False
            raise UnreachableError("no answer")
        return self.sequence

    async def seats(self):
        return tuple(self.members.values())

    async def read(self, shard):
        return self.leases.get(shard, (Lease(), 0))

    def hold(self, me, sequence):
        self.leases[0] = Lease(me.member, me.instance, LEASE_S, cluster_id=me.cluster_id), sequence


class Paced:
    """A table at which each request of one process waits until it is let through."""

    def __init__(self, table):
        self.now = table.now
        self._table = table
        self._passes = asyncio.Semaphore(0)

    async def join(self, *args):
        await self._passes.acquire()
        return await self._table.join(*args)

    async def seats(self):
        await self._passes.acquire()
        return await self._table.seats()

    async def read(self, shard):
        return await self._table.read(shard)

    async def let_one_through(self):
        self._passes.release()
        for _ in range(10):
            await asyncio.sleep(0)


def entrance(table, me=OURS):
    return Entrance(table, me, Attempts(LEASE_S, lambda: table.now), shards=1)


# --- whoever works already --------------------------------------------------------------------------------------------


async def test_a_consumer_beside_a_living_one_of_another_cluster_refuses_with_both_ids_and_the_way_out():
    table = Table()
    table.members["pod-1"] = Seat(THEIRS, 5)
    here = entrance(table)
    with pytest.raises(RefusedToStartError, match=r"cluster id c-2, .* pod-1 .* this is c-1: choose another CLUSTER_N"):
        await here.enter()
    assert (here.is_seated, list(table.members)) == (False, ["pod-1"])


@pytest.mark.parametrize("cluster_id", ["c-1", ""], ids=["of our cluster", "of an earlier release"])
async def test_a_consumer_beside_others_that_say_nothing_else_joins(cluster_id):
    table = Table()
    table.members["pod-1"] = Seat(replace(THEIRS, cluster_id=cluster_id), 5)
    here = entrance(table)
    await here.enter()
    assert here.is_seated
    assert table.members["pod-0"].me == replace(OURS, joining=True)


async def test_a_namesake_of_another_cluster_is_not_written_over():
    table = Table()
    table.members["pod-0"] = Seat(replace(THEIRS, member="pod-0"), 5)
    with pytest.raises(RefusedToStartError):
        await entrance(table).enter()
    assert table.members["pod-0"].me.cluster_id == "c-2"


async def test_a_pod_that_is_started_again_takes_its_predecessors_seat():
    table = Table()
    table.members["pod-0"] = Seat(replace(OURS, instance="i-0"), 5)
    await entrance(table).enter()
    assert table.members["pod-0"].me.instance == "i-1"


# --- those who come together ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pod-1", "pod-0"], ids=["two names", "one name"])
async def test_of_two_clusters_that_come_together_exactly_one_goes_on_in_whatever_order_their_requests_arrive(name):
    """Every order of the requests of two: one of them never enters, the other one does, and works from then on."""
    requests = 4  # to read, to write, to read, to say that it works

    async def start(port, me):
        await entrance(port, me).enter()
        await port.join(me, LEASE_S, 1.0)

    for first in combinations(range(2 * requests), requests):
        table = Table()
        ports = [Paced(table), Paced(table)]
        clusters = zip(ports, (OURS, replace(THEIRS, member=name)), strict=True)
        starts = [asyncio.create_task(start(port, me)) for port, me in clusters]
        for turn in range(2 * requests):
            await ports[turn not in first].let_one_through()
        ends = await asyncio.gather(*starts, return_exceptions=True)
        assert ends.count(None) == 1, (first, ends)
        assert all(end is None or isinstance(end, RefusedToStartError | TransientError) for end in ends)


async def test_a_consumer_whose_answer_was_lost_keeps_its_place_before_those_who_came_later():
    table = Table()
    table.losing = True
    here = entrance(table)
    with pytest.raises(UnreachableError):
        await here.enter()
    with pytest.raises(RefusedToStartError):
        await entrance(table, THEIRS).enter()
    await here.enter()
    assert table.members["pod-0"].sequence == 1
    assert here.is_seated


# --- leases without a member ------------------------------------------------------------------------------------------


async def test_a_lease_of_another_cluster_that_is_renewed_is_a_living_consumers():
    table = Table()
    table.hold(THEIRS, 5)
    here = entrance(table)
    with pytest.raises(TransientError, match=r"within 10 s .* cluster id c-2"):
        await here.enter()
    table.hold(THEIRS, 6)
    with pytest.raises(RefusedToStartError, match="cluster id c-2, whose consumer pod-1"):
        await here.enter()


async def test_a_lease_of_another_cluster_that_runs_out_was_a_dead_consumers():
    table = Table()
    table.hold(THEIRS, 5)
    here = entrance(table)
    with pytest.raises(TransientError):
        await here.enter()
    table.now = LEASE_S
    await here.enter()
    assert here.is_seated


@pytest.mark.parametrize("me", [OURS, replace(THEIRS, cluster_id="")], ids=["of our cluster", "of an earlier release"])
async def test_other_leases_hold_up_nobody(me):
    table = Table()
    table.hold(me, 5)
    await entrance(table).enter()
