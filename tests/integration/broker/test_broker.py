"""A nats-server that is killed and frozen, and the connection to it."""

import asyncio
import contextlib
import json
import socket
import ssl
import sys

import pytest
from nats.aio.client import ServerVersion

from sandbox.broker import NatsOptions, NatsServer, find_nats_server
from shared.broker import Broker, require_version
from shared.errors import RefusedToStartError
from shared.streams import ensure_streams
from tests.certificates import self_signed
from tests.eventually import eventually
from tests.integration.broker.brokers import must_not_close, settings


@pytest.fixture
def events(broker) -> list[str]:
    told: list[str] = []
    broker.on_event(told.append)
    return told


# --- the process ----------------------------------------------------------------------------------------------------


async def test_a_killed_server_comes_back_on_its_port_with_what_it_acknowledged(server, broker):
    await ensure_streams(broker.jetstream, settings(server.url))
    url, pid = server.url, server.pid
    await broker.jetstream.publish("isvc.c.evt.0.isvc.ns.name", b"kept")
    await server.kill()
    await server.start()
    assert server.url == url
    assert server.pid != pid
    await eventually(lambda: broker.client.is_connected)
    assert (await broker.jetstream.get_last_msg("ISVC_EVENTS", "isvc.c.evt.0.isvc.ns.name")).data == b"kept"


async def test_options_of_the_server_are_obeyed(tmp_path):
    async with NatsServer(tmp_path, NatsOptions(max_payload_bytes=2000, sync_interval="always")) as small:
        async with Broker(settings(small.url), on_closed=must_not_close) as broker:
            assert broker.max_payload_bytes == 2000
        assert 'sync_interval: "always"' in (tmp_path / "nats-server.conf").read_text()


async def test_a_server_that_cannot_start_says_why(server, tmp_path):
    taken = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(RefusedToStartError, match=r"ended at once: .*address already in use"):
        await NatsServer(tmp_path / "second", NatsOptions(port=taken)).start()


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr("sandbox.broker._port_of", lambda _: 0)  # it will never look ready
    server = NatsServer(tmp_path)
    starting = asyncio.create_task(server.start())
    await eventually(lambda: any(tmp_path.glob("*.ports")))
    process = server._process
    starting.cancel()
    await asyncio.wait([starting])
    assert process.returncode is not None


def test_a_missing_server_is_told_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(RefusedToStartError, match="extra `sandbox`"):
        find_nats_server()


# --- the connection -------------------------------------------------------------------------------------------------


async def test_the_broker_may_come_later_than_we(tmp_path):
    server = NatsServer(tmp_path)
    await server.start()
    await server.kill()  # now its port is known, and nobody listens
    told: list[str] = []
    broker = Broker(settings(server.url), on_closed=must_not_close)
    broker.on_event(told.append)
    connecting = asyncio.create_task(broker.connect())
    await eventually(lambda: "ConnectionRefusedError" in told)
    async with server:
        await asyncio.wait_for(connecting, 5)
        assert await broker.round_trip()
        await broker.close()


async def test_hooks_run_after_a_reconnect_and_one_that_fails_harms_nobody(server, broker, events):
    ran: list[str] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def broken() -> None:
        raise ValueError("hook")

    broker.on_reconnect(broken)
    broker.on_reconnect(lambda: ran.append("second"))
    for times in (1, 2):
        await server.kill()
        await server.start()
        await eventually(lambda: len(ran) == times)  # noqa: B023 - awaited inside the iteration
        assert await broker.round_trip()
    assert events.count("disconnected") == 2
    assert events.count("reconnected") == 2
    assert len(failures) == 2


async def test_a_frozen_broker_is_noticed_and_the_connection_replaced(server, broker, events):
    client_id = broker.client.client_id
    server.pause()
    await eventually(lambda: "stalled" in events)  # the watchdog, unasked
    assert broker.round_trip_age_s() > 2
    server.resume()
    await eventually(lambda: "reconnected" in events)
    assert broker.client.client_id != client_id
    assert await broker.round_trip()
    assert broker.round_trip_age_s() < 1
    await broker.jetstream.account_info()


async def test_a_dead_read_loop_is_noticed_although_the_client_calls_itself_connected(broker, events):
    broker.client._reading_task.cancel()
    await asyncio.sleep(0)
    assert broker.client.is_connected
    assert not await broker.round_trip()
    await eventually(lambda: "reconnected" in events, within_s=1)
    assert await broker.round_trip()


async def test_unsent_data_does_not_hold_up_the_change_to_another_server(server, tmp_path):
    told: list[str] = []
    async with NatsServer(tmp_path / "second") as second:
        servers = {one.url.rsplit(":", 1)[1]: one for one in (server, second)}
        async with Broker(settings(server.url, second.url), on_closed=must_not_close) as broker:
            broker.on_event(told.append)
            first_port = str(broker.client.connected_url.port)
            servers[first_port].pause()
            for _ in range(14):
                await broker.client.publish("bulk", b"x" * 1_000_000)
            await eventually(lambda: "stalled" in told)
            await eventually(lambda: "disconnected" in told, within_s=1)  # the kernel would need seconds more
            await eventually(lambda: "reconnected" in told)
            assert str(broker.client.connected_url.port) != first_port
            assert await broker.round_trip()
            servers[first_port].resume()


async def test_every_socket_is_told_to_give_up_on_unanswered_data(server, broker, events):
    def user_timeout_ms() -> int:
        writer = broker.client._transport._io_writer
        return writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert user_timeout_ms() == 6000
    await server.kill()
    await server.start()
    await eventually(lambda: "reconnected" in events)
    assert user_timeout_ms() == 6000


