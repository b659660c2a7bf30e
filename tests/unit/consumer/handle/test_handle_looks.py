"""Looks at an object: each says again what its last event told, and leaves what is newer to the next event."""

from msgspec.structs import replace

from consumer.delivery.work import look_later
from consumer.verdict import Ack, Bury, Retry
from shared.errors import PermanentError, UnreachableError
from shared.objects import ModelCopies, ModelStatus
from tests.unit.consumer.deliveries import event_work, look_work
from tests.unit.consumer.worlds import ID, KEY, MODEL, READY, SEEN, VERSION, an_object, carrying, record_of, seen


async def test_a_look_says_again_what_the_last_event_told(world):
    world.events.by_key[KEY] = seen(an_object(version="10"))
    world.kubernetes.put(an_object(version="20"))
    work = look_work()
    assert await world.handle(work) == Ack()
    assert work.message.answers == ["ack"]
    record = world.registry.only
    assert (record.version_id, record.stamp.resource_version, record.stamp.history[0].time) == ("11", "10", SEEN)
    assert world.kubernetes.labels(KEY)[ID] == record.id


async def test_a_look_records_no_state_that_no_event_has_told_and_writes_no_id_to_it(world):
    world.events.by_key[KEY] = seen(an_object(version="10"))
    world.kubernetes.put(an_object({MODEL: "2", VERSION: "21"}, version="20"))
    assert await world.handle(look_work()) == Ack()
    assert (world.registry.only.model_id, world.registry.only.stamp.resource_version) == ("1", "10")
    assert ID not in world.kubernetes.labels(KEY)


async def test_a_change_that_is_taken_back_before_it_is_told_leaves_nothing_that_events_cannot_undo(world):
    """A look in between must not record what nobody will contradict: the producer has nothing to publish."""
    await world.handle(event_work(an_object(version="10")))
    world.kubernetes.put(an_object({MODEL: "1", VERSION: "12"}, version="20"))
    await world.handle(look_work(sequence=2))
    world.kubernetes.put(an_object(version="30"))
    await world.handle(event_work(carrying(an_object(version="15"), world.registry.only.id), sequence=3))
    assert world.words[-1] != "stale"
    assert [change.version for change in world.registry.only.stamp.history] == ["11"]


async def test_a_look_writes_the_id_that_the_live_object_has_lost(world):
    last = seen(carrying(an_object(version="10"), "7"))
    world.events.by_key[KEY] = last
    world.registry.put(record_of(last))
    world.kubernetes.put(an_object(version="20"))
    await world.handle(look_work())
    assert world.kubernetes.labels(KEY)[ID] == "7"
    assert world.registry.writes == 0


async def test_a_look_sets_right_what_is_newer_than_the_last_event_when_the_object_is_as_that_says(world):
    """The stream has lost the event from which the record was written, or a look of an earlier release wrote it."""
    last = seen(carrying(an_object(version="10"), "7"))
    world.events.by_key[KEY] = last
    world.registry.put(record_of(seen(an_object({MODEL: "1", VERSION: "12"}, version="20"))))
    world.kubernetes.put(carrying(an_object(version="30"), "7"))
    for _ in range(2):
        await world.handle(look_work())
        assert (world.registry.only.version_id, world.registry.only.stamp.resource_version) == ("11", "20")
        world.registry.put(record_of(seen(an_object({MODEL: "1", VERSION: "12"}, version="20"))))


async def test_a_look_leaves_what_is_newer_than_the_last_event_when_the_object_has_moved_on(world):
    world.events.by_key[KEY] = seen(an_object(version="10"))
    world.registry.put(record_of(seen(an_object({MODEL: "1", VERSION: "12"}, version="20"))))
    world.kubernetes.put(an_object({MODEL: "1", VERSION: "12"}, version="20"))
    await world.handle(look_work())
    assert (world.registry.writes, world.words) == (0, ["stale"])


async def test_a_look_leaves_the_end_of_an_object_to_its_event(world):
    last = seen(carrying(an_object(version="10"), "7"))
    world.events.by_key[KEY] = last
    world.registry.put(record_of(last))
    assert await world.handle(look_work()) == Ack()
    assert (world.registry.only.deployed, world.words) == (True, ["noop"])


