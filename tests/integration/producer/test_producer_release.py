"""What the mass-delete guard holds is told by the leader, and released by a person; what the watch missed is found."""

from contextlib import asynccontextmanager

import msgspec

from producer import relay
from producer.items import Bookmark, Seen
from producer.reading import Reader
from shared.broker import Broker
from shared.events import decode
from shared.holds import HoldClient, Outcome
from shared.objects import Kind
from shared.subjects import Subjects
from shared.telemetry import Telemetry, TelemetrySettings
from tests.integration.producer.worlds import eventually, isvc, running, told

PATIENT_S = 20.0
CRD = "inferenceservices.serving.kserve.io"


@asynccontextmanager
async def asking(world):
    broker = Broker(world.settings.broker, on_closed=lambda: None)
    await broker.connect()
    try:
        yield HoldClient(broker, Subjects("isvc", "test", world.settings.broker.shards))
    finally:
        await broker.close()


async def holds(client):
    return [hold for answer in await client.ask() for hold in answer.holds]


async def release(client, hold):
    return await client.release(hold.id, [answer.holder for answer in await client.ask()])


async def published(world, count):
    for number in range(count):
        world.cluster.create(isvc(f"m{number}"))
    async with world.producing():
        pass


async def test_R30_a_hold_names_what_it_holds_and_a_release_lets_the_next_list_delete_it(world, caplog):
    await published(world, 8)
    for number in range(8):
        world.cluster.delete("InferenceService", "ns", f"m{number}")
    async with running(world, "held until a second list", caplog), asking(world) as client:
        (hold,) = await holds(client)
        assert (hold.by, hold.kind, hold.count, hold.known) == ("producer", "isvc", 8, 8)
        assert "no object is left" in hold.why
        assert hold.sample[0] == "ns/m0"
        assert "isvc-sync release" in caplog.text
        assert set((await told(world)).values()) == {"created"}
        assert await release(client, hold) is Outcome.RELEASED
        await eventually(lambda: _all_deleted(world), within_s=PATIENT_S)
        await eventually(lambda: _nothing_held(client), within_s=PATIENT_S)


async def _all_deleted(world):
    return set((await told(world)).values()) == {"deleted"}


async def _nothing_held(client):
    return await holds(client) == []


async def test_R30_what_lives_again_before_the_release_is_not_deleted(world, caplog, monkeypatch):
    monkeypatch.setattr(relay, "GUARD_AGAIN_S", 60.0)
    await published(world, 8)
    for number in range(8):
        world.cluster.delete("InferenceService", "ns", f"m{number}")
    async with running(world, "held until a second list", caplog), asking(world) as client:
        (hold,) = await holds(client)
        world.cluster.create(isvc("m0"))
        await eventually(lambda: _said_is(world, "m0", ["created", "deleted", "created"]), within_s=PATIENT_S)
        await release(client, hold)
        await eventually(lambda: _said_is(world, "m1", ["created", "deleted"]), within_s=PATIENT_S)
        assert (await told(world))["ns/m0"] == "created"


async def _said_is(world, name, expected):
    return await world.said(name) == expected


async def test_R15_a_kind_that_is_no_longer_installed_is_deleted_by_a_person_only(world, caplog):
    await published(world, 2)
    for number in range(2):
        world.cluster.delete("InferenceService", "ns", f"m{number}")
    world.cluster.delete("CustomResourceDefinition", "", CRD)
    async with running(world, "not installed", caplog), asking(world) as client:
        await eventually(lambda: _some_held(client), within_s=PATIENT_S)
        (hold,) = await holds(client)
        assert "not installed" in hold.why
        assert set((await told(world)).values()) == {"created"}
        assert await release(client, hold) is Outcome.RELEASED
        await eventually(lambda: _all_deleted(world), within_s=PATIENT_S)


async def _some_held(client):
    return await holds(client) != []


