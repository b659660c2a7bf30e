"""Fault switches: what they do to a request, to which requests, and that they count it."""

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from aiohttp import web

from sandbox import faults as faults_module
from sandbox.faults import Fault, Faults, RequestCounts
from sandbox.web import serve


class World:
    """A server with one counter behind it, and a client."""

    def __init__(self) -> None:
        self.faults = Faults(seed=1)
        self.requests = RequestCounts()
        self.work_done = 0

    async def work(self, _: web.Request) -> web.Response:
        self.work_done += 1
        return web.Response(text="done")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first line\n")
        await asyncio.Event().wait()
        return response

    def app(self) -> web.Application:
        app = web.Application()
        faults_module.install(app, self.faults, self.requests, lambda request: request.path)
        app.router.add_get("/stream", self.stream)
        app.router.add_route("*", "/{path:.*}", self.work)
        return app


async def injected(world: World, kind: str, times: int) -> None:
    """Wait until faults of a kind have happened so many times."""
    async with asyncio.timeout(5):
        while world.faults.injected[kind] < times:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0.001)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with serve(world.app()) as url, httpx.AsyncClient(base_url=url, trust_env=False, timeout=5) as client:
        world.client = client
        yield world


async def test_without_faults_requests_are_answered_and_nothing_is_counted_as_injected(world):
    assert (await world.client.get("/a")).text == "done"
    assert not world.faults.injected


async def test_an_outage_answers_503_without_any_work(world):
    world.faults.set(Fault(outage=True))
    assert (await world.client.get("/a")).status_code == 503
    assert (world.work_done, world.faults.injected) == (0, {"outage": 1})


async def test_an_error_has_the_status_body_and_headers_of_the_switch(world):
    headers = {"Retry-After": "7"}
    world.faults.set(Fault(error_rate=1, error_status=403, error_body="RBAC: access denied", error_headers=headers))
    answer = await world.client.get("/a")
    assert (answer.status_code, answer.text, answer.headers["retry-after"]) == (403, "RBAC: access denied", "7")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_rates_are_drawn_from_the_seed(world):
    async def statuses():
        world.faults.set(Fault(error_rate=0.5), seed=42)
        return [(await world.client.get("/a")).status_code for _ in range(20)]

    first = await statuses()
    assert await statuses() == first
    assert set(first) == {200, 500}
    assert world.faults.injected["error"] == 2 * first.count(500)


async def test_latency_delays_the_work(world):
    world.faults.set(Fault(latency_s=0.05))
    begin = time.monotonic()
    assert (await world.client.get("/a")).status_code == 200
    assert time.monotonic() - begin >= 0.05
    assert world.faults.injected == {"latency": 1}


async def test_a_dropped_request_is_closed_before_the_work(world):
    world.faults.set(Fault(drop_rate=1))
    with pytest.raises(httpx.TransportError):
        await world.client.get("/a")
    assert (world.work_done, world.faults.injected) == (0, {"drop": 1})


async def test_a_lost_reply_is_closed_after_the_work(world):
    world.faults.set(Fault(lost_reply_rate=1))
    with pytest.raises(httpx.TransportError):
        await world.client.post("/a")
    assert (world.work_done, world.faults.injected) == (1, {"lost_reply": 1})


async def test_a_hanging_request_is_never_answered_and_dropped_when_the_faults_are_cleared(world):
    world.faults.set(Fault(hang=True))
    with pytest.raises(httpx.ReadTimeout):
        await world.client.get("/a", timeout=0.05)
    hanging = asyncio.create_task(world.client.get("/a"))
    await injected(world, "hang", 2)
    world.faults.clear()
    with pytest.raises(httpx.TransportError):
        await hanging
    assert world.work_done == 0
    assert (await world.client.get("/a")).status_code == 200


async def test_a_server_with_hanging_requests_stops():
    world = World()
    world.faults.set(Fault(hang=True))
    async with httpx.AsyncClient(trust_env=False) as client:
        async with serve(world.app()) as url:
            hanging = asyncio.create_task(client.get(url))
            await injected(world, "hang", 1)
        with pytest.raises(httpx.TransportError):
            await hanging


