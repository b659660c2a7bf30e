"""Every way in which a watch can break, byte by byte: afterwards the stream says what the cluster holds."""

import asyncio

import msgspec
import pytest

from producer.reading import LINE_BYTES_MAX
from tests.eventually import eventually
from tests.integration.producer.scripted import (
    CHATTER,
    END,
    FIN,
    HOLD,
    RESET,
    error,
    initial,
    silent,
    stream,
    watch,
)
from tests.unit.producer.observed import line, raw

ENDS = pytest.mark.parametrize("end", [END, FIN, RESET], ids=["clean end", "FIN", "RST"])


@ENDS
async def test_R11_a_stream_may_end_in_any_way_after_an_event(stage, cluster, end):
    await stage.perform(
        initial(cluster.version, cluster.initial(), cluster.modify("a", model="2"), end=end),
        watch(cluster.version, cluster.delete("b"), end=end),
        watch(cluster.version, cluster.create("d"), end=CHATTER),
    )
    assert await stage.said("a") == ["created 11!", "updated 14"]
    assert await stage.said("b") == ["created 12!", "deleted 15"]
    assert stage.counted("closed" if end == END else "lost") == 2


@ENDS
async def test_R11_R17_half_a_line_is_no_event_and_comes_again(stage, cluster, end):
    first = initial(cluster.version, cluster.initial(), end=HOLD)
    before, gone = cluster.version, cluster.delete("b")
    cut = msgspec.structs.replace(first, parts=(*first.parts[:-1], _chunked(gone[:90]), end))
    await stage.perform(cut, watch(before, gone, cluster.modify("a"), end=CHATTER))
    assert await stage.said("b") == ["created 12!", "deleted 14"]
    assert stage.counted("malformed") == 0


def _chunked(data):
    return watch(0, data).parts[0]


async def test_R09_a_bookmark_moves_the_position_and_is_never_an_event(stage, cluster):
    await stage.perform(
        initial(cluster.version, cluster.initial(), cluster.bookmark(), cluster.bookmark()),
        watch(cluster.version, cluster.modify("a"), end=CHATTER),
    )
    assert stage.server.positions == [15]
    assert len(await stage.world.events()) == 4


async def test_R10_silence_goes_on_from_the_position_without_a_list(stage, cluster):
    stage.lose_patience_after(0.3)
    await stage.perform(
        initial(cluster.version, cluster.initial(), cluster.modify("a"), end=HOLD),
        watch(cluster.version, cluster.delete("b"), end=CHATTER),
    )
    assert stage.counted("silent") == 1
    assert stage.server.asked == ["initial", "watch 14"]


async def test_R10_R20_headers_that_never_come_are_silence(stage, cluster):
    stage.lose_patience_after(0.3)
    await stage.perform(
        silent("initial"),
        initial(cluster.version, cluster.initial()),
        silent("watch"),
        watch(cluster.version, cluster.delete("b"), end=CHATTER),
    )
    assert stage.counted("silent") == 2


async def test_R10_R16_a_server_that_stays_silent_at_a_position_is_listed(stage, cluster):
    stage.lose_patience_after(0.3)
    first = initial(cluster.version, cluster.initial(), end=HOLD)
    again = watch(cluster.version, end=HOLD)
    cluster.delete("b")
    await stage.perform(first, again, initial(cluster.version, cluster.initial(), end=CHATTER))
    assert await stage.said("b") == ["created 12!", "deleted 14!"]


BAD_LINES = {
    "garbage": b"\xff\x00{]\n",
    "cut JSON": b'{"type":"DELETED","object":{"metadata":{"name":"b"\n',
    "no object": b'{"type":"DELETED"}\n',
    "object null": b'{"type":"DELETED","object":null}\n',
    "a Status without event": msgspec.json.encode({"kind": "Status", "code": 401, "reason": "Unauthorized"}) + b"\n",
    "unknown type": line("RENAMED", {"metadata": {"name": "b"}}) + b"\n",
    "no uid": line("DELETED", {"metadata": {"name": "b", "namespace": "ns", "resourceVersion": "14"}}) + b"\n",
    "no metadata": line("DELETED", {"spec": {}}) + b"\n",
    "bookmark without position": line("BOOKMARK", {"metadata": {}}) + b"\n",
    "ERROR without Status": line("ERROR", {"code": "x"}) + b"\n",
    "ERROR 400": error(400, "BadRequest"),
    "ERROR without code": line("ERROR", {}) + b"\n",
    "HTML in the stream": b"<html><body>Bad Gateway</body></html>\n",
}