async def test_R41_what_the_watch_has_missed_is_found_counted_and_published(world, caplog, monkeypatch):
    read, lost = Reader.line, ["unheard"]

    def deaf(reader, line):
        """Hear the position of an event, but not what it says, once: as from a server that loses one."""
        item = read(reader, line)
        if isinstance(item, Seen) and item.object.key.name in lost:
            lost.remove(item.object.key.name)
            return Bookmark(item.object.resource_version)
        return item

    monkeypatch.setattr(Reader, "line", deaf)
    world.settings = msgspec.structs.replace(world.settings, audit_interval_s=1)
    telemetry = Telemetry(TelemetrySettings(), role="producer")
    monkeypatch.setattr("tests.integration.producer.worlds.Telemetry", lambda *_, **__: telemetry)
    async with world.producing():
        world.cluster.create(isvc("unheard"))
        world.cluster.create(isvc("heard"))
        await eventually(lambda: "has missed changes" in caplog.text, within_s=PATIENT_S)
        await eventually(lambda: _said_is(world, "unheard", ["created"]), within_s=PATIENT_S)
        text = telemetry.scrape()[1].decode()
        assert 'isvc_sync_watch_missed_total{kind="isvc",type="created"} 1.0' in text
        assert "ns/unheard" in str([record.__dict__.get("objects") for record in caplog.records])


async def test_R41_a_watch_that_stands_still_is_stuck_and_what_it_has_missed_is_published(world, caplog, monkeypatch):
    read, stands = Reader.line, {}
    monkeypatch.setattr("producer.audit.REACH_S", 3.0)

    def deaf(reader, line):
        """From the first event on hear only bookmarks that stand still, until somebody says so."""
        item = read(reader, line)
        if reader.kind is not Kind.ISVC or "does not come to" in caplog.text:
            return item
        if isinstance(item, Seen) or "at" in stands:
            return Bookmark(stands.setdefault("at", stands["heard"]))
        stands["heard"] = item.resource_version
        return item

    monkeypatch.setattr(Reader, "line", deaf)
    world.settings = msgspec.structs.replace(world.settings, audit_interval_s=1)
    telemetry = Telemetry(TelemetrySettings(), role="producer")
    monkeypatch.setattr("tests.integration.producer.worlds.Telemetry", lambda *_, **__: telemetry)
    async with world.producing():
        await eventually(lambda: "heard" in stands, within_s=PATIENT_S)
        world.cluster.create(isvc("unheard"))
        await eventually(lambda: "does not come to" in caplog.text, within_s=PATIENT_S)
        await eventually(lambda: _said_is(world, "unheard", ["created"]), within_s=PATIENT_S)
        text = telemetry.scrape()[1].decode()
        assert 'isvc_sync_watch_restarts_total{kind="isvc",reason="stuck"} 1.0' in text
        assert 'isvc_sync_watch_missed_total{kind="isvc",type="created"} 1.0' in text
        assert 'isvc_sync_relist_synthetic_events_total{kind="isvc",type="created"} 1.0' in text
        said = [record.levelname for record in caplog.records if "does not come to" in record.getMessage()]
        assert said == ["WARNING"]


async def test_old_deletes_leave_the_stream_when_consumers_have_taken_them(world):
    world.cluster.create(isvc("stays"))
    world.cluster.create(isvc("goes"))
    world.settings = msgspec.structs.replace(world.settings, forget_after_s=1)
    js = await world.js()
    async with world.producing():
        subjects = Subjects("isvc", "test", world.settings.broker.shards)
        for shard in range(4):
            durable, filtered = subjects.durable(shard), f"isvc.test.*.{shard}.>"
            await js.subscribe(filtered, durable=durable, stream="ISVC_EVENTS", cb=_taken, manual_ack=False)
        world.cluster.delete("InferenceService", "ns", "goes")
        await eventually(lambda: _last_is(world, "goes", None), within_s=PATIENT_S)
        assert await _last_is(world, "stays", "created")
        world.cluster.create(isvc("goes"))
        await eventually(lambda: _last_is(world, "goes", "created"), within_s=PATIENT_S)


async def _last_is(world, name, expected):
    message = await world.last(name)
    return (decode(message.headers).type.value if message is not None else None) == expected


async def _taken(message):
    pass
