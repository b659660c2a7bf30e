"""A server, or what stands before it, that refuses: nothing is lost, nothing counts as deleted, nobody is hammered."""

import asyncio

import httpx
import pytest

from producer.items import Refused
from producer.states import Memory, Wait, Watching
from producer.watch import RETRY_AFTER_MAX_S, step
from tests.eventually import eventually
from tests.integration.producer.scripted import (
    CHATTER,
    END,
    FIN,
    HOLD,
    JSON,
    RESET,
    Response,
    answer,
    error,
    initial,
    listing,
    refusal,
    silent,
    stream,
    watch,
)

TEN_SECONDS_S = 0.2  # all pauses are as much shorter
HTML = "Content-Type: text/html"


EXPIRED = [
    stream("watch", 0, error(410, "Expired"), end=HOLD),
    stream("watch", 0, error(410, "Gone"), end=HOLD),
    stream("watch", 0, error(0, "Expired"), end=HOLD),
    refusal("watch", 410, "Expired"),
]


async def test_R12_R27_410_is_a_list_and_a_comparison(stage, cluster):
    script = [initial(cluster.version, cluster.initial(), cluster.create("d"))]
    expected = ["created 12!"]
    for expired in EXPIRED:
        cluster.recreate("b")
        cluster.modify("a", model=str(cluster.version))
        cluster.delete("d")
        expected += [f"deleted {cluster.version - 2}!", f"created {cluster.version - 2}!"]
        script += [expired, initial(cluster.version, cluster.initial(), cluster.create("d"))]
    await stage.perform(*script, watch(cluster.version, cluster.delete("c"), end=CHATTER))
    assert await stage.said("b") == expected
    assert await stage.said("d") == [
        said for at in (14, 19, 24, 29) for said in (f"created {at}", f"deleted {at + 4}!")
    ] + ["created 34"]
    assert stage.counted("expired") == len(EXPIRED)


OVERLOADED = [
    refusal("watch", 429, "TooManyRequests"),
    refusal("watch", 429, "TooManyRequests", retryAfterSeconds=0),
    refusal("watch", 500, "InternalError"),
    answer("watch", "502 Bad Gateway", HTML, body=b"<html>"),
    answer("watch", "503 Service Unavailable", "Content-Type: text/plain", body=b"no"),
    answer("watch", "504 Gateway Timeout", HTML),
    stream("watch", 0, error(429, "TooManyRequests"), end=HOLD),
    stream("watch", 0, error(500, "InternalError"), end=HOLD),
]


async def test_R13_storms_of_refusals_keep_the_position(stage, cluster):
    script = [initial(cluster.version, cluster.initial(), cluster.modify("a", model="2"))]
    for overloaded in OVERLOADED:
        script += [*[overloaded] * 3, watch(cluster.version, cluster.recreate("b"))]
    await stage.perform(*script, watch(cluster.version, cluster.delete("b"), end=CHATTER))
    assert not [said for said in (await stage.said("b"))[1:] if said.endswith("!")]
    assert stage.counted("throttled") + stage.counted("unavailable") == 3 * len(OVERLOADED)


async def test_R13_retry_after_is_waited_for(stage, cluster):
    in_body = refusal("initial", 429, "TooManyRequests", retryAfterSeconds=1)
    in_header = refusal("watch", 503, "ServiceUnavailable", "Retry-After: 1")
    start = initial(cluster.version, cluster.initial())
    await stage.perform(in_body, start, in_header, watch(cluster.version, cluster.delete("b"), end=CHATTER))
    refused, listed, refused_again, watched = stage.server.asked_at
    assert listed - refused >= 1
    assert watched - refused_again >= 1


def test_R13_a_server_cannot_send_us_away_for_a_day():
    _, effects = step(Watching(Memory(), "5"), Refused(503, retry_after_s=86400.0))
    assert effects[-1] == Wait(1, RETRY_AFTER_MAX_S)


@pytest.mark.parametrize("status", ["200 OK", "502 Bad Gateway"])
async def test_R13_R20_a_body_that_is_not_in_its_encoding_is_a_failure_like_others(stage, cluster, status):
    def unreadable(to):
        return answer(to, status, JSON, "Content-Encoding: gzip", body=b"no gzip")

    await stage.perform(
        refusal("initial", 422, "Invalid"),
        unreadable("list"),
        listing(cluster.version, cluster.page("a", "b", "c")),
        unreadable("watch"),
        watch(cluster.version, cluster.delete("b"), end=CHATTER),
    )
    assert await stage.said("b") == ["created 12!", "deleted 14"]


HTTP_STORMS = {
    "503": answer("", "503 Service Unavailable"),
    "401": refusal("", 401, "Unauthorized"),
    "404": answer("", "404 Not Found", "Content-Type: text/plain", body=b"404 page not found\n"),
    "410": refusal("", 410, "Expired"),
    "a login page": answer("", "200 OK", HTML, body=b"<html>"),
    "200 and the end at once": stream("", 0),
    "200 and garbage": stream("", 0, b"garbage\n"),
    "200 and ERROR 410": stream("", 0, error(410, "Expired")),
    "RST": Response("", b"", (RESET,)),
}


