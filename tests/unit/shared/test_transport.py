"""Whatever a gateway answers in the API server's place costs little, and is one of our errors."""

import asyncio
import gzip
import zlib

import httpx
import pytest

from shared.cluster import ClusterConfig, client
from shared.errors import IsvcSyncError, TransientError, UnreachableError
from shared.kubernetes_errors import Answer, error_of, raise_for, translated
from shared.tokens import TokenAuth
from shared.transport import ERROR_BYTES_MAX, ERROR_S_MAX, AnswerTooLongError, CautiousTransport

KIB = 1024
JSON = {"Content-Type": "application/json"}
GZIP = {**JSON, "Content-Encoding": "gzip"}
ASKED = {"Accept-Encoding": "gzip"}


class Endless(httpx.AsyncByteStream):
    """A body that never ends: a chunk, a pause, and so on."""

    def __init__(self, chunk=bytes(KIB), pause_s=0.0):
        self._chunk = chunk
        self._pause_s = pause_s
        self.chunks = 0
        self.closed = False

    async def __aiter__(self):
        while True:
            self.chunks += 1
            yield self._chunk
            await asyncio.sleep(self._pause_s)

    async def aclose(self):
        self.closed = True


def http(*answers, **options):
    """Return a client whose requests get one answer after the other."""
    left = list(answers)
    inner = httpx.MockTransport(lambda _request: left.pop(0))
    return httpx.AsyncClient(transport=CautiousTransport(inner, **options), base_url="http://api", headers=ASKED)


def zeros(size):
    return gzip.compress(bytes(size))


async def served(*answers):
    """Return a server that gives each connection the next answer, in bytes."""
    left = list(answers)

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0))
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


class NoToken:
    async def current(self):
        return None

    async def refused(self, value):
        return value


def kubernetes(server):
    port = server.sockets[0].getsockname()[1]
    return client(ClusterConfig(f"http://127.0.0.1:{port}", None, NoToken()), use="control", role="test")


LOCATIONS = ["http:login", "mailto:admin@example.org", "http://xn--a/", "//xn--a/", "http://[::1", "/login", "::"]


@pytest.mark.parametrize("location", LOCATIONS)
async def test_a_redirect_is_a_refusal_wherever_it_leads(location):
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 5\r\n\r\nmoved"
    async with await served(head.encode()) as server, kubernetes(server) as api:
        with pytest.raises(TransientError, match=r"^asking: 302 moved$"), translated("asking"):
            raise_for(await api.get("/a"), "asking")


@pytest.mark.parametrize("location", LOCATIONS)
async def test_a_redirect_is_no_answer_to_a_client_that_looks_where_it_leads(location):
    transport = httpx.MockTransport(lambda _request: httpx.Response(302, headers={"Location": location}))
    async with httpx.AsyncClient(transport=transport) as api:
        with pytest.raises(IsvcSyncError, match=r"^asking: "), translated("asking"):
            raise_for(await api.get("http://api/a"), "asking")