async def test_R17_R18_a_bad_line_in_place_of_a_delete_is_asked_for_again(stage, cluster):
    script = [initial(cluster.version, cluster.initial(), cluster.modify("a", model="2"))]
    expected = ["created 12!"]
    for bad in BAD_LINES.values():
        before, gone, back = cluster.version, cluster.delete("b"), cluster.create("b")
        script += [watch(before, bad + back, end=HOLD), watch(before, gone, back)]
        expected += [f"deleted {before + 1}", f"created {before + 2}"]
    await stage.perform(*script, watch(cluster.version, cluster.delete("b"), end=CHATTER))
    assert await stage.said("b") == [*expected, f"deleted {cluster.version}"]
    assert sum(map(stage.counted, ("malformed", "unidentified", "refused"))) == len(BAD_LINES)


@pytest.mark.parametrize("bad", [BAD_LINES["garbage"], BAD_LINES["no uid"]], ids=["garbage", "no uid"])
async def test_R17_a_line_that_stays_bad_is_listed(stage, cluster, bad):
    first, before = cluster.initial(), cluster.version
    cluster.delete("b")
    after = cluster.modify("a", model="2")
    await stage.perform(
        initial(before, first, bad + after, end=HOLD),
        watch(before, bad, after, end=HOLD),
        initial(cluster.version, cluster.initial(), end=CHATTER),
    )
    assert await stage.said("b") == ["created 12!", "deleted 15!"]
    assert await stage.said("a") == ["created 11!", "updated 15!"]


async def test_R18_R36_lines_up_to_the_cap_are_events_and_managed_fields_stay_out(stage, cluster):
    start = initial(cluster.version, cluster.initial())
    sizes = [1_000_000, 5_000_000, LINE_BYTES_MAX - 2000]
    lines = [cluster.modify("a", model=str(number), managedFields=["x" * size]) for number, size in enumerate(sizes)]
    await stage.perform(start, watch(13, *lines, end=CHATTER))
    assert await stage.said("a") == ["created 11!", "updated 14", "updated 15", "updated 16"]
    assert max(len(message.data) for message in await stage.world.messages()) < 2000


