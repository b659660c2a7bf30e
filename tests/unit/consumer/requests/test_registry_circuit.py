"""The circuit of one registry: when nothing is sent, and what proves that it is back."""

import asyncio
import logging

import httpx
import pytest

from consumer.requests.circuit import FAILURES_MAX, OPEN_S_MIN
from consumer.requests.registry_client import InFlightLimit, RegistryClient
from consumer.requests.registry_errors import AmbiguousError, Request, RequestKind, UnprovenError
from shared.errors import (
    ConflictError,
    NotFoundError,
    NotSentError,
    PermanentError,
    TransientError,
    UnreachableError,
)
from tests.unit.consumer.requests.registry_script import ANY_VERSION, ASK, FOUND, UNAVAILABLE, Script, error, ok, plenty

CHANGE = Request(RequestKind.UPDATE, "PATCH", "/inference_services/17")
ALIVE = [
    (ASK, ok(FOUND), None),
    (ASK, error(404, "no inference service found: not found"), NotFoundError),
    (ASK, error(404, "multiple inference services found: not found"), AmbiguousError),
    (CHANGE, error(409, "x already exists: conflict"), ConflictError),
    (ASK, error(422, "required field 'name' is zero value."), PermanentError),
    (ASK, error(500, "ERROR: value too long for type"), PermanentError),
]
ILL = [
    UNAVAILABLE,
    error(500, "failed to connect"),
    error(400, "x: invalid filter query, type mismatch: bad request"),
    httpx.Response(429),
    httpx.Response(403, text="RBAC: access denied"),
    httpx.ConnectError("refused"),
    httpx.ReadTimeout(""),
]


def named(answer) -> str:
    return str(getattr(answer, "status_code", type(answer).__name__))


async def fail(client: RegistryClient, times: int) -> None:
    for _ in range(times):
        with pytest.raises((TransientError, NotFoundError)):
            await client.call(ASK, plenty)


@pytest.mark.looptime
@pytest.mark.parametrize("answer", ILL, ids=named)
async def test_after_some_failures_in_a_row_nothing_is_sent_until_its_time_has_come(answer):
    script = Script(*[answer] * FAILURES_MAX, ok(FOUND), ok(FOUND))
    client = script.client()
    await fail(client, FAILURES_MAX)
    with pytest.raises(NotSentError, match="is away") as raised:
        await client.call(ASK, plenty)
    assert raised.value.retry_after_s == pytest.approx(OPEN_S_MIN)
    assert len(script.seen) == FAILURES_MAX
    await asyncio.sleep(OPEN_S_MIN)
    await client.call(ASK, plenty)
    await client.call(ASK, plenty)


@pytest.mark.looptime
@pytest.mark.parametrize(("asked", "answer", "raises"), ALIVE, ids=named)
async def test_a_sign_of_life_between_failures_keeps_it_closed(asked, answer, raises):
    script = Script(*[UNAVAILABLE] * (FAILURES_MAX - 1), answer, *[UNAVAILABLE] * (FAILURES_MAX - 1), ok(FOUND))
    client = script.client()
    await fail(client, FAILURES_MAX - 1)
    if raises is None:
        await client.call(asked, plenty)
    else:
        with pytest.raises(raises):
            await client.call(asked, plenty)
    await fail(client, FAILURES_MAX - 1)
    await client.call(ASK, plenty)


@pytest.mark.looptime
async def test_a_404_by_id_says_nothing_of_its_health():
    by_id = Request(RequestKind.BY_ID, "GET", "/registered_models/1")
    script = Script(*[error(404, "no registered model found for id 1: not found")] * 10, *[UNAVAILABLE] * FAILURES_MAX)
    client = script.client()
    for _ in range(10):
        with pytest.raises(UnprovenError):
            await client.call(by_id, plenty)
    await fail(client, FAILURES_MAX)
    with pytest.raises(NotSentError):
        await client.call(ASK, plenty)


