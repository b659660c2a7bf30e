"""A simulation that finds nothing proves nothing: without each of these rules two consumers come to own one shard."""

import asyncio

import pytest

from consumer import shards
from consumer.ownership import targets
from consumer.ownership.targets import valid_until
from tests.simulation.ownership import group
from tests.simulation.ownership.group import played

RUNS_MAX = 100


def fence_by_the_time_of_the_answer(patch):
    patch.setattr(
        shards, "valid_until", lambda _sent_at, lease_s: valid_until(asyncio.get_running_loop().time(), lease_s)
    )


def writes_whatever_stands_there(patch):
    async def write(self, shard, lease, _expect, timeout_s):
        def unconditional():
            return self._broker.write(shard, lease, self._broker.leases.get(shard, (None, 0))[1])

        return await self._call(unconditional, timeout_s)

    patch.setattr(group.Adapter, "write", write)


def takes_before_the_lease_has_run_out(patch):
    def decide(seen, me, *, mine, now):
        return targets.decide(seen, me, mine=mine, now=now + 0.5 * group.LEASE_S)

    patch.setattr(shards, "decide", decide)


def dates_a_lease_back_to_the_last_look(patch):
    def sighted(before, lease, sequence, now):
        seen = targets.sighted(before, lease, sequence, now)
        return seen if before is None or seen is before else targets.Sighting(lease, sequence, before.at)

    patch.setattr(shards, "sighted", sighted)


def goes_on_after_the_fence(patch):
    patch.setattr(shards, "valid_until", lambda sent_at, lease_s: sent_at + 1.3 * lease_s)


def frees_before_the_work_has_ended(patch):
    async def give_away(self, term):
        await self._leases.write(term.shard, targets.Lease(), term.sequence, self._attempts.call_s)
        await real(self, term)

    real = shards.Shards._give_away
    patch.setattr(shards.Shards, "_give_away", give_away)


@pytest.mark.parametrize(
    "mutate",
    [
        fence_by_the_time_of_the_answer,
        writes_whatever_stands_there,
        takes_before_the_lease_has_run_out,
        dates_a_lease_back_to_the_last_look,
        goes_on_after_the_fence,
        frees_before_the_work_has_ended,
    ],
)
def test_a_mutant_is_found(mutate, monkeypatch, record_property):
    mutate(monkeypatch)
    died_after = next((seed + 1 for seed in range(RUNS_MAX) if played(seed).overlaps()), 0)
    record_property("figures", f"{mutate.__name__}: found in run {died_after}")
    assert died_after
