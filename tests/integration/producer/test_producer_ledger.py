"""The inventory, read back from a real broker."""

import msgspec
import pytest

from producer.changes import Entry
from producer.ledger import Ledger
from shared.broker import Broker, BrokerSettings
from shared.errors import PermanentError, RefusedToStartError
from shared.events import Event, EventType, SyncMarker, encode, encode_marker
from shared.objects import Kind, ObjectKey
from shared.streams import ensure_streams
from shared.subjects import Subjects
from tests.eventually import eventually

SUBJECTS = Subjects("isvc", "test", 4)
SEEN = "2026-11-30T12:00:00.250Z"
SEEN_S = 1_796_040_000


def event(name, version, what=EventType.UPDATED, **changes):
    key = ObjectKey(Kind.ISVC, "ns", name)
    made = Event(what, key, f"uid-{name}", 1000, str(version), f"v1:{version:08}", ("1",), "us", SEEN)
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
async def broker(broker_server):
    settings = BrokerSettings(nats_url=(broker_server.url,), shards=4)
    async with Broker(settings, on_closed=lambda: None) as broker:
        await ensure_streams(broker.jetstream, settings)
        yield broker


@pytest.fixture
def ledger(broker):
    return Ledger(broker.client, broker.jetstream, "ISVC_EVENTS", SUBJECTS)


async def publish(broker, *events):
    for one in events:
        await broker.jetstream.publish(SUBJECTS.event(one.key), b"{}", headers=encode(one))


async def test_an_empty_stream_holds_nothing(ledger):
    holdings = await ledger.holdings(Kind.ISVC, "us")
    assert (holdings.entries, holdings.marker, holdings.epoch) == ({}, None, 0)


async def test_the_last_event_of_each_object_of_the_kind_is_the_inventory(broker, ledger):
    other = event("x", 5, key=ObjectKey(Kind.LLMISVC, "ns", "x"))
    deleted = event("b", 7, EventType.DELETED, models=("1", "9"))
    await publish(broker, event("a.b", 1), event("a.b", 2), other, deleted)
    holdings = await ledger.holdings(Kind.ISVC, "us")
    assert holdings.entries == {
        ObjectKey(Kind.ISVC, "ns", "a.b"): Entry("uid-a.b", 1000, "2", "v1:00000002", ("1",), 0, 2),
        ObjectKey(Kind.ISVC, "ns", "b"): Entry("uid-b", 1000, "7", "v1:00000007", ("1", "9"), SEEN_S, 4),
    }


async def test_more_objects_than_a_batch_are_read_completely_and_no_reader_stays_behind(broker, ledger):
    for number in range(2500):
        one = event(f"m{number}", 1)
        await broker.client.publish(SUBJECTS.event(one.key), b"{}", headers=encode(one))
    await eventually(lambda: _holds(broker, 2500))
    assert len((await ledger.holdings(Kind.ISVC, "us")).entries) == 2500
    assert (await broker.jetstream.stream_info("ISVC_EVENTS")).state.consumer_count == 0


async def _holds(broker, count):
    return (await broker.jetstream.stream_info("ISVC_EVENTS")).state.messages == count


async def test_the_epoch_is_the_highest_of_events_and_marker(broker, ledger):
    await publish(broker, event("a", 1), event("b", 1, epoch=1005))
    assert (await ledger.holdings(Kind.ISVC, "us")).epoch == 1005
    headers, body = encode_marker(SyncMarker((), "9", 1010), kind=Kind.ISVC, cluster_id="us", time="now")
    await broker.jetstream.publish(SUBJECTS.sync(Kind.ISVC), body, headers=headers)
    holdings = await ledger.holdings(Kind.ISVC, "us")
    assert (holdings.epoch, holdings.marker) == (1010, SyncMarker((), "9", 1010))


async def test_another_clusters_event_under_our_name_is_refused_with_both_ids(broker, ledger):
    await publish(broker, event("a", 1, cluster_id="them"))
    with pytest.raises(RefusedToStartError, match=r"cluster them, and this is the cluster us: set CLUSTER_NAME"):
        await ledger.holdings(Kind.ISVC, "us")


async def test_another_clusters_marker_under_our_name_is_refused(broker, ledger):
    headers, body = encode_marker(SyncMarker((), "9", 1010), kind=Kind.ISVC, cluster_id="them", time="now")
    await broker.jetstream.publish(SUBJECTS.sync(Kind.ISVC), body, headers=headers)
    with pytest.raises(RefusedToStartError, match="them"):
        await ledger.holdings(Kind.ISVC, "us")


async def test_what_does_not_decode_is_counted_and_the_others_are_read(broker, ledger, caplog):
    await broker.jetstream.publish("isvc.test.evt.0.isvc.ns.bad", b"?", headers={"ce-id": "x"})
    await publish(broker, event("a", 1))
    holdings = await ledger.holdings(Kind.ISVC, "us")
    assert (len(holdings.entries), holdings.undecodable) == (1, 1)
    assert "isvc.test.evt.0.isvc.ns.bad" in str([vars(record) for record in caplog.records])


async def test_the_inventory_of_a_namespace_holds_only_its_objects(broker, ledger):
    namespaces = ("ns", "ns.b", "ns2")
    there = [event("a", 1, uid=namespace, key=ObjectKey(Kind.ISVC, namespace, "a")) for namespace in namespaces]
    await publish(broker, *there, event("x", 5, key=ObjectKey(Kind.LLMISVC, "ns.b", "x")))
    holdings = await ledger.holdings(Kind.ISVC, "us", "ns.b")
    assert list(holdings.entries) == [ObjectKey(Kind.ISVC, "ns.b", "a")]


@pytest.mark.parametrize("time", ["now", "", "2026-11-30T12:00:00", "1970-01-01T00:00:00Z"])
async def test_a_delete_without_a_moment_is_counted_as_undecodable(broker, ledger, time):
    await publish(broker, event("a", 1, EventType.DELETED, time=time), event("b", 1, time=time))
    holdings = await ledger.holdings(Kind.ISVC, "us")
    assert ([key.name for key in holdings.entries], holdings.undecodable) == (["b"], 1)


async def test_the_last_message_of_an_object_is_found_or_it_is_none(broker, ledger):
    await publish(broker, event("a", 1), event("a", 2))
    stored = await ledger.last(ObjectKey(Kind.ISVC, "ns", "a"))
    assert stored is not None
    assert (stored.sequence, stored.body) == (2, b"{}")
    assert await ledger.last(ObjectKey(Kind.ISVC, "ns", "other")) is None


async def test_a_stream_that_is_not_there_is_an_error_and_not_an_empty_inventory(broker):
    ledger = Ledger(broker.client, broker.jetstream, "NO_STREAM", SUBJECTS)
    with pytest.raises(PermanentError):
        await ledger.holdings(Kind.ISVC, "us")