@pytest.mark.looptime
async def test_while_the_probe_is_under_way_nobody_else_leaves():
    answered = asyncio.Event()

    async def slowly(_: httpx.Request) -> httpx.Response:
        await answered.wait()
        return ok(FOUND)

    client = Script(*[UNAVAILABLE] * FAILURES_MAX).client()
    await fail(client, FAILURES_MAX)
    client._http._transport = httpx.MockTransport(slowly)
    await asyncio.sleep(OPEN_S_MIN)
    probe = asyncio.create_task(client.call(ASK, plenty))
    await asyncio.sleep(0.1)
    with pytest.raises(NotSentError):
        await client.call(ASK, plenty)
    answered.set()
    await probe
    await client.call(ASK, plenty)


@pytest.mark.looptime
async def test_a_probe_that_is_cancelled_makes_room_for_the_next_one():
    client = Script(*[UNAVAILABLE] * FAILURES_MAX).client()
    await fail(client, FAILURES_MAX)
    await asyncio.sleep(OPEN_S_MIN)

    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    client._http._transport = httpx.MockTransport(hang)
    probe = asyncio.create_task(client.call(ASK, plenty))
    await asyncio.sleep(0.1)
    probe.cancel()
    await asyncio.wait([probe])
    client._http._transport = httpx.MockTransport(Script(ok(FOUND)))
    await client.call(ASK, plenty)


@pytest.mark.looptime
async def test_too_little_time_to_ask_is_no_fault_of_the_registry():
    script = Script(ok(FOUND))
    client = script.client()
    for _ in range(2 * FAILURES_MAX):
        with pytest.raises(NotSentError, match="ownership"):
            await client.call(ASK, lambda: 0.5)
    await client.call(ASK, plenty)


@pytest.mark.looptime
async def test_a_registry_that_was_never_seen_and_does_not_answer_is_away_at_once():
    """Its hanging version probe is not waited for by everybody in turn."""

    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    client = Script().client(ANY_VERSION)
    client._http._transport = httpx.MockTransport(hang)
    loop = asyncio.get_running_loop()
    began = loop.time()
    calls = [asyncio.create_task(client.call(ASK, plenty)) for _ in range(50)]
    done, (probe,) = await asyncio.wait(calls, timeout=1.5)
    assert {type(call.exception()) for call in done} == {NotSentError}
    await asyncio.wait([probe])
    assert isinstance(probe.exception(), UnreachableError)
    assert loop.time() - began == pytest.approx(5.0)
    with pytest.raises(NotSentError, match="is away"):
        await client.call(ASK, plenty)


@pytest.mark.looptime
async def test_what_waited_for_a_place_when_it_opened_is_not_sent_either():
    async def slowly(_: httpx.Request) -> httpx.Response:
        nonlocal sent
        sent += 1
        await asyncio.sleep(0.1)
        return UNAVAILABLE

    sent = 0
    client = Script().client(limit=InFlightLimit(2))
    client._http._transport = httpx.MockTransport(slowly)
    results = await asyncio.gather(*(client.call(ASK, plenty) for _ in range(50)), return_exceptions=True)
    assert sum(isinstance(result, NotSentError) for result in results) == 50 - sent
    assert sent == FAILURES_MAX


@pytest.mark.looptime
async def test_the_circuits_states_are_told_and_logged_once_each(caplog):
    script = Script(*[UNAVAILABLE] * (FAILURES_MAX + 1), ok(FOUND))
    client = script.client()
    states: list[str] = []
    client._on_circuit = states.append
    with caplog.at_level(logging.INFO, "consumer"):
        await fail(client, FAILURES_MAX + 3)
        await asyncio.sleep(OPEN_S_MIN)
        await fail(client, 3)
        await asyncio.sleep(OPEN_S_MIN)
        await client.call(ASK, plenty)
    assert states == ["open", "half-open", "open", "half-open", "closed"]
    assert [record.getMessage() for record in caplog.records] == [
        "the registry is away, its objects are held",
        "the registry is back",
    ]
