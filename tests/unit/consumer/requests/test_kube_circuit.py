"""What is held back from an API server that does not answer, and how soon it is noticed that it is back."""

import asyncio
import json
import logging

import httpx
import pytest
from opentelemetry.trace import NoOpTracer

from consumer.kube import KubernetesApi
from consumer.requests.circuit import FAILURES_MAX, OPEN_S_MIN
from consumer.requests.exchange import REQUEST_TIMEOUT_S, Exchanger, Instruments
from consumer.requests.inflight import STALLED_S
from consumer.requests.kube_circuit import (
    IN_FLIGHT_MAX,
    OPEN_S_MAX,
    RETURNS_PER_S,
    WAITING_MAX,
    KubernetesCircuits,
    Returns,
    noting_refusals,
)
from consumer.worker import AT_HAND_MAX
from shared.errors import ConflictError, NotSentError, PermanentError, TransientError, UnreachableError
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey

pytestmark = pytest.mark.looptime

KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
OTHER_KIND = ObjectKey(Kind.LLMISVC, "team-a", "iris")
SORT = "PATCH /apis/serving.kserve.io/v1beta1/namespaces/{namespace}/inferenceservices/{name}"
OK = httpx.Response(200, json={})


def status(code: int, message: str = "x") -> httpx.Response:
    body = {"kind": "Status", "message": message, "reason": "x", "code": code}
    return httpx.Response(code, headers={"Content-Type": "application/json"}, content=json.dumps(body))


class Server:
    """Answers every patch alike, `hangs` or not, and everything else well."""

    def __init__(self, answer: httpx.Response | Exception = OK) -> None:
        self.answer, self.hangs, self.takes_s = answer, False, 0.0
        self.patches, self.at_once, self.at_once_max = 0, 0, 0
        http = httpx.AsyncClient(base_url="https://kube.example:6443", transport=httpx.MockTransport(self._handle))
        self.circuits = KubernetesCircuits(Exchanger(http, Instruments(NoOpTracer(), lambda *_: None)))
        self.left_s = 60.0
        versions = NamingSettings(cluster_name="c").api_version
        self.api = KubernetesApi(self.circuits, lambda: self.left_s, versions)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        if request.method != "PATCH" or "llminference" in request.url.path:
            return OK
        self.patches += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            await asyncio.sleep(3600.0 if self.hangs else self.takes_s)
        finally:
            self.at_once -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def patch(self, key: ObjectKey = KEY) -> None:
        await self.api.patch(key, [])

    async def fails(self, times: int) -> None:
        for _ in range(times):
            with pytest.raises(TransientError):
                await self.patch()


def now() -> float:
    return asyncio.get_running_loop().time()


def named(answer) -> str:
    return str(getattr(answer, "status_code", type(answer).__name__))


ILL = [
    status(429),
    status(500, 'Internal error occurred: failed calling webhook "x": context deadline exceeded'),
    status(503),
    status(401),
    httpx.Response(403, text="RBAC: access denied"),
    httpx.Response(200, text="<html>log in</html>"),
    httpx.ConnectError("refused"),
]
FORBIDDEN = 'inferenceservices is forbidden: User "x" cannot patch resource "inferenceservices" in API group "y"'
ALIVE = {
    "a missing right": (status(403, FORBIDDEN), TransientError),
    "a webhook": (status(403, 'admission webhook "x" denied the request: no'), PermanentError),
    "404": (status(404), ConflictError),
    "409": (status(409), ConflictError),
    "422": (status(422), ConflictError),
    "400": (status(400), PermanentError),
}


@pytest.mark.parametrize("answer", ILL, ids=named)
async def test_after_some_failures_in_a_row_nothing_is_sent_until_its_time_has_come(answer):
    server = Server(answer)
    await server.fails(FAILURES_MAX)
    with pytest.raises(NotSentError, match="is away") as raised:
        await server.patch()
    assert raised.value.retry_after_s == pytest.approx(OPEN_S_MIN)
    assert server.patches == FAILURES_MAX
    server.answer = OK
    await asyncio.sleep(OPEN_S_MIN)
    await server.patch()
    await server.patch()


@pytest.mark.parametrize(("answer", "raises"), ALIVE.values(), ids=ALIVE)
async def test_an_answer_that_refuses_the_request_is_a_sign_of_life(answer, raises):
    server = Server(answer)
    for _ in range(2 * FAILURES_MAX):
        with pytest.raises(raises) as raised:
            await server.patch()
        assert not isinstance(raised.value, NotSentError)


async def test_too_little_time_to_ask_is_no_fault_of_the_server():
    server = Server()
    server.left_s = 0.5
    for _ in range(2 * FAILURES_MAX):
        with pytest.raises(NotSentError, match="ownership"):
            await server.patch()
    server.left_s = 60.0
    await server.patch()


async def test_patches_that_hang_hold_up_neither_reads_nor_patches_of_the_other_kind():
    server = Server()
    server.hangs = True
    await asyncio.gather(*(server.patch() for _ in range(FAILURES_MAX)), return_exceptions=True)
    with pytest.raises(NotSentError):
        await server.patch()
    assert await server.api.get(KEY) == {}
    await server.patch(OTHER_KIND)