async def test_R18_a_line_beyond_the_cap_is_never_held_and_the_state_is_listed(stage, cluster):
    first, before = cluster.initial(), cluster.version
    endless = [b"x" * (LINE_BYTES_MAX // 4)] * 5
    cluster.delete("b")
    await stage.perform(
        initial(before, first, *endless, end=HOLD),
        watch(before, *endless, end=HOLD),
        initial(cluster.version, cluster.initial(), end=CHATTER),
    )
    assert stage.counted("malformed") == 2
    assert await stage.said("b") == ["created 12!", "deleted 14!"]


def one_byte_each(lines):
    return [bytes([byte]) for byte in b"".join(lines)]


def all_in_one(lines):
    return [b"".join(lines)]


def with_crlf(lines):
    return [one.replace(b"\n", b"\r\n") for one in lines]


def with_keep_alive(lines):
    return [b"\n", b"\r\n\n", *(part for one in lines for part in (b"\n", one[:30], one[30:], b"\r\n"))]


@pytest.mark.parametrize("cut", [one_byte_each, all_in_one, with_crlf, with_keep_alive])
async def test_R19_however_the_bytes_are_cut_the_events_are_the_same(stage, cluster, cut):
    first, before = cluster.initial(), cluster.version
    text = "grüße, 世界 🎉"
    lines = [
        cluster.modify("a", model="2", annotations={"serving.kserve.io/x": text}),
        cluster.delete("b"),
        cluster.create("b", annotations={"serving.kserve.io/x": text}),
    ]
    await stage.perform(initial(before, *cut([first])), watch(before, *cut(lines), end=CHATTER))
    assert await stage.said("a") == ["created 11!", "updated 14"]
    assert await stage.said("b") == ["created 12!", "deleted 15", "created 16"]
    assert text in (await stage.world.last("b")).data.decode()


async def test_R20_a_login_page_with_status_200_is_no_stream_and_no_list(stage, cluster):
    html = ("Content-Type: text/html; charset=utf-8",)
    cached = line("ADDED", raw("ghost", version=12)) + b"\n"
    page = cached + b"<html><body>Please log in</body></html>\n"
    await stage.perform(
        stream("initial", 0, page, headers=html),
        initial(cluster.version, cluster.initial()),
        stream("watch", 0, page, headers=html),
        watch(cluster.version, cluster.delete("b"), end=CHATTER),
    )
    assert stage.counted("malformed") == 2
    assert await stage.said("b") == ["created 12!", "deleted 14"]


async def test_R22_a_thousand_reconnects_leak_no_socket(stage, cluster):
    stage.pause_at_most(0.0)
    ends = [END, FIN, END, FIN, FIN, RESET]
    start = initial(cluster.version, cluster.initial())
    script = [
        watch(cluster.version, cluster.bookmark(), b"half a line" * (number % 2), end=ends[number % 6])
        for number in range(1000)
    ]
    last = watch(cluster.version, cluster.delete("b"), end=CHATTER)
    stage.server.script.extend([start, *script, last])
    async with stage.producing():
        await eventually(lambda: stage.server.finished or stage.server.wrong, within_s=30.0)
        await eventually(stage.agrees)
        assert stage.server.open <= 3  # the stream, the connection for control calls, and one that waits for reuse
    assert len(stage.server.asked) == 1002
    assert len(stage.server.connections) > 500
    await stage.check()


async def test_R25_R28_R29_live_deletes_are_published_as_they_happen(stage, cluster):
    await stage.perform(
        initial(
            cluster.version,
            cluster.initial(),
            cluster.modify("a", model="1", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f"]),
            cluster.modify("a", model="1", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=[]),
            cluster.recreate("a", model="2"),
            cluster.recreate("b"),
            end=CHATTER,
        )
    )
    assert await stage.said("a") == ["created 11!", "updated 14", "deleted 16", "created 17"]
    assert await stage.said("b") == ["created 12!", "deleted 18", "created 19"]


async def test_R33_a_watch_resumes_behind_the_last_acknowledged_event(stage, cluster):
    held = asyncio.Event()
    start = initial(cluster.version, cluster.initial(), cluster.modify("a", model="2"), held)
    version = cluster.version
    cluster.history.clear()  # the server repeats nothing: the position must be exactly this
    stage.server.script.extend([start, watch(version, cluster.delete("b"), end=CHATTER)])
    async with stage.producing():
        await stage.settled(5)
        stage.server._floor = version
        held.set()
        await eventually(stage.agrees)
    await stage.check()


async def test_R33_R34_what_the_broker_did_not_acknowledge_is_asked_for_again_and_nothing_is_coalesced(stage, cluster):
    held = asyncio.Event()
    start = initial(cluster.version, cluster.initial(), held, cluster.modify("a", model="2"), cluster.recreate("a"))
    last = watch(cluster.version, cluster.delete("b"), end=CHATTER)
    stage.server.script.extend([start, last])
    async with stage.producing():
        await stage.settled(4)
        stage.world.broker.pause()
        held.set()
        await eventually(lambda: stage.server.finished)
        stage.world.broker.resume()
        await eventually(stage.agrees)
    assert stage.server.positions == [13]
    await stage.check()
    assert await stage.said("a") == ["created 11!", "updated 14", "deleted 15", "created 16"]


async def test_R32_while_the_broker_hangs_the_socket_is_not_read(stage, cluster):
    held = asyncio.Event()
    before = initial(cluster.version, cluster.initial(), held)
    lines = [cluster.create(f"m{number:04}", managedFields=["x" * 20_000]) for number in range(800)]
    flood = watch(13, *lines)
    stage.server.script.extend([before, flood, watch(cluster.version, cluster.delete("b"), end=CHATTER)])
    async with stage.producing():
        await stage.settled(4)
        stage.world.broker.pause()
        held.set()
        await eventually(lambda: stage.server.blocked)
        assert len(stage.server.script) == 1  # the flood has not been taken
        stage.world.broker.resume()
        await eventually(lambda: stage.server.finished)
        await stage.settled(4 + 800 + 1)
    assert stage.server.wrong == []
    js = await stage.world.js()
    assert (await js.stream_info("ISVC_EVENTS")).state.messages == 805
