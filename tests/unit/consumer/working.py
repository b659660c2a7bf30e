"""A worker at work, in virtual time: the loop around it, and a handler that notes what it was given."""

import asyncio
from contextlib import asynccontextmanager

from consumer.verdict import Ack
from shared.subjects import shard_of
from tests.unit.consumer.custody import SHARDS
from tests.unit.consumer.worlds import KEY


def now() -> float:
    return asyncio.get_running_loop().time()


class Handling:
    """A handler that takes its time, answers what it is told to, and writes down what it was given, and when."""

    def __init__(self, *, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.verdicts = []
        self.seen = []
        self.at_hand = 0
        self.at_hand_max = 0

    async def __call__(self, work):
        self.seen.append((round(now(), 3), work))
        self.at_hand += 1
        self.at_hand_max = max(self.at_hand, self.at_hand_max)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.at_hand -= 1
        verdict = self.verdicts.pop(0) if self.verdicts else Ack()
        if isinstance(verdict, Exception):
            raise verdict
        if isinstance(verdict, Ack):
            await work.message.ack()
        return verdict

    @property
    def times(self):
        return [at for at, _ in self.seen]


@asynccontextmanager
async def running(worker, handling):
    """Let a worker run for the length of the block."""
    task = asyncio.create_task(worker.run(handling))
    try:
        yield
        assert not task.done(), "the worker ended"
    finally:
        task.cancel()
        await worker.drain(0)
        await asyncio.wait([task])


def shard_of_key(key=KEY):
    return shard_of(key, SHARDS)
