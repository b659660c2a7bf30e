"""Several real nats-servers as one JetStream cluster on loopback, each of which can be killed and started again.

`sandbox/broker.py` runs each of them.

    async with NatsCluster(directory) as cluster:
        ...                                   # cluster.url is for NATS_URL, with STREAM_REPLICAS=3
        leader = await cluster.leader("ISVC_EVENTS")
        await cluster.nodes[leader].kill()
        await cluster.nodes[leader].start()
"""

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import nats
import nats.errors
from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig

from sandbox.broker import NatsOptions, NatsServer
from shared.errors import RefusedToStartError

_NODES = 3
_READY_TIMEOUT_S = 30.0  # an election and the meeting of all peers take about 2 s on an idle machine
_POLL_S = 0.1
_ANSWER_TIMEOUT_S = 1.0


class NatsCluster:
    """Nodes `n0`, `n1`, ... by name; all their files are below `directory`."""

    def __init__(self, directory: Path, size: int = _NODES) -> None:
        routes = _free_ports(size)
        options = {f"n{number}": _options(f"n{number}", number, routes) for number in range(size)}
        self.nodes: Mapping[str, NatsServer] = {
            name: NatsServer(directory / name, given) for name, given in options.items()
        }
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start all nodes, and wait until streams can be placed on all of them.

        Raises RefusedToStartError when they do not find each other.
        """
        async with AsyncExitStack() as stack:
            for node in self.nodes.values():
                await stack.enter_async_context(node)
            await self._wait_until_streams_can_be_placed()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """Addresses of all nodes for NATS_URL, separated by commas."""
        return ",".join(node.url for node in self.nodes.values())

    async def leader(self, stream: str) -> str | None:
        """Return the name of the node that leads a stream; None while nobody does, or nobody answers."""
        with suppress(nats.errors.Error, OSError):
            async with self._client() as client:
                info = await client.jetstream(timeout=_ANSWER_TIMEOUT_S).stream_info(stream)
            return info.cluster.leader or None if info.cluster is not None else None
        return None

    async def _wait_until_streams_can_be_placed(self) -> None:
        """Make a stream with a replica on every node, again until it works: what is wanted is what is tried.

        A leader of the cluster is not enough. Until it has heard of every peer, it refuses a replicated stream for good
        (10005, "no suitable peers").
        """
        # No second stream of a name: on file storage it may come back with the messages of the first.
        probe = StreamConfig(
            name=f"probe-{secrets.token_hex(4)}", num_replicas=len(self.nodes), storage=StorageType.MEMORY
        )
        trouble: Exception | None = None
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S), self._client() as client:
                jetstream = client.jetstream(timeout=_ANSWER_TIMEOUT_S)
                while True:
                    try:
                        await jetstream.add_stream(probe)
                        await jetstream.delete_stream(str(probe.name))
                    except nats.errors.Error as error:
                        trouble = error
                        await asyncio.sleep(_POLL_S)
                    else:
                        return
        except TimeoutError as error:
            raise RefusedToStartError(
                f"{len(self.nodes)} nats-servers did not become a cluster within {_READY_TIMEOUT_S:.0f} s: {trouble}"
            ) from error

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        client = await nats.connect(
            [node.url for node in self.nodes.values()],
            connect_timeout=1,
            max_reconnect_attempts=1,  # of each address: nodes that are down on purpose are passed over
            reconnect_time_wait=_POLL_S,
            error_cb=_ignore,
        )
        try:
            yield client
        finally:
            await client.close()


async def _ignore(_: Exception) -> None:
    """Say nothing of nodes that are down: that is what they are here for."""


def _options(name: str, number: int, routes: list[int]) -> NatsOptions:
    others = [f"nats-route://127.0.0.1:{port}" for at, port in enumerate(routes) if at != number]
    return NatsOptions(
        extra="\n".join(
            (
                f"server_name: {name}",
                "cluster {",
                "  name: sandbox",
                f'  listen: "127.0.0.1:{routes[number]}"',
                f"  routes: {json.dumps(others)}",
                "}",
            )
        )
    )


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago. The nodes must know each other's before any of them runs."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
