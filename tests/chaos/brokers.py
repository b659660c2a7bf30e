"""The broker of a chaos run, one server or three as a cluster, with the two faults that strike it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sandbox.broker import NatsServer
from shared.streams import stream_names
from tests.chaos.nats_cluster import NatsCluster
from tests.cluster.processes import Guard
from tests.eventually import eventually

_ONLY = "n0"
_LEADER_WITHIN_S = 30.0  # an election takes 4 to 9 s, more where two of three nodes are down


class Brokers:
    """All nodes by name. One that is down is left to whoever will start it again."""

    def __init__(self, nodes: dict[str, NatsServer], leader: Callable[[], Awaitable[str | None]], guard: Guard) -> None:
        self._nodes = nodes
        self._leader = leader
        self._guard = guard
        self._down: set[str] = set()
        self._pids: dict[str, int] = {}

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self._nodes.values())

    @property
    def replicas(self) -> int:
        return len(self._nodes)

    async def kill_leader(self, down_s: float) -> None:
        """SIGKILL whoever leads the event stream, and start it again after a while; over when somebody leads again."""
        leader = await eventually(self._killable_leader, "the event stream has a leader", _LEADER_WITHIN_S)
        await self._away(leader, down_s)
        await eventually(self._killable_leader, "the event stream has a leader again", _LEADER_WITHIN_S)

    async def send_one_away(self, away_s: float) -> None:
        """SIGKILL a node that does not lead, and let it stay away."""
        leader = await self._leader()
        await self._away(next(name for name in self._up() if name != leader), away_s)

    async def _killable_leader(self) -> str | None:
        leader = await self._leader()
        return leader if leader in self._up() else None

    def _up(self) -> list[str]:
        return [name for name in self._nodes if name not in self._down]

    async def _away(self, name: str, away_s: float) -> None:
        node = self._nodes[name]
        self._down.add(name)
        try:
            await node.kill()
            self._guard.ended(self._pids.pop(name))
            await asyncio.sleep(away_s)
        finally:
            await node.start()
            self._started(name)
            self._down.discard(name)

    def all_started(self) -> None:
        for name in self._nodes:
            self._started(name)

    def _started(self, name: str) -> None:
        self._pids[name] = self._nodes[name].pid
        self._guard.started(self._pids[name])

    def all_ended(self) -> None:
        """Tell the guard: soon the ids may be those of other processes."""
        for pid in self._pids.values():
            self._guard.ended(pid)


@asynccontextmanager
async def brokers(directory: Path, nodes: int, guard: Guard) -> AsyncIterator[Brokers]:
    """Start them; nothing of them outlives the block, or the guard."""
    async with AsyncExitStack() as stack:
        if nodes == 1:
            started = Brokers({_ONLY: NatsServer(directory)}, _only, guard)
            stack.callback(started.all_ended)
            await stack.enter_async_context(started._nodes[_ONLY])
        else:
            cluster = NatsCluster(directory, nodes)
            started = Brokers(dict(cluster.nodes), lambda: cluster.leader(stream_names("isvc").events), guard)
            stack.callback(started.all_ended)
            await stack.enter_async_context(cluster)
        started.all_started()
        yield started


async def _only() -> str:
    return _ONLY