async def test_a_cookie_that_cannot_be_sent_back_spoils_no_later_request():
    head = "HTTP/1.1 200 OK\r\nSet-Cookie: a=\u00e9\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    async with await served(*[head.encode()] * 2) as server, kubernetes(server) as api:
        assert [(await api.get("/a")).status_code for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("charset", ["base64", "hex", "rot13", "idna", "undefined", "utf-16", "x\0y", "nonsense"])
def test_an_error_in_a_charset_that_is_none_is_read(charset):
    response = httpx.Response(503, headers={"Content-Type": f"text/html; charset={charset}"}, content=b"\xffaway")
    assert str(error_of(Answer.of(response), "asking")) == "asking: 503 \ufffdaway"


async def test_of_an_error_without_end_the_beginning_is_read():
    body = Endless(b"away" * 256)
    async with http(httpx.Response(503, headers={"Retry-After": "7"}, stream=body)) as api:
        response = await api.get("/a")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "7")
    assert len(response.content) == ERROR_BYTES_MAX
    assert (body.chunks, body.closed) == (ERROR_BYTES_MAX // KIB + 1, True)


@pytest.mark.parametrize("endless", [False, True])
async def test_an_error_is_bounded_on_a_client_for_streams_too(endless):
    async with http(httpx.Response(500, stream=Endless()), endless=endless) as api, api.stream("GET", "/a") as response:
        assert len(await response.aread()) == ERROR_BYTES_MAX


async def test_a_401_without_end_is_bounded_before_the_request_is_repeated():
    class Rotated(NoToken):
        async def refused(self, value):
            return "Bearer new"

    body = Endless()
    async with http(httpx.Response(401, stream=body), httpx.Response(200, json={})) as api:
        assert (await api.get("/a", auth=TokenAuth(Rotated()))).status_code == 200
    assert body.closed


@pytest.mark.looptime
async def test_an_error_that_drips_is_taken_as_it_is_after_some_seconds():
    async with http(httpx.Response(503, stream=Endless(b"x", pause_s=1.0))) as api:
        assert (await api.get("/a")).content == b"x" * (int(ERROR_S_MAX) + 2)


@pytest.mark.looptime
async def test_an_answer_that_drips_is_no_answer():
    async with http(httpx.Response(200, headers=JSON, stream=Endless(b" ", pause_s=10.0))) as api:
        with pytest.raises(UnreachableError, match="takes longer than 120 s"), translated("asking"):
            await api.get("/a")


async def test_an_answer_without_end_is_no_answer():
    body = Endless()
    async with http(httpx.Response(200, headers=JSON, stream=body), bytes_max=8 * KIB) as api:
        with (
            pytest.raises(UnreachableError, match=r"no answer \(the answer is given up.* 8 KiB"),
            translated("asking"),
        ):
            await api.get("/a")
    assert (body.chunks, body.closed) == (9, True)


async def test_an_answer_of_just_the_longest_length_is_read():
    async with http(httpx.Response(200, stream=httpx.ByteStream(bytes(8 * KIB))), bytes_max=8 * KIB) as api:
        assert len((await api.get("/a")).content) == 8 * KIB


async def test_a_small_body_that_inflates_to_a_large_one_is_too_long():
    async with http(httpx.Response(200, headers=GZIP, stream=Endless(zeros(1024 * KIB))), bytes_max=8 * KIB) as api:
        with pytest.raises(AnswerTooLongError):
            await api.get("/a")


@pytest.mark.parametrize("status", [200, 503])
async def test_gzip_is_read(status):
    packed = httpx.Response(status, headers=GZIP, stream=httpx.ByteStream(gzip.compress(b"[1, 2]")))
    async with http(packed) as api:
        assert (await api.get("/a")).json() == [1, 2]


async def test_of_an_error_that_inflates_the_beginning_is_read():
    async with http(httpx.Response(503, headers=GZIP, stream=httpx.ByteStream(zeros(1024 * KIB)))) as api:
        assert (await api.get("/a")).content == bytes(ERROR_BYTES_MAX)


@pytest.mark.parametrize("status", [200, 503])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip"])
async def test_an_encoding_that_was_not_asked_for_or_is_broken_is_no_answer(status, encoding):
    body = Endless(zlib.compress(b"{}"))
    async with http(httpx.Response(status, headers={"Content-Encoding": encoding}, stream=body)) as api:
        with pytest.raises(UnreachableError), translated("asking"):
            await api.get("/a")
    assert body.closed


async def test_a_stream_has_no_bound_and_is_not_compressed():
    plain = httpx.Response(200, headers=JSON, stream=Endless())
    packed = httpx.Response(200, headers=GZIP, stream=Endless(zeros(KIB)))
    async with http(plain, packed, endless=True, bytes_max=KIB) as api:
        async with api.stream("GET", "/a") as response:
            chunks = response.aiter_raw()
            assert sum([len(await anext(chunks)) for _ in range(100)]) == 100 * KIB
            await chunks.aclose()
        with pytest.raises(httpx.DecodingError):
            await api.get("/a")
