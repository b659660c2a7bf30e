"""Which namespaces are chosen, and what single objects and namespaces are asked for; in virtual time."""

import asyncio

import httpx
import pytest

from producer.namespaces import ChosenNamespaces, namespace_exists
from producer.passes import Verified
from producer.selection import Fixed, Selection
from shared.errors import NotFoundError, PermanentError, TransientError
from shared.objects import Kind, ObjectKey

pytestmark = pytest.mark.looptime


class Cluster:
    """Answers lists of namespaces, page by page; `failing` is a status that is said instead."""

    def __init__(self, *names):
        self.names = list(names)
        self.failing = 0
        self.expires = 0  # so many second pages are refused with 410
        self.instead = None  # an answer that is no list of namespaces
        self.page_size = 500
        self.lists = 0
        self.requests = 0
        self.http = httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(self._answer))

    def _answer(self, request):
        self.requests += 1
        if self.failing:
            return _status(self.failing)
        if self.instead is not None:
            return httpx.Response(200, json=self.instead)
        query = request.url.params
        assert query["labelSelector"] == "team=fraud"
        begin = int(query.get("continue") or 0)
        if begin and self.expires:
            self.expires -= 1
            return _status(410)
        self.lists += not begin
        end = begin + self.page_size
        metadata = {"resourceVersion": "1"} | ({"continue": str(end)} if end < len(self.names) else {})
        items = [{"metadata": {"name": name}} for name in self.names[begin:end]]
        return httpx.Response(200, json={"kind": "NamespaceList", "metadata": metadata, "items": items})


def _status(code):
    return httpx.Response(code, json={"kind": "Status", "code": code, "message": "said", "reason": "Said"})


async def choosing(cluster, changes):
    chosen = ChosenNamespaces(cluster.http, "team=fraud", lambda: changes.append(chosen.scope()))
    running = asyncio.create_task(chosen.run())
    return chosen, running


async def end(running):
    running.cancel()
    await asyncio.wait([running])


async def test_the_first_list_makes_the_choice_known_and_is_no_change():
    cluster, changes = Cluster("a", "b"), []
    chosen, running = await choosing(cluster, changes)
    await chosen.known()
    assert chosen.scope() == {"a", "b"}
    assert changes == []
    await end(running)


async def test_a_change_is_noticed_within_half_a_minute_and_told_once():
    cluster, changes = Cluster("a"), []
    chosen, running = await choosing(cluster, changes)
    await chosen.known()
    cluster.names = ["b"]
    await asyncio.sleep(100)
    assert changes == [{"b"}]
    assert cluster.lists == 4
    await end(running)


async def test_an_unknown_namespace_is_looked_for_at_once_but_only_the_first_time():
    cluster, changes = Cluster("a"), []
    chosen, running = await choosing(cluster, changes)
    await chosen.known()
    await asyncio.sleep(5)
    chosen.met("b")
    await asyncio.sleep(2)
    assert cluster.lists == 2
    chosen.met("b")
    await asyncio.sleep(2)
    assert cluster.lists == 2
    await end(running)


async def test_what_cannot_be_listed_stays_as_it_was_and_shows_in_readiness():
    cluster, changes = Cluster("a"), []
    chosen, running = await choosing(cluster, changes)
    await chosen.known()
    cluster.failing = 503
    await asyncio.sleep(60)
    assert chosen.scope() == {"a"}
    assert "NAMESPACE_SELECTOR" in chosen.readiness()
    cluster.failing = 0
    await asyncio.sleep(60)
    assert chosen.readiness() is None
    await end(running)


async def test_all_pages_are_read_and_an_expired_list_begins_again():
    cluster, changes = Cluster(*(f"n{number}" for number in range(7))), []
    cluster.page_size, cluster.expires = 3, 2
    chosen, running = await choosing(cluster, changes)
    await chosen.known()
    assert len(chosen.scope()) == 7
    assert cluster.expires == 0
    await end(running)


@pytest.mark.parametrize("code", [409, 410, 422, 429, 503])
@pytest.mark.parametrize("chance", [0.2, 0.5, 1.0])
async def test_R13_whatever_a_list_of_namespaces_is_refused_with_it_backs_off_and_says_so_once(
    code, chance, caplog, monkeypatch
):
    monkeypatch.setattr("random.random", lambda: chance)
    cluster = Cluster("a")
    cluster.failing = code
    chosen, running = await choosing(cluster, [])
    await asyncio.sleep(10)
    assert 2 <= cluster.requests < 20
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(code) in chosen.readiness()
    cluster.failing = 0
    await asyncio.sleep(30)
    assert chosen.scope() == {"a"}
    await end(running)


