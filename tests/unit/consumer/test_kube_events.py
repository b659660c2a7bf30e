"""Events on their way to the API server, and what its answers do: nothing but a line in the log."""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager

import httpx
import pytest
from opentelemetry.trace import NoOpTracer

from consumer.kube_events import EventsApi, KubernetesEvents
from consumer.notices import COUNT_PAUSE_S, NEW_PER_PROCESS, About, Notice, Topic
from consumer.requests.exchange import Exchanger, Instruments
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey
from tests.unit.consumer.worlds import KEY, UID

pytestmark = pytest.mark.looptime(start=0)

IRIS = About(KEY, UID, "10")
FAILED = Notice(Topic.SYNC_FAILED, "registered model 404 does not exist in the registry")
FORBIDDEN = (
    'events is forbidden: User "system:serviceaccount:x:y" cannot create resource "events" in API group "" in the '
    'namespace "team-a"'
)


def status(code: int, reason: str, message: str = "x") -> httpx.Response:
    body = {"kind": "Status", "apiVersion": "v1", "message": message, "reason": reason, "code": code}
    return httpx.Response(code, json=body)


class Server:
    """Keeps Events; answers with `failures` as long as there are any."""

    def __init__(self) -> None:
        self.events = {}
        self.requests = []
        self.failures = []
        self.counts = Counter()
        http = httpx.AsyncClient(base_url="https://kube.example:6443", transport=httpx.MockTransport(self))
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        api = EventsApi(exchanger, NamingSettings(cluster_name="c").api_version)
        self.notices = KubernetesEvents(api, lambda: 1_796_000_000.0 + now(), lambda word: self.counts.update([word]))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        body = json.loads(request.content)
        name = body["metadata"]["name"] if request.method == "POST" else request.url.path.rpartition("/")[2]
        if (name in self.events) == (request.method == "POST"):
            return status(409, "AlreadyExists") if request.method == "POST" else status(404, "NotFound")
        self.events[name] = self.events.get(name, {}) | body
        return httpx.Response(201 if request.method == "POST" else 200, json=self.events[name])

    @property
    def only(self):
        (event,) = self.events.values()
        return event


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def running(server):
    task = asyncio.create_task(server.notices.run())
    try:
        yield server
        assert not task.done(), "it must never end"
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_an_event_names_the_object_in_its_own_namespace():
    async with running(Server()) as server:
        server.notices.tell(IRIS, FAILED)
        await asyncio.sleep(1)
    (request,) = server.requests
    assert (request.method, request.url.path) == ("POST", "/api/v1/namespaces/team-a/events")
    assert server.only["involvedObject"] == {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "namespace": "team-a",
        "name": "iris",
        "uid": UID,
        "resourceVersion": "10",
    }
    told = {name: server.only[name] for name in ("type", "reason", "message", "count")}
    assert told == {"type": "Warning", "reason": "RegistrySyncFailed", "message": FAILED.message, "count": 1}
    assert server.only["source"] == {"component": "isvc-sync-consumer"}
    assert server.counts == {"posted": 1}


async def test_an_object_of_which_only_the_name_is_known_is_named():
    async with running(Server()) as server:
        server.notices.tell(About(ObjectKey(Kind.LLMISVC, "team-a", "chat")), FAILED)
        await asyncio.sleep(1)
    assert server.only["involvedObject"] == {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "namespace": "team-a",
        "name": "chat",
    }


async def test_what_is_said_again_is_counted_in_place():
    async with running(Server()) as server:
        for _ in range(100):
            server.notices.tell(IRIS, FAILED)
            await asyncio.sleep(1)
        await asyncio.sleep(COUNT_PAUSE_S)
    assert [request.method for request in server.requests] == ["POST", "PATCH", "PATCH"]
    assert server.only["count"] == 100
    assert server.requests[-1].headers["Content-Type"] == "application/merge-patch+json"
    assert server.counts == {"posted": 1, "counted": 2}


