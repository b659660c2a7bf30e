"""Whose certificates are trusted for the registry."""

import asyncio
import ssl

import pytest
from opentelemetry.sdk.trace import TracerProvider

from consumer.requests.exchange import Instruments
from consumer.requests.registry_client import InFlightLimit, RegistryAccess, RegistryClient, registry_http
from shared.errors import SettingsError, UnreachableError
from tests.certificates import self_signed
from tests.unit.consumer.requests.registry_script import ASK, BASE, plenty


def test_ca_file_that_is_none_is_a_settings_error(tmp_path):
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "absent.pem"):
        with pytest.raises(SettingsError, match="REGISTRY_CA_FILE"):
            registry_http(RegistryAccess(base_url=BASE, ca_file=path))


@pytest.fixture
def certificate(tmp_path):
    return self_signed(tmp_path)


async def test_only_the_ca_file_is_trusted(certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "ca.pem", certificate / "key.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"id": "1"}')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        for ca_file, trusted in ((certificate / "ca.pem", True), (None, False)):
            access = RegistryAccess(base_url=f"https://127.0.0.1:{port}", ca_file=ca_file, api_version="v1")
            client = RegistryClient(
                access, InFlightLimit(1), Instruments(TracerProvider().get_tracer("t"), lambda *_: None)
            )
            if trusted:
                assert await client.call(ASK, plenty) == b'{"id": "1"}'
            else:
                with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                    await client.call(ASK, plenty)
            await client.close()
