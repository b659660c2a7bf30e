"""One exchange: ownership is asked until the last byte leaves, and each is logged with what came of it."""

import asyncio
import logging
from contextlib import AsyncExitStack

import httpx
import pytest
import pytest_asyncio
from opentelemetry.trace import NoOpTracer

from consumer.requests.exchange import Exchanger, Instruments, Outgoing
from shared.errors import NotSentError, UnreachableError

READ = Outgoing(method="GET", path="/things/7", route="/things/{id}")
WRITE = Outgoing(method="PATCH", path="/things/7", route="/things/{id}", body=b'{"state": "UNDEPLOYED"}')
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Keeps what each connection brought; answers what has its body."""

    def __init__(self):
        self.connections: list[bytearray] = []
        self.answer = ANSWER
        self._begun = asyncio.Event()
        self._serving: list[asyncio.Task] = []

    async def serve(self, reader, writer):
        self._serving.append(asyncio.current_task())
        self._begun.set()
        received = bytearray()
        self.connections.append(received)
        while chunk := await reader.read(65536):
            received += chunk
            if received.startswith(b"GET") or received.endswith(WRITE.body):
                writer.write(self.answer)
        writer.close()
        await writer.wait_closed()

    async def ended(self):
        """Wait until each connection has ended, of which there was one."""
        async with asyncio.timeout(5):
            await self._begun.wait()
            await asyncio.gather(*self._serving)


class Budget:
    """Says how long the shard is still ours, one answer after the other; the last one for ever."""

    def __init__(self, *left_s: float):
        self._left_s = list(left_s)
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self._left_s[min(self.asked, len(self._left_s)) - 1]


@pytest_asyncio.fixture
async def server():
    return Server()


@pytest_asyncio.fixture
async def exchanger(server):
    async with AsyncExitStack() as stack:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        stack.push_async_callback(server.ended)
        stack.callback(listening.close)
        port = listening.sockets[0].getsockname()[1]
        http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False)
        await stack.enter_async_context(http)
        yield Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))


async def test_a_write_whose_shard_is_lost_on_the_way_to_the_socket_sends_nothing(server, exchanger):
    with pytest.raises(
        NotSentError, match=r"^PATCH /things/7: not sent, the ownership of its shard has ended on the way$"
    ):
        await exchanger.send(WRITE, Budget(10.0, 0.0))
    await server.ended()
    assert server.connections == [b""]


async def test_a_write_whose_shard_is_lost_after_its_head_sends_no_body_and_hangs_up(server, exchanger):
    with pytest.raises(NotSentError):
        await exchanger.send(WRITE, Budget(10.0, 10.0, 0.0))
    await server.ended()
    [received] = server.connections
    assert received.startswith(b"PATCH /things/7 HTTP/1.1\r\n")
    assert received.endswith(b"\r\n\r\n"), "the head, and nothing of the body"


async def test_after_that_the_next_write_goes_out_on_a_new_connection(server, exchanger):
    with pytest.raises(NotSentError):
        await exchanger.send(WRITE, Budget(10.0, 10.0, 0.0))
    assert (await exchanger.send(WRITE, Budget(10.0))).status_code == 200
    assert len(server.connections) == 2


async def test_little_time_is_enough_for_what_is_on_its_way(exchanger):
    assert (await exchanger.send(WRITE, Budget(10.0, 0.1))).status_code == 200


async def test_a_read_that_is_late_does_no_harm_and_is_sent(exchanger):
    budget = Budget(10.0, 0.0)
    assert (await exchanger.send(READ, budget)).status_code == 200
    assert budget.asked == 1


@pytest.mark.parametrize(("outgoing", "level"), [(READ, logging.DEBUG), (WRITE, logging.INFO)])
async def test_each_request_is_logged_with_its_route_and_status(exchanger, caplog, outgoing, level):
    caplog.set_level(logging.DEBUG, logger="consumer.requests.exchange")
    await exchanger.send(outgoing, Budget(10.0))
    [line] = caplog.records
    assert (line.levelno, line.message) == (level, "request")
    assert (line.method, line.route, line.status) == (outgoing.method, "/things/{id}", "200")
    assert line.ms > 0


async def test_a_request_without_an_answer_is_logged_as_one(server, exchanger, caplog):
    caplog.set_level(logging.DEBUG, logger="consumer.requests.exchange")
    server.answer = b"nonsense\r\n\r\n"
    with pytest.raises(UnreachableError):
        await exchanger.send(WRITE, Budget(10.0))
    assert [line.status for line in caplog.records] == ["unreachable"]


@pytest.mark.parametrize("location", ["http:login", "mailto:admin@example.org", "http://xn--a/", "http://[::1"])
async def test_a_redirect_to_what_is_no_address_is_no_answer(server, exchanger, location):
    server.answer = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    with pytest.raises(UnreachableError, match=r"^GET /things/7: no answer"):
        await exchanger.send(READ, Budget(10.0))