async def test_an_event_that_has_expired_is_written_anew_with_its_count():
    async with running(Server()) as server:
        server.notices.tell(IRIS, FAILED)
        await asyncio.sleep(1)
        server.events.clear()
        server.notices.tell(IRIS, FAILED)
        await asyncio.sleep(2 * COUNT_PAUSE_S)
    assert [request.method for request in server.requests] == ["POST", "PATCH", "POST"]
    assert server.only["count"] == 2


async def test_an_event_whose_answer_was_lost_is_not_written_twice():
    async with running(Server()) as server:
        server.notices.tell(IRIS, FAILED)
        await asyncio.sleep(1)
        event, server.events = server.events, {}
        name, body = event.popitem()
        server.notices.tell(IRIS, FAILED)
        server.failures = [status(404, "NotFound"), status(409, "AlreadyExists")]
        server.events[name] = body
        await asyncio.sleep(2 * COUNT_PAUSE_S)
    assert server.failures == []
    assert server.only["count"] == 2
    assert server.counts["failed"] == 0


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        status(500, "InternalError"),
        status(403, "Forbidden", FORBIDDEN),
        httpx.Response(403, text="RBAC: access denied"),
        httpx.Response(200, text="<html>", headers={"Content-Type": "text/html"}),
    ],
    ids=repr,
)
async def test_what_may_succeed_later_is_written_later_and_complained_of_once(failure, caplog):
    async with running(Server()) as server:
        server.failures = [failure] * 3
        server.notices.tell(IRIS, FAILED)
        await asyncio.sleep(1)
        assert server.events == {}
        await asyncio.sleep(3 * COUNT_PAUSE_S)
    assert server.only["count"] == 1
    assert server.counts == {"failed": 3, "posted": 1}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("failure", [status(404, "NotFound"), status(422, "Invalid"), status(400, "BadRequest")])
async def test_what_is_refused_is_left_out_and_complained_of_once(failure, caplog):
    async with running(Server()) as server:
        for number in range(3):
            server.failures = [failure, status(404, "NotFound")] if failure.status_code == 422 else [failure]
            server.notices.tell(About(KEY, f"uid-{number}"), FAILED)
            await asyncio.sleep(1)
        await asyncio.sleep(3 * COUNT_PAUSE_S)
    assert server.events == {}
    assert server.counts == {"failed": 3}
    (record,) = caplog.records
    assert f"{failure.status_code}" in record.error


async def test_a_missing_right_is_said_once_however_many_namespaces_lack_it(caplog):
    async with running(Server()) as server:
        for number in range(20):
            server.failures = [status(403, "Forbidden", FORBIDDEN.replace("team-a", f"team-{number}"))]
            server.notices.tell(About(ObjectKey(Kind.ISVC, f"team-{number}", "iris")), FAILED)
            await asyncio.sleep(0.1)
    assert server.counts["failed"] == 20
    (record,) = caplog.records
    assert "no right to create events" in record.error
    assert "grant it to the account isvc-sync uses" in record.error


async def test_a_server_that_hangs_holds_up_the_events_and_nobody_else():
    async with running(Server()) as server:

        async def hang(_request):
            await asyncio.Event().wait()

        transport = httpx.MockTransport(hang)
        http = httpx.AsyncClient(base_url="https://kube.example", transport=transport)
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        server.notices._api = EventsApi(exchanger, NamingSettings(cluster_name="c").api_version)
        before = now()
        server.notices.tell(IRIS, FAILED)
        assert now() == before
        await asyncio.sleep(6)
        assert server.counts == {"failed": 1}


async def test_what_is_too_much_is_counted_and_left_out():
    async with running(Server()) as server:
        for number in range(2 * NEW_PER_PROCESS):
            server.notices.tell(About(KEY, f"uid-{number}"), FAILED)
        await asyncio.sleep(1)
    assert len(server.events) == NEW_PER_PROCESS
    assert server.counts == {"posted": NEW_PER_PROCESS, "limited": NEW_PER_PROCESS}
