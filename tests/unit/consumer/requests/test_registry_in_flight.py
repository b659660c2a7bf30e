"""The limit on requests in flight: how many at once, who is next, and who does not wait."""

import asyncio

import httpx
import pytest

from consumer.requests.registry_client import InFlightLimit
from tests.unit.consumer.requests.registry_script import ASK, FOUND, Script, ok, plenty


class Crowd:
    """Tasks that each stay inside the limit until told to go."""

    def __init__(self, limit: InFlightLimit) -> None:
        self.limit = limit
        self.inside: list[int] = []
        self.gates: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, count: int) -> None:
        for _ in range(count):
            self.gates.append(asyncio.Event())
            self.tasks.append(asyncio.create_task(self._stay(len(self.gates) - 1)))
        await self.settle()

    async def _stay(self, number: int) -> None:
        async with self.limit:
            self.inside.append(number)
            try:
                await self.gates[number].wait()
            finally:
                self.inside.remove(number)

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self, number: int) -> None:
        self.gates[number].set()
        await self.settle()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def crowd():
    made = Crowd(InFlightLimit(2))
    yield made
    await made.close()


async def test_no_more_than_the_limit_are_inside_and_the_first_come_first(crowd):
    await crowd.start(4)
    assert crowd.inside == [0, 1]
    await crowd.end(1)
    assert crowd.inside == [0, 2]


async def test_who_gives_up_waiting_takes_no_place(crowd):
    await crowd.start(4)
    crowd.tasks[2].cancel()
    await crowd.end(0)
    assert crowd.inside == [1, 3]
    await crowd.end(1)
    await crowd.end(3)
    await crowd.start(3)
    assert len(crowd.inside) == 2


async def test_place_given_to_one_who_is_cancelled_at_that_moment_is_passed_on(crowd):
    await crowd.start(4)
    crowd.gates[0].set()
    await asyncio.sleep(0)  # lets task 0 leave, and no more
    assert crowd.limit._in_flight == 2  # the place has been handed to the task that we cancel now
    assert crowd.inside == [1]
    crowd.tasks[2].cancel()
    await crowd.settle()
    assert sorted(crowd.inside) == [1, 3]


async def test_greater_limit_admits_at_once_and_a_smaller_one_when_others_leave(crowd):
    await crowd.start(6)
    crowd.limit.resize(4)
    await crowd.settle()
    assert crowd.inside == [0, 1, 2, 3]
    crowd.limit.resize(1)
    for number in range(3):
        await crowd.end(number)
        assert len(crowd.inside) == 3 - number
    await crowd.end(3)
    assert crowd.inside == [4]


async def test_smaller_limit_holds_at_once_when_nobody_is_inside(crowd):
    crowd.limit.resize(1)
    await crowd.start(3)
    assert crowd.inside == [0]


async def test_limit_is_never_below_one():
    limit = InFlightLimit(0)
    limit.resize(-5)
    async with asyncio.timeout(1), limit:
        pass


async def test_calls_of_one_client_keep_to_the_limit():
    most = now = 0

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        now -= 1
        return ok(FOUND)

    client = Script().client(limit=InFlightLimit(3))
    client._http._transport = httpx.MockTransport(answer)
    await asyncio.gather(*(client.call(ASK, plenty) for _ in range(20)))
    assert most == 3
