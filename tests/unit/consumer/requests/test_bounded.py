"""An answer is read up to the longest honest one, and no further, whatever the server sends."""

import asyncio
import gzip
import tracemalloc
import zlib
from contextlib import AsyncExitStack

import httpx
import pytest
from opentelemetry.trace import NoOpTracer

from consumer.requests.exchange import Exchanger, Instruments, Outgoing
from shared.errors import UnreachableError
from shared.tokens import TokenAuth, TokenFile
from shared.transport import ANSWER_BYTES_MAX, ERROR_BYTES_MAX, CautiousTransport

MIB = 1024 * 1024
ASK = Outgoing(method="GET", path="/a", route="/a")
GZIP = "Content-Encoding: gzip\r\n"
TOO_LONG = r"^GET /a: no answer \(the answer is given up, it is longer than 16384 KiB\)$"


async def forever(chunk):
    while True:
        yield chunk
        await asyncio.sleep(0)


def zeros(size):
    """Return gzip of so many bytes, each a zero: about a thousandth of them."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    parts = [packer.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join([*parts, packer.compress(bytes(size % MIB)), packer.flush()])


class Server:
    """Answers each request with the next of `answers`: head lines, and a body, in parts or whole."""

    def __init__(self, stack, *answers):
        self._stack = stack
        self._answers = list(answers)
        self.sent = 0
        self.requests = 0
        self.connections = 0
        self.hung_up = asyncio.Event()

    async def exchanger(self, auth=None, bytes_max=ANSWER_BYTES_MAX):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._stack.push_async_callback(server.wait_closed)
        self._stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        transport = CautiousTransport(httpx.AsyncHTTPTransport(trust_env=False), bytes_max=bytes_max)
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", auth=auth, transport=transport)
        await self._stack.enter_async_context(http)
        return Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))

    async def _serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                self.head = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                await self._answer(writer, *self._answers.pop(0))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _answer(self, writer, status, headers, body):
        whole = isinstance(body, bytes)
        length = f"Content-Length: {len(body)}\r\n" if whole else "Transfer-Encoding: chunked\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\n{headers}{length}\r\n".encode())
        if whole:
            writer.write(body)
            await writer.drain()
            return
        async for part in body:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
            self.sent += len(part)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def serving(stack):
    return lambda *answers: Server(stack, *answers)


def plenty():
    return 60.0


async def test_an_answer_that_never_ends_is_given_up_and_the_connection_closed(serving):
    server = serving((200, "", forever(bytes(64 * 1024))))
    exchanger = await server.exchanger()
    with pytest.raises(UnreachableError, match=TOO_LONG):
        await exchanger.send(ASK, plenty)
    async with asyncio.timeout(10):
        await server.hung_up.wait()
    assert server.sent < ANSWER_BYTES_MAX + 32 * MIB  # what the sockets' buffers hold comes on top


async def test_a_compressed_answer_is_given_up_before_it_takes_the_memory(serving):
    bomb = zeros(128 * MIB)
    assert len(bomb) < MIB
    exchanger = await serving((200, GZIP, bomb)).exchanger()
    tracemalloc.start()
    try:
        with pytest.raises(UnreachableError, match=TOO_LONG):
            await exchanger.send(ASK, plenty)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * ANSWER_BYTES_MAX


async def test_what_follows_the_end_of_a_compressed_answer_counts_too(serving):
    async def body():
        yield gzip.compress(b"{}")
        async for chunk in forever(bytes(64 * 1024)):
            yield chunk

    server = serving((200, GZIP, body()))
    exchanger = await server.exchanger()
    with pytest.raises(UnreachableError, match=TOO_LONG):
        await exchanger.send(ASK, plenty)


@pytest.mark.parametrize(("headers", "packed"), [("", bytes), (GZIP, zeros), (GZIP.replace("gzip", "X-GZip"), zeros)])
async def test_the_longest_answer_is_read_whole_and_one_byte_more_is_given_up(serving, headers, packed):
    server = serving((200, headers, packed(3 * MIB)), (200, headers, packed(3 * MIB + 1)))
    exchanger = await server.exchanger(bytes_max=3 * MIB)
    response = await exchanger.send(ASK, plenty)
    assert response.content == bytes(3 * MIB)
    with pytest.raises(UnreachableError, match="longer than 3072 KiB"):
        await exchanger.send(ASK, plenty)


async def test_a_refused_answer_is_bounded_as_well_when_a_newer_token_is_tried(serving, tmp_path):
    tokens = TokenFile(tmp_path / "token")
    (tmp_path / "token").write_text("old")

    async def body():
        (tmp_path / "token").write_text("newer")
        async for chunk in forever(bytes(64 * 1024)):
            yield chunk

    server = serving((401, "", body()), (200, "", b"{}"))
    exchanger = await server.exchanger(TokenAuth(tokens))
    assert (await exchanger.send(ASK, plenty)).status_code == 200
    assert (server.requests, server.connections) == (2, 2)
    assert server.sent < ERROR_BYTES_MAX + 32 * MIB


async def test_an_error_is_read_decoded_as_a_success_is(serving):
    exchanger = await serving((500, GZIP, gzip.compress(b'{"code": "", "message": "x"}'))).exchanger()
    response = await exchanger.send(ASK, plenty)
    assert (response.status_code, response.json()) == (500, {"code": "", "message": "x"})


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "gzip, gzip"])
async def test_an_encoding_that_was_not_asked_for_is_no_answer(serving, encoding):
    server = serving((200, f"Content-Encoding: {encoding}\r\n", b"x"))
    exchanger = await server.exchanger()
    with pytest.raises(UnreachableError, match=r"^GET /a: no answer \(.* not asked for\)$"):
        await exchanger.send(ASK, plenty)
    assert b"\r\nAccept-Encoding: gzip\r\n" in server.head


async def test_a_broken_gzip_is_no_answer(serving):
    exchanger = await serving((200, GZIP, b"no gzip at all")).exchanger()
    with pytest.raises(UnreachableError, match=r"^GET /a: no answer \(the answer's gzip is broken"):
        await exchanger.send(ASK, plenty)


async def test_answers_that_are_read_whole_share_a_connection(serving):
    server = serving(*[(200, "", b"{}")] * 3, (200, GZIP, gzip.compress(b"{}")), (401, "", b"{}"), (200, "", b""))
    exchanger = await server.exchanger()
    assert [len((await exchanger.send(ASK, plenty)).content) for _ in range(6)] == [2, 2, 2, 2, 2, 0]
    assert (server.requests, server.connections) == (6, 1)


@pytest.mark.looptime
@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}], ids=["plain", "gzip"])
async def test_an_answer_that_drips_forever_meets_the_deadline_long_before_the_bound(headers):
    nothing = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)

    class Drip(httpx.AsyncByteStream):
        async def __aiter__(self):
            while True:
                await asyncio.sleep(0.5)
                yield nothing.flush(zlib.Z_SYNC_FLUSH) if headers else b" "

    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=Drip()))
    async with httpx.AsyncClient(base_url="http://x", transport=CautiousTransport(transport)) as http:
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnreachableError, match=r"no answer within 5\.0 s"):
            await exchanger.send(ASK, plenty)
        assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)