async def test_a_cut_breaks_an_answer_in_its_middle(world):
    world.faults.set(Fault(path="/stream", cut_after_s=0.05))
    received = []

    async def read():
        async with world.client.stream("GET", "/stream") as response:
            async for line in response.aiter_lines():
                received.append(line)  # noqa: PERF401 - what came before the cut counts

    with pytest.raises(httpx.TransportError):
        await read()
    assert received == ["first line"]
    assert world.faults.injected == {"cut": 1}


async def test_an_answer_that_is_complete_in_time_is_not_cut(world):
    world.faults.set(Fault(cut_after_s=0.02))
    assert (await world.client.get("/a")).status_code == 200
    world.faults.set(Fault(latency_s=0.04))
    assert (await world.client.get("/a")).status_code == 200  # on the same connection, past the first one's time
    assert "cut" not in world.faults.injected


async def test_a_fault_is_limited_by_method_and_whole_path(world):
    world.faults.set(Fault(method="POST|PUT", path="/api/.*", error_rate=1))
    asked = [("POST", "/api/a"), ("PUT", "/api/b"), ("GET", "/api/a"), ("POST", "/other/api/a")]
    answers = [(await world.client.request(method, path)).status_code for method, path in asked]
    assert answers == [500, 500, 200, 200]


async def test_a_fault_for_the_next_requests_is_spent_by_them(world):
    world.faults.set(Fault(path="/a", outage=True, next_requests=2))
    paths = ["/a", "/b", "/a", "/a"]
    assert [(await world.client.get(path)).status_code for path in paths] == [503, 200, 503, 200]


async def test_the_first_fault_that_ends_a_request_wins_and_delays_add_up(world):
    world.faults.set(Fault(latency_s=0.02), Fault(error_rate=1, error_status=429), Fault(outage=True))
    assert (await world.client.get("/a")).status_code == 429
    assert world.faults.injected == {"latency": 1, "error": 1}


async def test_faults_are_set_read_and_cleared_by_http(world):
    order = {"seed": 3, "faults": [{"path": "/a", "outage": True, "next_requests": 5}]}
    put = await world.client.put("/_sandbox/faults", json=order)
    assert put.status_code == 200
    assert (await world.client.get("/a")).status_code == 503
    state = (await world.client.get("/_sandbox/faults")).json()
    assert state["injected"] == {"outage": 1}
    assert [fault["left"] for fault in state["faults"]] == [4]
    assert (await world.client.delete("/_sandbox/faults")).json()["faults"] == []
    assert (await world.client.get("/a")).status_code == 200


async def test_control_requests_are_neither_faulted_nor_counted(world):
    world.faults.set(Fault(outage=True))
    assert (await world.client.get("/_sandbox/requests")).json() == {"total": 0, "routes": []}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"path": "("}, "no regular expression"),
        ({"error_rate": 2}, "error_rate"),
        ({"laten_s": 1}, "laten_s"),
        ({"next_requests": 0}, "next_requests"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused_and_the_others_stay(world, fault, words):
    world.faults.set(Fault(outage=True))
    answer = await world.client.put("/_sandbox/faults", json={"faults": [fault]})
    assert (answer.status_code, words in answer.text) == (400, True), answer.text
    assert (await world.client.get("/a")).status_code == 503


async def test_requests_are_counted_by_method_and_route(world):
    for method, path in [("GET", "/a"), ("GET", "/a"), ("POST", "/a"), ("GET", "/b")]:
        await world.client.request(method, path)
    assert world.requests.total() == 4
    assert world.requests.total("GET") == 3
    assert world.requests.total(route="/a") == 3
    assert world.requests.total("POST", "/[ab]") == 1
    listed = (await world.client.get("/_sandbox/requests")).json()
    assert listed["routes"][0] == {"method": "GET", "route": "/a", "count": 2}
    assert (await world.client.delete("/_sandbox/requests")).json()["total"] == 0
