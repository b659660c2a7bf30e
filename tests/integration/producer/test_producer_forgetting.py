"""Old tombstones, purged from a real broker."""

import pytest

from producer.forgetting import FORGET_AFTER_S, Forgetter, Forgotten
from producer.inventory import Inventory
from producer.ledger import Ledger
from producer.passes import Epoch
from shared.broker import Broker, BrokerSettings
from shared.errors import PermanentError
from shared.events import Event, EventType, encode
from shared.objects import Kind, ObjectKey
from shared.streams import ensure_consumer, ensure_streams
from shared.subjects import Subjects, shard_of

STREAM = "ISVC_EVENTS"
SUBJECTS = Subjects("isvc", "test", 2)
SEEN_S = 1_796_040_000
LATER_S = SEEN_S + FORGET_AFTER_S
A, B = ObjectKey(Kind.ISVC, "ns", "a"), ObjectKey(Kind.ISVC, "ns", "b")


class Stage:
    """A broker, an inventory read from it, and one who forgets."""

    def __init__(self, broker):
        self.broker = broker
        self.js = broker.jetstream
        self.ledger = Ledger(broker.client, broker.jetstream, STREAM, SUBJECTS)
        self.inventory = Inventory(Epoch(1000))
        self.leads = True
        self.forgetter = Forgetter(self.ledger, lambda: self.leads, now=lambda: LATER_S)

    async def say(self, key, version, what=EventType.UPDATED, uid=""):
        seen = "2026-11-30T12:00:00Z"
        event = Event(what, key, uid or f"uid-{key.name}", 1000, str(version), f"v1:{version:08}", (), "us", seen)
        return (await self.js.publish(SUBJECTS.event(key), b"{}", headers=encode(event))).seq

    async def bury(self, key, *, look=True):
        """Create, look at and delete an object; return the tombstone's sequence."""
        await self.say(key, 1, EventType.CREATED)
        if look:
            await self.js.publish(SUBJECTS.look(key), b"")
        return await self.say(key, 2, EventType.DELETED)

    async def consume(self, *keys, leave=0):
        """Take what is there for the shards of these objects, but for the last ones."""
        for shard in {shard_of(key, SUBJECTS.shards) for key in keys}:
            durable = await ensure_consumer(self.js, SUBJECTS, shard)
            pending = (await self.js.consumer_info(STREAM, durable)).num_pending - leave
            pull = await self.js.pull_subscribe_bind(durable=durable, stream=STREAM)
            for message in await pull.fetch(pending, timeout=5):
                await message.ack_sync()
            await pull.unsubscribe()

    async def read(self):
        holdings = await self.ledger.holdings(Kind.ISVC, "us")
        self.inventory.reload(holdings.entries)

    async def forget(self):
        await self.read()
        return await self.forgetter.forget(self.inventory)

    async def stored(self, key):
        """How many messages there are of an object's events and looks."""
        state = (await self.js.stream_info(STREAM, subjects_filter=">")).state.subjects or {}
        return state.get(SUBJECTS.event(key), 0), state.get(SUBJECTS.look(key), 0)


@pytest.fixture
async def stage(broker_server):
    settings = BrokerSettings(nats_url=(broker_server.url,), shards=SUBJECTS.shards)
    async with Broker(settings, on_closed=lambda: None) as broker:
        await ensure_streams(broker.jetstream, settings)
        yield Stage(broker)


async def test_an_old_delete_that_was_taken_is_forgotten_by_the_broker_and_the_inventory(stage):
    await stage.bury(A)
    await stage.say(B, 3, uid="u2")
    await stage.consume(A, B)
    assert await stage.forget() == Forgotten(1, 0)
    assert await stage.stored(A) == (0, 0)
    assert list(stage.inventory.entries) == [B]
    assert list((await stage.ledger.holdings(Kind.ISVC, "us")).entries) == [B]


async def test_a_delete_that_is_not_old_stays(stage):
    await stage.bury(A)
    await stage.consume(A)
    stage.forgetter = Forgetter(stage.ledger, lambda: True, now=lambda: LATER_S - 1)
    assert await stage.forget() == Forgotten(0, 0)
    assert await stage.stored(A) == (2, 1)


async def test_a_delete_that_no_consumer_has_taken_is_kept_and_counted(stage):
    await stage.bury(A)
    await stage.consume(A, leave=1)
    assert await stage.forget() == Forgotten(0, 1)
    assert await stage.stored(A) == (2, 1)
    assert stage.inventory.entries[A].deleted


async def test_a_shard_without_a_durable_has_taken_nothing(stage):
    await stage.bury(A)
    assert await stage.forget() == Forgotten(0, 1)
    assert await stage.stored(A) == (2, 1)


async def test_a_durable_that_has_just_been_made_has_taken_nothing(stage):
    await stage.bury(A)
    await ensure_consumer(stage.js, SUBJECTS, shard_of(A, SUBJECTS.shards))
    assert await stage.forget() == Forgotten(0, 1)


async def test_each_shard_is_asked_for_itself(stage):
    keys = [ObjectKey(Kind.ISVC, "ns", name) for name in "abcdefgh"]
    taken = [key for key in keys if shard_of(key, SUBJECTS.shards) == 0]
    assert 0 < len(taken) < len(keys)
    for key in keys:
        await stage.bury(key)
    await stage.consume(taken[0])
    assert await stage.forget() == Forgotten(len(taken), len(keys) - len(taken))
    assert set(stage.inventory.entries) == set(keys) - set(taken)


async def test_what_was_created_again_between_decision_and_purge_survives(stage):
    await stage.bury(A)
    await stage.consume(A)
    await stage.read()
    again = await stage.say(A, 9, EventType.CREATED, uid="u2")
    assert await stage.forgetter.forget(stage.inventory) == Forgotten(1, 0)
    last = await stage.ledger.last(A)
    assert (last.sequence, await stage.stored(A)) == (again, (1, 0))


async def test_a_look_that_came_after_the_delete_stays(stage):
    await stage.bury(A)
    await stage.js.publish(SUBJECTS.look(A), b"")
    await stage.consume(A)
    await stage.forget()
    assert await stage.stored(A) == (0, 1)


async def test_a_second_purge_is_harmless(stage):
    tombstone = await stage.bury(A)
    await stage.consume(A)
    await stage.forget()
    again = await stage.say(A, 9, EventType.CREATED, uid="u2")
    await stage.ledger.purge(A, tombstone)
    assert (await stage.ledger.last(A)).sequence == again
    assert await stage.forget() == Forgotten(0, 0)


async def test_who_leads_no_more_purges_nothing(stage):
    await stage.bury(A)
    await stage.consume(A)
    stage.leads = False
    assert await stage.forget() == Forgotten(0, 0)
    assert await stage.stored(A) == (2, 1)


async def test_the_lead_is_asked_for_before_each_purge(stage):
    keys = [ObjectKey(Kind.ISVC, "ns", name) for name in "abcd"]
    for key in keys:
        await stage.bury(key)
    await stage.consume(*keys)
    answers = iter([True, True, False])
    stage.forgetter = Forgetter(stage.ledger, lambda: next(answers), now=lambda: LATER_S)
    assert await stage.forget() == Forgotten(2, 0)
    assert len(stage.inventory.entries) == 2


async def test_a_stream_that_is_not_there_is_an_error(stage):
    await stage.bury(A)
    await stage.consume(A)
    await stage.read()
    await stage.js.delete_stream(STREAM)
    with pytest.raises(PermanentError):
        await stage.ledger.purge(A, 3)
