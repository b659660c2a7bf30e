"""Leases, members and shards on a real nats-server."""

import asyncio

import pytest

from consumer.ownership.fence import Fence
from consumer.ownership.leases import NOBODY, LeaseStream
from consumer.ownership.suspicion import Suspicion
from consumer.ownership.targets import Lease, Me, target
from consumer.shards import Hooks, Shards
from shared.broker import Broker
from shared.errors import ConflictError, RefusedToStartError, TransientError, UnreachableError
from shared.objects import Kind, ObjectKey
from shared.streams import ensure_consumer
from shared.subjects import Subjects
from tests.eventually import eventually

SHARDS = 8
SUBJECTS = Subjects("isvc", "prod.a", SHARDS)
LEASE_S = 3.0
ME = Me("pod-0", "i-1")
HELD = Lease("pod-0", "i-1", LEASE_S, Suspicion(until=9, at_hand=7, deaths={7: 2}))


@pytest.fixture
async def leases(broker):
    return LeaseStream(broker, SUBJECTS, "ISVC_LEASE", "ISVC_EVENTS")


async def test_a_lease_is_read_as_it_was_written(leases):
    assert await leases.read(3) == (NOBODY, 0)
    sequence = await leases.write(3, HELD, 0, 2.0)
    assert await leases.read(3) == (HELD, sequence)
    assert await leases.read(4) == (NOBODY, 0)


async def test_of_two_who_have_read_the_same_only_one_writes(leases):
    first = await leases.write(3, HELD, 0, 2.0)
    writes = [leases.write(3, Lease(member, member, LEASE_S), first, 2.0) for member in ("a", "b", "c")]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["ConflictError", "ConflictError", "int"]
    with pytest.raises(ConflictError):
        await leases.write(3, HELD, 0, 2.0)


async def test_the_lease_of_a_dead_owner_stays_for_its_successor(leases, broker):
    await leases.write(3, HELD, 0, 2.0)
    await leases.join(ME, 1.0, 2.0)
    await eventually(lambda: has_no_members(leases), "the member's record has run out", 5.0)
    assert (await leases.read(3))[0] == HELD


async def has_no_members(leases):
    return not await leases.members()


async def test_a_member_is_seen_until_it_leaves(leases):
    await leases.join(ME, LEASE_S, 2.0)
    await leases.join(Me("pod.1", "i-2"), LEASE_S, 2.0)
    assert await leases.members() == {"pod-0", "pod.1"}
    await leases.leave(ME)
    assert await leases.members() == {"pod.1"}


async def test_a_member_of_another_cluster_is_none_of_ours_and_one_that_does_not_say_is(leases):
    for me in (Me("pod-0", "i-1", "c-1"), Me("pod-1", "i-2", "c-2"), Me("pod-2", "i-3")):
        await leases.join(me, LEASE_S, 2.0)
    assert await leases.members("c-1") == {"pod-0", "pod-2"}
    assert await leases.members() == {"pod-0", "pod-1", "pod-2"}
    assert {seat.me.cluster_id for seat in await leases.seats()} == {"c-1", "c-2", ""}


async def test_who_joins_replaces_exactly_the_message_that_was_read(leases):
    first = await leases.join(ME, LEASE_S, 2.0, 0)
    with pytest.raises(ConflictError):
        await leases.join(ME, LEASE_S, 2.0, 0)
    second = await leases.join(ME, LEASE_S, 2.0, first)
    assert [seat.sequence for seat in await leases.seats()] == [second]


async def test_a_member_that_has_run_out_leaves_its_place_free(leases):
    await leases.join(ME, 1.0, 2.0)
    await eventually(lambda: has_no_members(leases), "the member's record has run out", 5.0)
    await leases.join(ME, LEASE_S, 2.0, 0)


async def test_another_cluster_on_the_broker_has_leases_of_its_own(leases, broker):
    other = LeaseStream(broker, Subjects("isvc", "prod-b", SHARDS), "ISVC_LEASE", "ISVC_EVENTS")
    await leases.write(3, HELD, 0, 2.0)
    await leases.join(ME, LEASE_S, 2.0)
    assert await other.read(3) == (NOBODY, 0)
    assert await other.members() == frozenset()


async def test_what_was_delivered_is_known(leases, broker):
    assert await leases.delivered(3) == 0
    subject = SUBJECTS.event(ObjectKey(Kind.ISVC, "team-a", "iris"))
    shard = int(subject.split(".")[3])
    name = await ensure_consumer(broker.jetstream, SUBJECTS, shard)
    assert await leases.delivered(shard) == 0
    for _ in range(5):
        await broker.jetstream.publish(subject, b"{}")
    pull = await broker.jetstream.pull_subscribe_bind(name, "ISVC_EVENTS")
    assert len(await pull.fetch(3, timeout=5)) == 3
    assert await leases.delivered(shard) == 3


