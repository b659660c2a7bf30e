"""The connection: API version, deadline, credentials."""

import asyncio
import os

import httpx
import pytest

from consumer.registry import ModelRegistry
from consumer.requests.circuit import OPEN_S_MIN
from consumer.requests.registry_client import InFlightLimit, RegistryAccess
from consumer.requests.registry_errors import OtherVersionError
from consumer.verdict import Retry, verdict
from shared.errors import NotSentError, TransientError, UnauthorizedError, UnreachableError
from tests.unit.consumer.requests.registry_script import (
    ANY_VERSION,
    ASK,
    BASE,
    EMPTY_PAGE,
    FOUND,
    JSON,
    NO_PAGE,
    TEXT,
    UNAVAILABLE,
    Script,
    error,
    ok,
    plenty,
)

# --- the API version ---


async def test_v1_is_taken_where_it_is_served():
    script = Script(ok(EMPTY_PAGE), ok(FOUND), ok(FOUND))
    client = script.client(ANY_VERSION)
    await client.call(ASK, plenty)
    await client.call(ASK, plenty)
    assert script.paths() == ["GET v1/registered_models", "GET v1/inference_service", "GET v1/inference_service"]
    assert dict(script.seen[0].url.params) == {"pageSize": "1"}


@pytest.mark.parametrize("absent", [NO_PAGE, httpx.Response(410, text="gone")], ids=["unknown", "gone"])
async def test_v1alpha3_is_taken_where_v1_is_not_served(absent):
    script = Script(absent, ok(EMPTY_PAGE), ok(FOUND))
    await script.client(ANY_VERSION).call(ASK, plenty)
    assert script.paths()[1:] == ["GET v1alpha3/registered_models", "GET v1alpha3/inference_service"]


@pytest.mark.looptime
@pytest.mark.parametrize(
    "answer",
    [
        UNAVAILABLE,
        error(500, "failed to connect"),
        error(400, "x: invalid filter query, type mismatch: bad request"),
        error(409, "taken"),
        httpx.ConnectError("refused"),
        httpx.Response(200, headers=TEXT, text="<html>log in</html>"),
        httpx.Response(302, headers={"Location": "http://elsewhere.example/login"}),
    ],
    ids=["503", "500", "400", "409", "refused", "login", "redirect"],
)
async def test_probe_that_says_nothing_about_the_version_is_repeated_by_the_next_call(answer):
    script = Script(answer, ok(EMPTY_PAGE), ok(FOUND))
    client = script.client(ANY_VERSION)
    with pytest.raises(TransientError):
        await client.call(ASK, plenty)
    await asyncio.sleep(OPEN_S_MIN)
    await client.call(ASK, plenty)
    assert script.paths()[:2] == ["GET v1/registered_models"] * 2


async def test_registry_without_any_known_version_is_named_with_the_way_out():
    with pytest.raises(TransientError, match=r"registry\.example:8080.*v1.*v1alpha3.*path"):
        await Script(NO_PAGE, NO_PAGE).client(ANY_VERSION).call(ASK, plenty)


# Of a list of one model nothing can be refused for good: something in front does not know the version.
REFUSED = [
    pytest.param(httpx.Response(405), id="405"),
    pytest.param(error(400, "no such version"), id="400"),
    pytest.param(error(422, "no such version"), id="422"),
    pytest.param(error(500, "value too long"), id="500"),
]


@pytest.mark.parametrize("refusal", REFUSED)
async def test_version_that_something_in_front_refuses_is_not_served_and_the_next_one_is_tried(refusal):
    script = Script(refusal, ok(EMPTY_PAGE), ok(FOUND))
    await script.client(ANY_VERSION).call(ASK, plenty)
    assert script.paths()[1:] == ["GET v1alpha3/registered_models", "GET v1alpha3/inference_service"]


@pytest.mark.parametrize("refusal", REFUSED)
async def test_registry_that_refuses_every_version_buries_nothing_and_is_named_with_what_it_said(refusal):
    with pytest.raises(
        TransientError, match=rf"registry\.example:8080.*v1: .*{refusal.status_code}.*v1alpha3: "
    ) as raised:
        await Script(refusal, refusal).client(ANY_VERSION).call(ASK, plenty)
    assert isinstance(verdict(raised.value, 10**6, 0.5), Retry)


async def test_registry_that_refuses_every_version_is_left_alone_at_once():
    client = Script(httpx.Response(405), NO_PAGE).client(ANY_VERSION)
    for expected in (TransientError, NotSentError):
        with pytest.raises(TransientError) as raised:
            await client.call(ASK, plenty)
        assert type(raised.value) is expected


@pytest.mark.parametrize("answer", [NO_PAGE, httpx.Response(410, text="gone")], ids=["unknown", "gone"])
async def test_version_that_is_withdrawn_is_probed_again(answer):
    script = Script(NO_PAGE, ok(EMPTY_PAGE), ok(FOUND), answer, ok(EMPTY_PAGE), ok(FOUND))
    client = script.client(ANY_VERSION)
    await client.call(ASK, plenty)
    with pytest.raises(OtherVersionError):
        await client.call(ASK, plenty)
    await client.call(ASK, plenty)
    assert script.paths()[3:] == [
        "GET v1alpha3/inference_service",
        "GET v1/registered_models",
        "GET v1/inference_service",
    ]


async def test_503_does_not_unsettle_the_version():
    script = Script(ok(EMPTY_PAGE), UNAVAILABLE, ok(FOUND))
    client = script.client(ANY_VERSION)
    with pytest.raises(TransientError):
        await client.call(ASK, plenty)
    await client.call(ASK, plenty)
    assert script.paths()[1:] == ["GET v1/inference_service"] * 2