async def test_a_look_says_an_end_again_that_an_event_told(world):
    last = seen(carrying(an_object(version="10"), "7"), gone=True)
    world.events.by_key[KEY] = last
    world.registry.put(record_of(seen(carrying(an_object(version="10"), "7"))))
    assert await world.handle(look_work()) == Ack()
    stamp = world.registry.only.stamp
    assert (world.registry.only.deployed, stamp.deleted, stamp.undeployed_at) == (False, True, SEEN)


async def test_a_look_ends_no_object_that_lives_though_an_event_has_told_its_end(world):
    last = seen(carrying(an_object(version="10"), "7"))
    world.events.by_key[KEY] = replace(last, freshness=replace(last.freshness, deleted=True))
    world.registry.put(record_of(last))
    world.kubernetes.put(last.obj)
    await world.handle(look_work())
    assert (world.registry.writes, world.words) == (0, ["noop"])


async def test_a_look_that_comes_before_the_last_event_leaves_the_work_to_that(world):
    """Those between the two are still to come as well, with versions that belong into the history."""
    await world.handle(event_work(an_object(version="10")))
    record = world.registry.only
    world.registry.put(replace(record, deployed=False))
    echo = event_work(carrying(an_object(version="11"), record.id), sequence=3)
    world.events.by_key[KEY], world.events.sequence = echo.seen, 3
    await world.handler.handle(look_work(sequence=2))
    assert not world.registry.only.deployed
    await world.handle(echo)
    assert world.registry.only.deployed, "though the event says nothing new"


async def test_a_look_works_when_the_last_event_took_the_turn_of_one_before_it(world):
    await world.handle(event_work(an_object(version="10"), sequence=3))
    world.registry.put(replace(world.registry.only, deployed=False))
    world.events.sequence = 3
    await world.handler.handle(look_work(sequence=2))
    assert world.registry.only.deployed


async def test_a_look_at_an_object_that_was_made_anew_leaves_both_uids_to_their_events(world):
    last = seen(carrying(an_object(version="10"), "7"))
    world.events.by_key[KEY] = last
    world.registry.put(record_of(last))
    young = an_object(version="50")
    world.kubernetes.put(replace(young, metadata=replace(young.metadata, uid="young")))
    await world.handle(look_work())
    assert world.registry.writes == 0
    assert ID not in world.kubernetes.labels(KEY)


async def test_a_look_of_our_own_at_an_object_that_is_gone_leaves_its_end_to_its_event(world):
    last = seen(carrying(an_object(version="10"), "7"))
    world.events.by_key[KEY] = last
    world.registry.put(record_of(last))
    assert await world.handle(look_later(KEY)) == Ack()
    assert world.registry.only.deployed
    assert world.words == ["noop"]


async def test_a_look_at_an_object_that_the_stream_does_not_know_is_nothing(world):
    world.kubernetes.put(an_object())
    assert await world.handle(look_work()) == Ack()
    assert world.registry.calls.total() == 0
    assert world.words == ["noop"]


async def test_a_look_that_cannot_read_the_object_is_tried_again(world):
    world.events.by_key[KEY] = seen(an_object())
    world.kubernetes.fail("get", UnreachableError("API server away"))
    work = look_work()
    assert isinstance(await world.handle(work), Retry)
    assert work.message.answers == []
    assert world.registry.writes == 0


async def test_a_look_of_our_own_writes_an_id_that_was_too_costly_before(world):
    await world.handle(event_work(an_object(status=READY, version="20")))
    assert ID not in world.kubernetes.labels(KEY)
    asked = world.registry.calls.total()
    rolls = (READY.conditions[0], replace(READY.conditions[1], reason="MinimumReplicasAvailable"))
    one = ModelStatus(copies=ModelCopies(1))
    world.kubernetes.put(an_object(status=replace(READY, conditions=rolls, model_status=one), version="30"))
    assert await world.handle(look_later(KEY)) == Ack()
    assert world.registry.calls.total() == asked
    assert world.kubernetes.labels(KEY)[ID] == world.registry.only.id
    assert world.reconciler.memory.deferred() == 0


async def test_a_permanent_failure_of_a_look_of_our_own_is_buried_too(world):
    await world.handle(event_work(an_object(status=READY, version="20")))
    world.kubernetes.put(an_object(version="30"))
    world.kubernetes.fail("patch", PermanentError("an admission webhook denied it"))
    assert isinstance(await world.handle(look_later(KEY)), Bury)
    assert KEY in world.dead_letters.entries