async def test_a_lease_that_is_none_is_told_with_the_way_out(leases, broker):
    await broker.jetstream.publish("isvc.prod=2Ea.lease.shard.3", b"nonsense")
    with pytest.raises(TransientError, match=r"lease of 3 does not decode .*purge its subject"):
        await leases.read(3)


async def test_without_a_broker_nothing_is_known(leases, nats_server, broker):
    await nats_server.kill()
    await eventually(lambda: not broker.client.is_connected)
    with pytest.raises(UnreachableError):
        await leases.write(3, HELD, 0, 0.1)


async def test_hints_come_for_new_members_and_free_shards_and_for_no_renewal(leases):
    hints = []
    end = await leases.watch(lambda: hints.append(1))
    await leases.join(ME, LEASE_S, 2.0)
    await eventually(lambda: len(hints) == 1)
    await leases.members()
    sequence = await leases.write(3, HELD, 0, 2.0)
    await leases.join(ME, LEASE_S, 2.0)
    await leases.write(3, NOBODY, sequence, 2.0)
    await eventually(lambda: len(hints) == 2)
    await end()


# --- several consumers ---


class Duty:
    """Notes the terms."""

    def __init__(self):
        self.begun = []
        self.log = []

    def begin(self, term):
        self.begun.append(term)
        self.log.append(("begin", term.shard))

    async def end(self, term):
        self.log.append(("end", term.shard))

    def lost(self, term):
        self.log.append(("lost", term.shard))