async def test_pinned_version_is_never_probed_and_its_absence_is_explained():
    script = Script(NO_PAGE, ok(FOUND))
    client = script.client(RegistryAccess(base_url=BASE, api_version="v1"))
    with pytest.raises(TransientError, match="REGISTRY_API_VERSION pins v1"):
        await client.call(ASK, plenty)
    await client.call(ASK, plenty)
    assert script.paths() == ["GET v1/inference_service"] * 2


async def test_calls_that_start_together_probe_once():
    script = Script(ok(EMPTY_PAGE), ok(FOUND), ok(FOUND), ok(FOUND))
    client = script.client(ANY_VERSION)
    await asyncio.gather(*(client.call(ASK, plenty) for _ in range(3)))
    assert script.paths().count("GET v1/registered_models") == 1


def test_unknown_api_version_is_refused():
    with pytest.raises(ValueError, match="v1 or v1alpha3, not 'v2'"):
        RegistryAccess(base_url=BASE, api_version="v2")


# --- the deadline ---


@pytest.mark.parametrize("left_s", [0.99, 0.0, -3.0, float("-inf")])
async def test_nothing_is_sent_when_ownership_is_about_to_end(left_s):
    script = Script()
    with pytest.raises(TransientError, match="ownership"):
        await ModelRegistry(script.client(), lambda: left_s).find_record("x")


async def test_deadline_is_asked_after_the_wait_for_a_place():
    limit, left_s = InFlightLimit(1), 60.0
    client = Script().client(limit=limit)
    async with limit:
        waiting = asyncio.create_task(client.call(ASK, lambda: left_s))
        await asyncio.sleep(0)
        left_s = 0.5
    with pytest.raises(TransientError, match="ownership"):
        await waiting


@pytest.mark.looptime
@pytest.mark.parametrize(("left_s", "cut_s"), [(float("inf"), 5.0), (60.0, 5.0), (2.5, 2.5), (1.0, 1.0)])
async def test_answer_that_does_not_come_is_cut_at_the_deadline(left_s, cut_s):
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    client = Script().client()
    client._http._transport = httpx.MockTransport(hang)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(UnreachableError, match="no answer"):
        await client.call(ASK, lambda: left_s)
    assert loop.time() - began == pytest.approx(cut_s)


@pytest.mark.looptime
async def test_answer_that_drips_is_cut_at_the_deadline():
    class Drip(httpx.AsyncByteStream):
        async def __aiter__(self):
            while True:
                await asyncio.sleep(0.5)
                yield b" "

    client = Script(httpx.Response(200, headers=JSON, stream=Drip())).client()
    began = asyncio.get_running_loop().time()
    with pytest.raises(UnreachableError):
        await client.call(ASK, plenty)
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("All connection attempts failed"),
        httpx.ReadTimeout(""),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        httpx.DecodingError("bad gzip"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_request_without_an_answer_is_unreachable_and_keeps_its_cause(failure):
    with pytest.raises(
        UnreachableError, match="GET /api/model_registry/v1alpha3/inference_service: no answer"
    ) as raised:
        await Script(failure).client().call(ASK, plenty)
    assert raised.value.__cause__ is failure


async def test_refused_header_is_not_repeated_in_the_message():
    script = Script(httpx.LocalProtocolError("Illegal header value b'Bearer s3cr3t\\n'"))
    with pytest.raises(UnreachableError) as raised:
        await script.client().call(ASK, plenty)
    assert "s3cr3t" not in str(raised.value)


# --- credentials ---


async def test_token_is_read_again_when_the_file_changes(tmp_path):
    token = tmp_path / "token"
    token.write_text("one\n")
    script = Script(ok(FOUND), ok(FOUND))
    client = script.client(RegistryAccess(base_url=BASE, api_version="v1", token_file=token))
    await client.call(ASK, plenty)
    token.write_text("second\n")
    await client.call(ASK, plenty)
    assert [request.headers["Authorization"] for request in script.seen] == ["Bearer one", "Bearer second"]


async def test_401_reads_the_file_anew_and_asks_once_more(tmp_path):
    token = tmp_path / "token"
    token.write_text("one")
    seen: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        stat = token.stat()
        token.write_text("two")
        os.utime(token, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the cache cannot notice this one by itself
        return httpx.Response(401, text="Unauthorized")

    script = Script(refuse, ok(FOUND))
    client = script.client(RegistryAccess(base_url=BASE, api_version="v1", token_file=token))
    await client.call(ASK, plenty)
    assert seen == ["Bearer one"]
    assert script.seen[-1].headers["Authorization"] == "Bearer two"


async def test_401_with_the_same_token_is_not_repeated(tmp_path):
    token = tmp_path / "token"
    token.write_text("one")
    script = Script(httpx.Response(401, text="Unauthorized"))
    with pytest.raises(UnauthorizedError):
        await script.client(RegistryAccess(base_url=BASE, api_version="v1", token_file=token)).call(ASK, plenty)


async def test_missing_token_file_sends_nothing(tmp_path):
    access = RegistryAccess(base_url=BASE, api_version="v1", token_file=tmp_path / "none")
    with pytest.raises(UnauthorizedError, match="none"):
        await Script().client(access).call(ASK, plenty)


async def test_without_a_token_file_no_credentials_are_sent():
    script = Script(ok(FOUND))
    await script.client().call(ASK, plenty)
    assert "Authorization" not in script.seen[0].headers