async def test_a_crowd_whose_patches_hang_leaves_the_worker_slots_for_others():
    server = Server()
    server.hangs = True
    crowd = [asyncio.create_task(server.patch()) for _ in range(5 * AT_HAND_MAX)]
    await asyncio.sleep(0.1)
    assert server.at_once == IN_FLIGHT_MAX
    assert sum(not task.done() for task in crowd) == IN_FLIGHT_MAX + WAITING_MAX < AT_HAND_MAX - 16
    await asyncio.sleep(STALLED_S)
    assert sum(not task.done() for task in crowd) == IN_FLIGHT_MAX, "nobody waits behind what hangs"
    await asyncio.sleep(REQUEST_TIMEOUT_S)
    assert {type(task.exception()) for task in crowd} == {NotSentError, UnreachableError}


async def test_a_slow_server_that_moves_is_asked_as_much_as_the_limit_lets():
    server = Server()
    server.takes_s = 0.5
    await asyncio.gather(*(server.patch() for _ in range(IN_FLIGHT_MAX + WAITING_MAX)))
    assert server.at_once_max == IN_FLIGHT_MAX


async def test_what_is_refused_comes_again_one_after_the_other():
    server = Server(status(503))
    await server.fails(FAILURES_MAX)
    waits_s = []
    for _ in range(300):
        with pytest.raises(NotSentError) as raised:
            await server.patch()
        waits_s.append(raised.value.retry_after_s)
    assert waits_s == sorted(waits_s)
    assert waits_s[-1] - waits_s[0] == pytest.approx(299 / RETURNS_PER_S)


async def test_returns_are_no_sooner_than_asked_for_and_start_anew_after_a_quiet_time():
    returns = Returns(10.0)
    assert [returns.wait_s(1.0) for _ in range(3)] == pytest.approx([1.0, 1.1, 1.2])
    await asyncio.sleep(5.0)
    assert returns.wait_s(0.5) == pytest.approx(0.5)


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_probe_that_fails_is_held_like_those_that_it_stands_for(hangs):
    server = Server(status(503))
    await server.fails(FAILURES_MAX)
    server.hangs = hangs
    await asyncio.sleep(OPEN_S_MIN)
    with pytest.raises(NotSentError, match="is away") as raised:
        await server.patch()
    assert server.patches == FAILURES_MAX + 1
    assert raised.value.retry_after_s <= OPEN_S_MAX


async def test_however_long_it_is_away_its_return_is_noticed_within_two_seconds():
    server = Server(status(503))
    await server.fails(FAILURES_MAX)
    while now() < 3600.0:
        with pytest.raises(NotSentError) as raised:
            await server.patch()
        await asyncio.sleep(raised.value.retry_after_s)
    server.answer, back_at = OK, now()
    for _ in range(2):
        try:
            await server.patch()
            break
        except NotSentError as error:
            await asyncio.sleep(error.retry_after_s)
    assert now() - back_at <= OPEN_S_MAX


async def test_a_probe_does_not_wait_behind_what_hangs():
    server = Server(status(503))
    await server.fails(FAILURES_MAX)
    for _ in range(IN_FLIGHT_MAX):
        await server.circuits._limit.__aenter__()
    server.answer = OK
    await asyncio.sleep(OPEN_S_MIN)
    await server.patch()


async def test_a_probe_that_is_cancelled_makes_room_for_the_next_one():
    server = Server(status(503))
    await server.fails(FAILURES_MAX)
    server.hangs = True
    await asyncio.sleep(OPEN_S_MIN)
    probe = asyncio.create_task(server.patch())
    await asyncio.sleep(0.1)
    probe.cancel()
    await asyncio.wait([probe])
    server.hangs, server.answer = False, OK
    await server.patch()


async def test_one_of_many_is_told_to_prepare_the_probe():
    server = Server(status(503))
    await server.fails(FAILURES_MAX)
    assert server.circuits.wait_s(SORT) == pytest.approx(OPEN_S_MIN)
    await asyncio.sleep(OPEN_S_MIN)
    assert server.circuits.wait_s(SORT) == 0.0
    assert min(server.circuits.wait_s(SORT) for _ in range(50)) > 0
    server.answer = OK
    await server.patch()
    assert (server.circuits.wait_s(SORT), server.circuits.is_well) == (0.0, True)


async def test_whoever_asks_is_told_what_it_was_refused():
    server = Server(status(503))
    with noting_refusals() as refused:
        await server.fails(FAILURES_MAX)
        assert refused == []
        await server.fails(1)
    assert refused == [SORT]


async def test_one_line_says_when_it_opens_and_one_when_it_closes(caplog):
    server = Server(status(503))
    with caplog.at_level(logging.INFO, "consumer"):
        await server.fails(FAILURES_MAX + 3)
        await asyncio.sleep(OPEN_S_MIN)
        await server.fails(3)
        server.answer = OK
        await asyncio.sleep(OPEN_S_MAX)
        await server.patch()
    lines = [each for each in caplog.records if each.name == "consumer.requests.kube_circuit"]
    assert [(each.levelname, each.getMessage(), each.requests) for each in lines] == [
        ("ERROR", "the Kubernetes API is away, what needs it is held", SORT),
        ("INFO", "the Kubernetes API is back", SORT),
    ]
    assert "503" in lines[0].reason