class Consumer:
    """Shards with a connection of their own."""

    def __init__(self, broker, member, instance="1", cluster_id="c-1"):
        self.broker = broker
        self.fence = Fence(SHARDS, asyncio.get_running_loop().time)
        self.leases = LeaseStream(broker, SUBJECTS, "ISVC_LEASE", "ISVC_EVENTS")
        self.duty = Duty()
        self.taken = []
        self.lost = []
        hooks = Hooks(lambda *_: None, self.taken.append, self.lost.append)
        self.shards = Shards(self.fence, self.leases, Me(member, f"{member}/{instance}", cluster_id), LEASE_S, hooks)
        self.member = member
        self._task = None

    async def start(self):
        self._end_watch = await self.leases.watch(self.shards.kick)
        await self.shards.start(self.duty)
        self._task = asyncio.create_task(self.shards.run())

    @property
    def runs(self):
        return self._task is not None

    async def die(self):
        """End without a word."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._end_watch()

    async def leave(self):
        await self.die()
        await self.shards.leave()


@pytest.fixture
async def consumer(broker_settings, broker):
    consumers = []

    async def started(member, instance="1", cluster_id="c-1"):
        connection = Broker(broker_settings, on_closed=lambda: None)
        await connection.connect()
        consumer = Consumer(connection, member, instance, cluster_id)
        consumers.append(consumer)
        await consumer.start()
        return consumer

    yield started
    for each in consumers:
        if each.runs:
            await each.die()
        await each.broker.close()


def shared(*consumers):
    """Whether each has exactly what is meant for it."""
    members = [consumer.member for consumer in consumers]
    return all(
        consumer.fence.owned == {shard for shard in range(SHARDS) if target(shard, members) == consumer.member}
        for consumer in consumers
    )


async def test_one_alone_has_all_shards_when_it_has_started(consumer):
    one = await consumer("pod-0")
    assert one.fence.owned == set(range(SHARDS))
    assert all(one.fence.owns(shard) for shard in range(SHARDS))
    assert one.shards.readiness() is None


async def test_who_joins_is_given_its_share_in_order_and_at_once(consumer, record_property):
    one = await consumer("pod-0")
    clock = asyncio.get_running_loop()
    joined_at = clock.time()
    two = await consumer("pod-1")
    await eventually(lambda: shared(one, two))
    took_s = clock.time() - joined_at
    record_property("figures", f"shared after {took_s:.2f} s")
    assert took_s < LEASE_S / 4, "by the hint, and not by the next look"
    assert sorted(shard for what, shard in one.duty.log if what == "end") == sorted(two.fence.owned)
    assert (one.lost, set(two.taken)) == ([], {True})


async def test_who_leaves_hands_over_at_once(consumer, record_property):
    one, two = await consumer("pod-0"), await consumer("pod-1")
    await eventually(lambda: shared(one, two))
    clock = asyncio.get_running_loop()
    left_at = clock.time()
    await one.leave()
    await eventually(lambda: shared(two))
    took_s = clock.time() - left_at
    record_property("figures", f"handed over after {took_s:.2f} s")
    assert took_s < LEASE_S / 4
    assert set(two.taken) == {True}


async def test_who_dies_is_followed_when_its_lease_has_run_out_and_not_before(consumer, record_property):
    one, two = await consumer("pod-0"), await consumer("pod-1")
    await eventually(lambda: shared(one, two))
    until = {shard: one.fence.term(shard).valid_until for shard in one.fence.owned}
    await one.die()
    died_at = asyncio.get_running_loop().time()
    await eventually(lambda: shared(two))
    took_s = asyncio.get_running_loop().time() - died_at
    record_property("figures", f"taken over after {took_s:.2f} s")
    followed = [term for term in two.duty.begun if term.shard in until]
    assert all(term.sent_at > until[term.shard] for term in followed)
    assert two.taken.count(False) == len(until)
    assert took_s < 1.75 * LEASE_S


async def test_a_pod_that_is_started_again_takes_its_predecessors_shards_at_once(consumer):
    one = await consumer("pod-0")
    await one.die()
    again = await consumer("pod-0", "2")
    assert again.fence.owned == set(range(SHARDS))
    assert set(again.taken) == {False}


async def test_without_a_broker_everybody_loses_everything_and_finds_it_again(consumer, nats_server):
    one, two = await consumer("pod-0"), await consumer("pod-1")
    await eventually(lambda: shared(one, two))
    await nats_server.kill()
    await eventually(lambda: not one.fence.owned and not two.fence.owned, "all fences have passed")
    assert set(one.lost + two.lost) == {"expired"}
    await nats_server.start()
    await eventually(lambda: shared(one, two), "they share again")
    assert set(one.taken + two.taken) == {True}, "nobody has died"


async def test_a_broker_that_comes_back_within_the_lease_moves_nothing(consumer, nats_server):
    one = await consumer("pod-0")
    terms = list(one.duty.begun)
    await nats_server.kill()
    await nats_server.start()
    renewed = {term.shard: term.valid_until for term in terms}
    await eventually(lambda: all(term.valid_until > renewed[term.shard] for term in terms))
    assert (one.duty.begun, one.lost) == (terms, [])


async def test_a_lease_that_somebody_else_has_written_is_lost_at_the_next_renewal(consumer, broker):
    one = await consumer("pod-0")
    _, sequence = await one.leases.read(3)
    await one.leases.write(3, Lease("thief", "t", LEASE_S), sequence, 2.0)
    await eventually(lambda: one.lost == ["taken"])
    assert ("lost", 3) in one.duty.log
    assert 3 not in one.fence.owned


async def test_a_suspect_is_named_in_the_lease_and_acquitted(consumer):
    one = await consumer("pod-0")
    term = one.fence.term(3)
    await one.shards.name(term, 7)
    assert (await one.leases.read(3))[0].suspicion.at_hand == 7
    await one.shards.acquit(term, 7)
    assert (await one.leases.read(3))[0].suspicion.at_hand == 0
    assert 7 in term.acquitted


async def test_a_suspect_cannot_be_named_in_a_term_that_has_ended(consumer):
    one = await consumer("pod-0")
    term = one.fence.term(3)
    one.fence.withdraw(term)
    with pytest.raises(TransientError, match="suspect message 7 of shard 3"):
        await one.shards.name(term, 7)
    assert term.suspicion.at_hand == 0


# --- another cluster of the same name ---


async def test_a_consumer_of_another_cluster_refuses_and_the_one_that_runs_goes_on_with_all_it_has(consumer):
    one = await consumer("pod-0")
    terms = list(one.duty.begun)
    for name in ("pod-1", "pod-0"):
        with pytest.raises(RefusedToStartError, match=r"cluster id c-1, whose consumer pod-0 runs; this is c-2"):
            await consumer(name, "2", "c-2")
    await one.shards._group.meet()
    assert (one.duty.begun, one.lost) == (terms, [])
    assert await one.leases.members() == {"pod-0"}


async def test_a_consumer_that_has_refused_takes_nobodys_seat_away_when_it_leaves(consumer, broker):
    one = await consumer("pod-0")
    namesake = Consumer(broker, "pod-0", "2", "c-2")
    with pytest.raises(RefusedToStartError):
        await namesake.shards.start(namesake.duty)
    await namesake.shards.leave()
    assert await one.leases.members() == {"pod-0"}


async def test_a_member_of_another_cluster_is_given_no_shard(consumer):
    """As one that only finds out that it has to refuse is, for a moment."""
    one = await consumer("pod-0")
    await one.leases.join(Me("pod-1", "i-2", "c-2", joining=True), LEASE_S, 2.0)
    await one.shards._group.meet()
    assert one.shards._group.members == {"pod-0"}


async def test_of_consumers_of_two_clusters_that_start_together_those_of_one_cluster_refuse(consumer):
    names = [("pod-0", "c-1"), ("pod-1", "c-2"), ("pod-2", "c-1"), ("pod-3", "c-2")]
    starts = [consumer(name, "1", cluster_id) for name, cluster_id in names]
    results = await asyncio.gather(*starts, return_exceptions=True)
    entered = {names[at][1] for at, result in enumerate(results) if isinstance(result, Consumer)}
    assert len(entered) == 1, results
    assert all(isinstance(result, Consumer | RefusedToStartError) for result in results)
