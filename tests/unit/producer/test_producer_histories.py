"""Random histories of a cluster with faults at every step: in the end the stream says what the cluster says."""

from collections import Counter

import pytest

from shared.events import EventType
from tests.unit.producer.imagined import World, freshest

HISTORIES = 600
TURNS = 30
SEEN: Counter[str] = Counter()


def lived(seed):
    world = World(seed)
    world.live_through(TURNS)
    world.come_to_rest()
    SEEN.update(world.faults)
    return world


def check(world):
    events, alive = world.stream.events, world.cluster.objects
    last = {event.key.name: event for event in events}
    for name, found in alive.items():
        assert name in last, f"{name} was never published"
        assert (last[name].uid, last[name].digest) == (found.uid, found.digest), f"{name}: the stream is behind"
        assert last[name].type is not EventType.DELETED, f"{name} lives"
    living = {found.uid for found in alive.values()}
    for uid in {event.uid for event in events}:
        kept = freshest(events, uid)
        of_uid = [event for event in events if event.uid == uid]
        assert kept is of_uid[-1] or kept.digest == of_uid[-1].digest, f"{uid}: the last event is not the freshest"
        assert (kept.type is EventType.DELETED) == (uid not in living), f"{uid}: delete missing or wrong"
    for name in {event.key.name for event in events}:
        uids = [event.uid for event in events if event.key.name == name]
        changes = [uid for before, uid in zip(["", *uids], uids, strict=False) if uid != before]
        if not world.faults["etcd restored"]:
            assert len(changes) == len(set(changes)), f"{name}: uids are mixed up"


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_after_any_history_the_stream_says_what_the_cluster_says(first):
    for seed in range(first, first + 100):
        try:
            check(lived(seed))
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")


def test_the_histories_contain_every_fault():
    for seed in range(100):
        lived(seed)
    assert min(SEEN.values()) > 0
    assert len(SEEN) == 13, SEEN
