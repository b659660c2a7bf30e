"""Holds that are made up, and who holds them: a keeper in this process, and a process that dies when it is asked."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox.broker import NatsServer
from shared.broker import Broker, BrokerSettings
from shared.holds import Held, Part, hold_of
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects

SUBJECTS = Subjects("isvc", "eu.prod", 16)
CLUSTER_ID = "1b4e28ba"
# A holder that answers, and is killed by what it is asked next: in the middle of that answer.
MORTAL = """
import asyncio, os, signal, sys
from shared.broker import Broker, BrokerSettings
from shared.holds import HoldServer
from tests.integration.holds.holding import CLUSTER_ID, SUBJECTS, held

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(url, when):
    async with Broker(BrokerSettings(nats_url=(url,)), on_closed=die) as broker:
        async with HoldServer(broker, SUBJECTS, CLUSTER_ID, "mortal") as server:
            server.register("producer", die if when == "asked" else lambda: [held(7)], die)
            await broker.client.flush()
            print("ready", flush=True)
            await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


def held(count: int, kind: Kind = Kind.ISVC, why: str = "too many are gone", since_s: float = 0) -> Held:
    objects = frozenset((ObjectKey(kind, "ns", f"o{number}"), f"u{number}") for number in range(count))
    return Held(kind=kind, why=why, objects=objects, known=100, since_s=since_s)


def id_of(one: Held, part: Part = "producer") -> str:
    return hold_of(one, part, CLUSTER_ID).id


class Keeper:
    """Holds what it is given until it is released."""

    def __init__(self, *holds: Held) -> None:
        self.holds = list(holds)

    def release(self, one: Held) -> bool:
        self.holds.remove(one)
        return True


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Broker]:
    async with Broker(BrokerSettings(nats_url=(server.url,)), on_closed=lambda: None) as broker:
        yield broker


async def mortal(server: NatsServer, when: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MORTAL, server.url, when, stdout=asyncio.subprocess.PIPE
    )
    assert await process.stdout.readline() == b"ready\n"
    return process
