"""What was refused by the API server waits without a look at the registry, until it makes sense. In virtual time."""

import asyncio

import httpx
import pytest

from consumer.requests.circuit import FAILURES_MAX, OPEN_S_MIN
from consumer.requests.exchange import Outgoing
from consumer.requests.kube_circuit import KubernetesCircuits
from consumer.verdict import Ack, Retry
from consumer.waiting import HANDLED_ANEW_S, WaitingForKubernetes
from shared.errors import NotSentError
from tests.unit.consumer.deliveries import small_work

pytestmark = pytest.mark.looptime

PATCH = Outgoing(method="PATCH", path="/a/b", route="/a/{name}")


class Server:
    """Answers every request with one status."""

    status = 503

    async def send(self, _outgoing, _budget):
        return httpx.Response(self.status, json={})


class Door:
    """A door, and behind it a handler that patches; `handled` are the messages that came through."""

    def __init__(self):
        self.server = Server()
        self.circuits = KubernetesCircuits(self.server)
        self.handled, self.words = [], []
        self.fails = None  # with something else than a refusal of the API server
        self.waiting = WaitingForKubernetes(self._handle, self.circuits, lambda _, word: self.words.append(word))

    async def _handle(self, work):
        self.handled.append(work)
        if self.fails is not None:
            return self.fails
        try:
            response = await self.circuits.send(PATCH, lambda: 60.0)
        except NotSentError as error:
            return Retry(error.retry_after_s, "away", held=True)
        return Ack() if response.is_success else Retry(1.0, "503")

    async def open(self):
        for version in range(FAILURES_MAX):
            await self.waiting.handle(small_work(version, name=f"first-{version}"))
        self.handled.clear()


@pytest.fixture
def door():
    return Door()


async def test_what_was_refused_is_not_handled_anew_while_the_circuit_is_open(door):
    await door.open()
    work = small_work(1)
    assert (await door.waiting.handle(work)).held
    work.attempt = 2  # as the queue does
    decision = await door.waiting.handle(work)
    assert decision == Retry(pytest.approx(OPEN_S_MIN, abs=0.1), "the Kubernetes API is away", held=True)
    assert (door.handled, work.attempt, door.words) == ([work], 1, ["held"])


async def test_a_newer_message_of_the_object_goes_through(door):
    await door.open()
    older, newer = small_work(1), small_work(2)
    await door.waiting.handle(older)
    await door.waiting.handle(newer)
    assert door.handled == [older, newer]


async def test_one_of_those_that_wait_is_handled_as_the_probe(door):
    await door.open()
    works = [small_work(1, name=f"iris-{number}") for number in range(20)]
    for work in works:
        await door.waiting.handle(work)
    door.handled.clear()
    await asyncio.sleep(OPEN_S_MIN)
    for work in works:
        await door.waiting.handle(work)
    assert door.handled == works[:1]


async def test_after_its_return_each_is_handled_at_its_next_turn(door):
    await door.open()
    works = [small_work(1, name=f"iris-{number}") for number in range(3)]
    for work in works:
        await door.waiting.handle(work)
    door.server.status = 200
    await asyncio.sleep(OPEN_S_MIN)
    assert [await door.waiting.handle(work) for work in works] == [Ack()] * 3


async def test_what_was_held_by_something_else_is_handled_each_time(door):
    await door.open()
    door.fails = Retry(1.0, "the registry is away", held=True)
    work = small_work(1)
    for _ in range(3):
        await door.waiting.handle(work)
    assert door.handled == [work] * 3


async def test_once_a_minute_it_is_handled_anew_for_what_else_may_be_left_of_it(door):
    await door.open()
    works = [small_work(1, name=f"iris-{number}") for number in range(5)]
    for work in works:
        await door.waiting.handle(work)
    door.handled.clear()
    await asyncio.sleep(HANDLED_ANEW_S)
    for work in works:
        await door.waiting.handle(work)
    assert door.handled == works


async def test_nothing_is_remembered_when_all_is_well(door):
    await door.open()
    await door.waiting.handle(small_work(1))
    door.server.status = 200
    await asyncio.sleep(OPEN_S_MIN)
    await door.waiting.handle(small_work(1, name="other"))
    await door.waiting.handle(small_work(1, name="another"))
    assert not door.waiting._waiting
