"""The adapter against a server that says exactly these bytes: what the socket brings becomes items."""

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager

import httpx
import pytest

from producer.items import Bookmark, Closed, Lost, Malformed, Page, Refused, Seen, Silent
from producer.kube import Clients, WatchApi
from shared.errors import UnreachableError
from shared.objects import Kind, ObjectKey
from tests.eventually import eventually
from tests.unit.producer.observed import READER, line, raw

JSON = "Content-Type: application/json"
EVENT = line("ADDED", raw()) + b"\n"
BOOKMARK = line("BOOKMARK", {"metadata": {"resourceVersion": "77"}}) + b"\n"
SILENCE, RESET = "silence", "reset"


def answer(status="200 OK", *headers, body=b""):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *(headers or (JSON,)), "", ""]
    return "\r\n".join(lines).encode() + body


def chunk(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(*parts, end=b"0\r\n\r\n"):
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{JSON}\r\n\r\n".encode()
    return [head, *(part if isinstance(part, str) else chunk(part) for part in parts), end]


def listing(version):
    return b'{"kind":"InferenceServiceList","metadata":{"resourceVersion":"%s"},"items":[]}' % version.encode()


class Script:
    """What the server says on each connection, and what it was asked."""

    def __init__(self):
        self.parts: list[bytes | str] = []
        self.version = "9"  # what a list says that only asks for it
        self.requests: list[str] = []
        self.open = 0
        self.most_open = 0

    async def serve(self, reader, writer):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            target = head.split(b" ")[1].decode()
            if httpx.URL(target).params.get("limit") == "1":
                writer.write(answer(body=listing(self.version)))
                return
            self.requests.append(target)
            for part in self.parts:
                if part == SILENCE:
                    await reader.read()  # until the client goes
                    return
                if part == RESET:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def api_for(script, *, silence_s=5.0):
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    timeout = httpx.Timeout(5.0, read=silence_s)
    async with server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=timeout) as http:
        yield WatchApi(READER, Clients(http, http))


async def watched(script, *, silence_s=5.0):
    async with api_for(script, silence_s=silence_s) as api:
        return [item async for batch in api.watch("5") for item in batch]


def kinds(items):
    return [type(item) for item in items]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(stream(EVENT, BOOKMARK), [Seen, Bookmark, Closed], id="R11 clean end"),
        pytest.param(stream(EVENT + BOOKMARK + EVENT), [Seen, Bookmark, Seen, Closed], id="R19 many events in a chunk"),
        pytest.param(stream(EVENT[:40], EVENT[40:]), [Seen, Closed], id="R19 an event in two chunks"),
        pytest.param(stream(b"\n", b"\r\n", EVENT), [Seen, Closed], id="R19 keep-alive lines"),
        pytest.param(stream(EVENT, EVENT[:40]), [Seen, Closed], id="half a line, then a clean end"),
        pytest.param(stream(EVENT, end=RESET), [Seen, Lost], id="RST in the body"),
        pytest.param(stream(EVENT, end=b""), [Seen, Lost], id="FIN in the body"),
        pytest.param([RESET], [Lost], id="RST before the answer"),
        pytest.param(stream(EVENT[:40] + b"\n", EVENT), [Malformed, Seen, Closed], id="R17 a malformed line"),
        pytest.param([answer(body=EVENT)], [Seen, Closed], id="a body of known length"),
        pytest.param([answer(body=b"")], [Closed], id="200 and nothing"),
        pytest.param(
            [answer("200 OK", "Content-Type: text/html", body=b"<html>")], [Malformed], id="R20 a proxy's page"
        ),
        pytest.param(
            [answer("404 Not Found", "Content-Type: text/plain", body=b"404 page not found")], [Refused], id="F20"
        ),
        pytest.param([b"garbage\r\n\r\n"], [Lost], id="no HTTP"),
    ],
)
async def test_a_watch_becomes_items(parts, expected):
    script = Script()
    script.parts = parts
    assert kinds(await watched(script)) == expected


async def test_R16_no_watch_is_opened_on_a_server_that_is_behind():
    script = Script()
    script.version, script.parts = "99", stream(EVENT)
    async with api_for(script) as api:
        [[refused]] = [batch async for batch in api.watch("80", "100")]
        assert refused.causes == ("ResourceVersionTooLarge",)
        assert script.requests == []
        assert kinds([item async for batch in api.watch("80", "99") for item in batch]) == [Seen, Closed]


async def test_R10_silence_is_noticed():
    script = Script()
    script.parts = stream(EVENT, SILENCE)
    assert kinds(await watched(script, silence_s=0.2)) == [Seen, Silent]


