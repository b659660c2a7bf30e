"""All that we touch of nats-py's inside, in one place: hence its version is pinned below 2.17.

`GuardedClient` mends three faults that `shared/broker.py` cannot mend from outside. nats-py has no public way to its
socket; the functions below go there.
"""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client, Srv


class GuardedClient(Client):
    """nats-py's client that keeps credentials off plain text, leaves no sockets behind, and pings in order."""

    def _connect_command(self) -> bytes:
        # A server that offers no TLS would be sent the credentials in plain text although TLS was asked for.
        if "tls" in self.options and socket_info(self, "ssl_object") is None:
            raise nats.errors.SecureConnWantedError
        return super()._connect_command()

    async def _connect_to_server(self, s: Srv) -> None:
        # The socket of an attempt that failed after connecting (no greeting in time) is forgotten without a close.
        writer = writer_of(self)
        if writer is not None:
            writer.close()
        await super()._connect_to_server(s)

    async def _send_ping(self, future: "asyncio.Future[None] | None" = None) -> None:
        # nats-py's ping overtakes what is buffered: its answer, and so `flush`, would say nothing about that.
        if self._transport is not None and self._pending and self.is_connected:
            self._transport.writelines(self._pending[:])
            self._pending = []
            self._pending_data_size = 0
        await super()._send_ping(future)


def writer_of(client: Client) -> asyncio.StreamWriter | None:
    """Return the writer of the current connection; None before the first one."""
    # The transport of websockets, which our settings refuse, has no such attribute.
    return getattr(client._transport, "_io_writer", None)  # noqa: SLF001 - see above


def socket_info(client: Client, name: str) -> Any:
    """Return `get_extra_info(name)` of the current connection: `socket`, `ssl_object`; None when there is none."""
    writer = writer_of(client)
    return None if writer is None else writer.get_extra_info(name)


def check_addresses(urls: tuple[str, ...]) -> None:
    """Check NATS_URL, where nats-py would end with its parser's exception. Raises ValueError."""
    for url in urls:
        address = urlsplit(url if "://" in url else f"nats://{url}")
        if address.scheme not in {"nats", "tls"}:
            raise ValueError("must hold nats:// or tls:// addresses; websockets are not supported")
        try:
            usable = bool(address.hostname) and address.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("holds an address whose host or port cannot be used; it is host:port, 4222 by default")