@pytest.mark.parametrize("storm", HTTP_STORMS.values(), ids=HTTP_STORMS)
async def test_R11_R12_R13_R14_R15_ten_seconds_of_failures_see_fewer_than_20_requests(stage, cluster, storm):
    stage.pause_at_most(TEN_SECONDS_S / 10, TEN_SECONDS_S * 3)
    held = asyncio.Event()
    stage.server.script.append(initial(cluster.version, cluster.initial(), held, end=FIN))
    async with stage.producing():
        await stage.settled(4)
        stage.server.storm = storm
        held.set()
        with pytest.raises(TimeoutError):  # the storm lasts so long
            async with asyncio.timeout(TEN_SECONDS_S):
                await asyncio.Event().wait()
        assert 1 < len(stage.server.asked) < 1 + 20
        stage.server.storm, seen = silent(""), len(stage.server.asked)
        await eventually(lambda: len(stage.server.asked) > seen)  # it has not given up
    assert len(await stage.world.events()) == 3


async def test_R14_after_401_the_token_is_read_again_at_once(stage, cluster):
    start = initial(cluster.version, cluster.initial())
    refused = refusal("watch", 401, "Unauthorized")
    rotated = answer("watch", "401 Unauthorized", parts=(lambda: stage.token.write_text("t2"),))
    await stage.perform(start, refused, rotated, watch(cluster.version, cluster.delete("b"), end=CHATTER))
    assert stage.server.authorizations == [f"Authorization: Bearer {token}" for token in ("t1", "t1", "t1", "t2")]
    assert stage.counted("unauthorized") == 1  # the second was repeated before anybody heard of it


@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (403, "Forbidden")])
async def test_R14_R42_without_rights_nothing_counts_as_deleted_and_readiness_says_so(
    stage, cluster, caplog, code, reason
):
    caplog.set_level("INFO")
    start = initial(cluster.version, cluster.initial())
    open_again = asyncio.Event()
    refused = refusal("watch", code, reason)
    later = answer("watch", f"{code} {reason}", parts=(open_again,))
    stage.server.script.extend([start, refused, later, watch(13, cluster.delete("b"), end=CHATTER)])
    async with stage.producing(), httpx.AsyncClient() as http:
        await eventually(lambda: len(stage.server.asked) == 3)
        port = next(record.health_port for record in caplog.records if hasattr(record, "health_port"))
        said = await http.get(f"http://127.0.0.1:{port}/readyz")
        assert said.status_code == 503
        assert f"the watch is not open: {reason.lower()}" in said.text
        assert (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
        assert len(await stage.world.events()) == 3
        open_again.set()
        await eventually(stage.agrees)
        assert (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
    await stage.check()
    assert await stage.said("b") == ["created 12!", "deleted 14"]


NOT_FOUND = ("404 Not Found", "Content-Type: text/plain; charset=utf-8")


@pytest.mark.parametrize("known", [2, 20])
async def test_R15_a_vanished_kind_deletes_nothing_however_few_there_are(stage, cluster, known):
    for number in range(known):
        cluster.create(f"m{number:02}")
    absent = [answer(to, *NOT_FOUND, body=b"404 page not found\n") for to in ("watch", "initial", "initial")]
    start = initial(cluster.version, cluster.initial())
    cluster.delete("b")
    await stage.perform(start, *absent, initial(cluster.version, cluster.initial(), end=CHATTER))
    assert [event.type for event in await stage.world.events()].count("deleted") == 1
    assert stage.counted("absent") == 3


async def test_R15_the_deletes_of_a_vanishing_kind_were_seen(stage, cluster):
    start = initial(cluster.version, cluster.initial(), *[cluster.delete(name) for name in "abc"])
    absent = answer("watch", *NOT_FOUND, body=b"404 page not found\n")
    await stage.perform(start, absent, initial(cluster.version, cluster.initial(), end=CHATTER))
    assert [event.type for event in await stage.world.events()].count("deleted") == 3


REFUSED_WATCH_LIST = {
    "422, the gate is off": refusal("initial", 422, "Invalid"),
    "400": refusal("initial", 400, "BadRequest"),
    "200 and ERROR 500, of an old etcd": stream("initial", 0, error(500, "InternalError"), end=HOLD),
}


@pytest.mark.parametrize("refused", REFUSED_WATCH_LIST.values(), ids=REFUSED_WATCH_LIST)
async def test_R01_R02_without_watch_list_pages_are_read_and_that_is_remembered(stage, cluster, refused):
    pages = [listing(13, cluster.page("a", "b", token="t")), listing(13, cluster.page("c"), "t")]
    cut = watch(13, cluster.delete("b"), cluster.modify("a", model="2"))
    gone = stream("watch", 0, error(410, "Expired"), end=HOLD)
    cluster.create("d")
    again = listing(cluster.version, cluster.page("a", "c", "d"))
    last = watch(cluster.version, cluster.delete("d"), end=CHATTER)
    await stage.perform(refused, *pages, cut, gone, again, last)
    assert stage.server.asked == ["initial", "list", "list t", "watch 13", "watch 0", "list", "watch 16"]
    assert await stage.said("b") == ["created 12!", "deleted 14"]
    assert await stage.said("d") == ["created 16!", "deleted 17"]


@pytest.mark.parametrize("end", [END, FIN, RESET], ids=["clean end", "FIN", "RST"])
async def test_R13_a_connection_that_breaks_before_the_answer_is_tried_again(stage, cluster, end):
    broken = Response("watch", b"", (end,)) if end is not END else Response("watch", b"HTTP/1.1 200 OK\r\n", (FIN,))
    start = initial(cluster.version, cluster.initial())
    await stage.perform(start, broken, broken, watch(cluster.version, cluster.delete("b"), end=CHATTER))
    assert stage.counted("lost") == 2