async def test_a_server_that_never_answers_is_silent():
    script = Script()
    script.parts = [SILENCE]
    assert kinds(await watched(script, silence_s=0.2)) == [Silent]


async def test_a_refused_connection_is_lost():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}") as http:
            api = WatchApi(READER, Clients(http, http))
            assert kinds([item async for batch in api.watch("5") for item in batch]) == [Lost]


async def test_R13_a_refusal_carries_its_reason_and_retry_after():
    script = Script()
    status = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "storage is (re)initializing"}
    script.parts = [answer("429 Too Many Requests", JSON, "Retry-After: 7", body=json.dumps(status).encode())]
    [item] = await watched(script)
    assert item == Refused(429, "TooManyRequests", "storage is (re)initializing", (), 7.0)


async def test_R09_R10_a_watch_asks_for_bookmarks_and_for_a_spread_end():
    script = Script()
    script.parts = [answer()]
    async with api_for(script) as api:
        for _ in range(12):
            _ = [batch async for batch in api.watch("5")]
    asked = [httpx.URL(request).params for request in script.requests]
    limits = {int(params["timeoutSeconds"]) for params in asked}
    assert all(240 <= limit <= 480 for limit in limits)
    assert len(limits) > 1
    assert {params["allowWatchBookmarks"] for params in asked} == {"true"}
    assert {params["resourceVersion"] for params in asked} == {"5"}


async def test_R01_R02_the_initial_state_is_asked_for_consistently():
    script = Script()
    script.parts = [answer()]
    async with api_for(script) as api:
        _ = [batch async for batch in api.initial()]
        await api.page("")
        await api.page("t2")
    initial, first, second = (httpx.URL(request) for request in script.requests)
    assert initial.params["sendInitialEvents"] == "true"
    assert initial.params["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in initial.params
    assert dict(first.params) == {"limit": "500"}
    assert dict(second.params) == {"limit": "500", "continue": "t2"}
    assert first.path == "/apis/serving.kserve.io/v1beta1/inferenceservices"


async def test_a_namespace_is_a_path_of_its_own():
    script = Script()
    script.parts = [answer()]
    async with api_for(script) as api:
        await WatchApi(READER, api._clients, namespace="team").page("")
    assert script.requests[0].startswith("/apis/serving.kserve.io/v1beta1/namespaces/team/inferenceservices")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [answer(body=listing("9"))],
            Page((), "9", ""),
            id="an empty list",
        ),
        pytest.param([answer("503 Service Unavailable", "Retry-After: 1")], Refused(503, retry_after_s=1.0), id="503"),
        pytest.param([SILENCE], Silent(), id="silence"),
    ],
)
async def test_a_list_becomes_one_item(parts, expected):
    script = Script()
    script.parts = parts
    async with api_for(script, silence_s=0.2) as api:
        assert await api.page("") == expected


@pytest.mark.parametrize("body", [b"<html>", b'{"kind":"Status"}', b""])
async def test_R04_R20_a_list_that_is_none_is_malformed(body):
    script = Script()
    script.parts = [answer(body=body)]
    async with api_for(script) as api:
        assert isinstance(await api.page(""), Malformed)


async def test_R22_a_thousand_reconnects_leave_one_socket_at_a_time():
    script = Script()
    script.parts = stream(EVENT)
    async with api_for(script) as api:
        for _ in range(1000):
            _ = [batch async for batch in api.watch("5")]
    assert len(script.requests) == 1000
    assert script.most_open <= 2  # the server may hear of an end only after the next beginning


async def test_R21_R22_a_stream_that_is_left_is_closed_at_once():
    script = Script()
    script.parts = stream(EVENT, SILENCE)
    async with api_for(script) as api:
        source = api.watch("5")
        await anext(source)
        await anext(source)
        assert script.open == 1
        await source.aclose()
        await eventually(lambda: script.open == 0)


LOCATIONS = ["http:login", "mailto:admin@example.org", "http://xn--a/"]


@pytest.mark.parametrize("location", LOCATIONS)
async def test_R20_a_redirect_to_what_is_no_address_is_no_answer(location):
    script = Script()
    script.parts = [answer("302 Found", f"Location: {location}")]
    async with api_for(script) as api:
        assert [kinds(batch) async for batch in api.initial()] == [[Lost]]
        assert isinstance(await api.page(""), Lost)
        with pytest.raises(UnreachableError):
            await api.uid_of(ObjectKey(Kind.ISVC, "ns", "a"))