async def test_a_connection_given_up_for_good_ends_the_process(server):
    closed: list[bool] = []
    async with Broker(settings(server.url), on_closed=lambda: closed.append(True)) as broker:
        broker.client._transport.write(b"RUBBISH\r\n")  # answered with -ERR, upon which nats-py closes
        await eventually(lambda: bool(closed))


async def test_closing_on_purpose_is_no_alarm_and_does_not_wait_for_a_dead_broker(server):
    broker = Broker(settings(server.url), on_closed=must_not_close)
    await broker.connect()
    await server.kill()
    await eventually(lambda: not broker.client.is_connected)
    await asyncio.wait_for(broker.close(), 2)
    assert broker.client.is_closed


async def test_closing_while_the_broker_is_frozen_ends_in_time(server):
    broker = Broker(settings(server.url), on_closed=must_not_close)
    await broker.connect()
    server.pause()
    for _ in range(14):
        await broker.client.publish("bulk", b"x" * 1_000_000)
    await asyncio.wait_for(broker.close(), 8)
    server.resume()


async def test_what_is_buffered_is_sent_before_the_close(server, broker):
    got: list[bytes] = []

    async def take(message) -> None:
        got.append(message.data)

    await broker.client.subscribe("x", cb=take)
    await broker.client.flush()
    other = Broker(settings(server.url), on_closed=must_not_close)
    await other.connect()
    await other.client.publish("x", b"last words")
    await other.close()
    await eventually(lambda: got == [b"last words"])


class FakeServer:
    """Greets like a NATS server of some version and answers pings; for what a real one of today cannot show."""

    def __init__(self, **info: object) -> None:
        self._info = {"server_id": "x", "max_payload": 1000, "headers": True, "proto": 1, **info}
        self.received = b""

    @contextlib.asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(self._info).encode() + b"\r\n")
        while line := await reader.readline():
            self.received += line
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()


@pytest.mark.parametrize("ask", ["flush", "rtt"])
async def test_a_ping_does_not_overtake_what_was_sent_before_it(ask):
    server = FakeServer(version="2.15.1")
    async with server.running() as url, Broker(settings(url), on_closed=must_not_close) as broker:
        greeted = len(server.received)
        await broker.client.subscribe("x")
        await broker.client.publish("x", b"sent before")
        await getattr(broker.client, ask)()
        sent = [line.partition(b" ")[0] for line in server.received[greeted:].split(b"\r\n")]
        assert sent[:4] == [b"SUB", b"PUB", b"sent", b"PING"]


async def test_a_server_that_is_too_old_is_refused_in_one_sentence():
    async with FakeServer(version="2.10.25").running() as url:
        broker = Broker(settings(url), on_closed=must_not_close)
        with pytest.raises(RefusedToStartError, match=r"is version 2\.10\.25, and isvc-sync needs 2\.14 or later"):
            await broker.connect()
        assert broker.client.is_closed


@pytest.mark.parametrize("version", ["2.14.0", "2.14.0-RC.1", "2.15.1", "2.100.0", "3.0.0"])
def test_a_new_server_will_do(version):
    require_version(ServerVersion(version), "nats:4222")


@pytest.mark.parametrize("version", ["2.13.9", "2.9.25", "1.4.1", "0.0.0-unknown"])
def test_an_old_server_will_not_do(version):
    with pytest.raises(RefusedToStartError, match="nats:4222"):
        require_version(ServerVersion(version), "nats:4222")


async def test_credentials_are_not_sent_in_plain_text_when_tls_was_asked_for():
    fake = FakeServer(version="2.15.1")
    async with fake.running() as url:
        told: list[str] = []
        broker = Broker(settings(url.replace("nats://", "tls://me:hunter2@")), on_closed=must_not_close)
        broker.on_event(told.append)
        connecting = asyncio.create_task(broker.connect())
        await eventually(lambda: "SecureConnWantedError" in told)
        connecting.cancel()
        await asyncio.wait([connecting])
    assert b"hunter2" not in fake.received
    assert b"CONNECT" not in fake.received


@pytest.fixture
def certificate(tmp_path):
    folder = self_signed(tmp_path)
    return folder / "ca.pem", folder / "key.pem"


async def test_a_server_of_our_ca_is_talked_to_by_tls(certificate, tmp_path):
    tls = f'tls {{ cert_file: "{certificate[0]}", key_file: "{certificate[1]}" }}'
    async with NatsServer(tmp_path / "nats", NatsOptions(extra=tls)) as server:
        trusting = settings(server.url, nats_ca_file=str(certificate[0]))
        async with Broker(trusting, on_closed=must_not_close) as broker:
            assert isinstance(broker.client._transport._io_writer.get_extra_info("ssl_object"), ssl.SSLObject)
            assert await broker.round_trip()


async def test_a_ca_file_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "ca").write_text("no certificate")
    for path in (tmp_path / "ca", tmp_path / "missing"):
        broker = Broker(settings("nats://127.0.0.1:1", nats_ca_file=str(path)), on_closed=must_not_close)
        with pytest.raises(RefusedToStartError, match=f"NATS_CA_FILE {path}"):
            await broker.connect()


async def test_credentials_without_the_package_for_them_are_told(server, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nkeys", None)
    broker = Broker(settings(server.url, nats_creds_file=str(tmp_path / "creds")), on_closed=must_not_close)
    with pytest.raises(RefusedToStartError, match="NATS_CREDS_FILE needs the package nkeys"):
        await broker.connect()