STATUS = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 500}
NO_LISTS = [
    pytest.param({}, id="nothing"),
    pytest.param(STATUS, id="Status"),
    pytest.param({"metadata": {"resourceVersion": "1"}, "items": []}, id="no kind"),
    pytest.param({"kind": "PodList", "metadata": {}, "items": []}, id="another kind"),
    pytest.param({"kind": "NamespaceList", "metadata": {}}, id="no items"),
    pytest.param({"kind": "NamespaceList", "metadata": {}, "items": {}}, id="items are no list"),
    pytest.param({"kind": "NamespaceList", "metadata": {}, "items": [{"metadata": {}}]}, id="no name"),
]


@pytest.mark.parametrize("answer", NO_LISTS)
async def test_R04_what_is_no_list_of_namespaces_does_not_say_that_there_are_none(answer, caplog):
    cluster, changes = Cluster("a"), []
    chosen, running = await choosing(cluster, changes)
    await chosen.known()
    cluster.instead = answer
    await asyncio.sleep(100)
    assert (chosen.scope(), changes) == ({"a"}, [])
    assert "no list of namespaces" in chosen.readiness()
    await end(running)


@pytest.mark.parametrize("kind", ["NamespaceList", "PartialObjectMetadataList"])
async def test_R04_an_empty_list_of_namespaces_says_that_there_are_none(kind):
    cluster, changes = Cluster("a"), []
    chosen, running = await choosing(cluster, changes)
    await chosen.known()
    cluster.instead = {"kind": kind, "metadata": {}, "items": None}
    await asyncio.sleep(100)
    assert changes == [set()]
    await end(running)


async def test_R03_a_list_of_namespaces_that_goes_round_in_a_circle_backs_off():
    cluster = Cluster()
    cluster.instead = {"kind": "NamespaceList", "metadata": {"continue": "same"}, "items": []}
    chosen, running = await choosing(cluster, [])
    await asyncio.sleep(10)
    assert cluster.requests < 40
    assert "twice" in chosen.readiness()
    await end(running)


@pytest.mark.parametrize(("code", "exists"), [(200, True), (403, True), (404, False)])
async def test_a_namespace_that_may_not_be_asked_for_exists(code, exists):
    reasons = {200: "", 403: "Forbidden", 404: "NotFound"}
    body = {"kind": "Status", "code": code, "message": "said", "reason": reasons[code]}
    transport = httpx.MockTransport(lambda _: httpx.Response(code, json=body))
    async with httpx.AsyncClient(base_url="http://api", transport=transport) as http:
        assert await namespace_exists(http, "a") is exists


@pytest.mark.parametrize("body", ["404 page not found", '{"reason": "NotFound", "code": 404}'])
async def test_a_404_that_is_not_from_kubernetes_says_nothing(body):
    transport = httpx.MockTransport(lambda _: httpx.Response(404, text=body))
    async with httpx.AsyncClient(base_url="http://api", transport=transport) as http:
        with pytest.raises(NotFoundError):
            await namespace_exists(http, "a")


KEY = ObjectKey(Kind.ISVC, "ns", "a")


async def _never(name):
    raise AssertionError(f"{name} was asked for")


async def test_R26_without_an_object_selector_nobody_is_asked():
    selection = Selection(Fixed(None), _never)
    assert not await selection.exists_still(KEY, "u1")
    assert await selection.verified({KEY: "u1"}, None) == Verified()


@pytest.mark.parametrize(("there", "still"), [("u1", True), ("u2", False), (None, False)])
async def test_R26_only_the_same_object_exists_still(there, still):
    async def uid_of(key):
        return there

    selection = Selection(Fixed(None), _never, uid_of)
    assert await selection.exists_still(KEY, "u1") is still
    assert await selection.verified({KEY: "u1"}, None) == Verified(elsewhere=frozenset({KEY} if still else ()))


async def test_R26_it_is_asked_until_there_is_an_answer():
    answers = [TransientError("down"), NotFoundError("no such kind"), PermanentError("what?"), "u1"]

    async def uid_of(key):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    began = asyncio.get_running_loop().time()
    assert await Selection(Fixed(None), _never, uid_of).exists_still(KEY, "u1")
    assert asyncio.get_running_loop().time() - began == pytest.approx(7)


async def test_outside_the_scope_the_namespace_is_asked_for_and_no_object():
    async def exists(name):
        return name != "gone"

    keys = [ObjectKey(Kind.ISVC, namespace, "a") for namespace in ("ns", "there", "gone")]
    verified = await Selection(Fixed(frozenset({"ns"})), exists).verified(dict.fromkeys(keys, "u"), frozenset({"ns"}))
    assert verified == Verified(vanished=frozenset({"gone"}))
