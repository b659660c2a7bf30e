"""What the adapter believes: whether an object exists still (R26), and lists whose objects are large."""

import json

import httpx
import pytest

from producer import selection
from producer.items import Malformed
from producer.kube import Clients, WatchApi
from producer.passes import Verified
from producer.selection import Fixed, Selection
from shared.errors import IsvcSyncError, UnreachableError
from shared.objects import Kind, ObjectKey
from shared.transport import CautiousTransport
from tests.integration.producer.test_producer_kube import Script, answer, api_for
from tests.unit.producer.observed import READER, raw

# --- R26: does it exist still? --------------------------------------------------------------------------------------

KEY = ObjectKey(Kind.ISVC, "ns", "a")
NOT_FOUND = {"kind": "Status", "reason": "NotFound", "code": 404}


def changed(**metadata):
    given = raw()
    given["metadata"] |= metadata
    return given


NO_ANSWERS = {
    "a Status": {"kind": "Status", "metadata": {}, "reason": "InternalError", "code": 500},
    "an empty uid": {"metadata": {"uid": ""}},
    "the object with an empty uid": changed(uid=""),
    "the object with uid null": changed(uid=None),
    "the object with a number for uid": changed(uid=7),
    "a uid and no name": {"kind": "InferenceService", "metadata": {"uid": "u2"}},
    "another name": changed(name="b", uid="u2"),
    "another namespace": changed(namespace="other", uid="u2"),
    "another kind": raw(uid="u2") | {"kind": "Pod"},
    "no kind": {"metadata": changed(uid="u2")["metadata"]},
    "a list": [],
    "nothing": {},
}


@pytest.mark.parametrize("body", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_R26_what_is_not_that_object_does_not_say_that_it_is_gone(body):
    script = Script()
    script.parts = [answer(body=json.dumps(body).encode())]
    async with api_for(script) as api:
        with pytest.raises(UnreachableError, match=r"^reading isvc/ns/a: the answer is "):
            await api.uid_of(KEY)


@pytest.mark.parametrize("body", [b"", b'{"metadata":{"ui', b"\xff", b"[" * 100_000])
async def test_R26_half_an_object_does_not_say_that_it_is_gone(body):
    script = Script()
    script.parts = [answer(body=body)]
    async with api_for(script) as api:
        with pytest.raises(UnreachableError):
            await api.uid_of(KEY)


@pytest.mark.parametrize("body", [{"reason": "NotFound"}, {"kind": "Status"}, {}])
async def test_R26_a_404_that_is_not_about_the_object_does_not_say_that_it_is_gone(body):
    script = Script()
    script.parts = [answer("404 Not Found", body=json.dumps(body).encode())]
    async with api_for(script) as api:
        with pytest.raises(IsvcSyncError):
            await api.uid_of(KEY)


@pytest.mark.parametrize(
    ("answered", "uid"),
    [
        pytest.param(answer(body=json.dumps(raw(uid="u1")).encode()), "u1", id="the object"),
        pytest.param(answer(body=json.dumps(raw(uid="u2")).encode()), "u2", id="another one of its name"),
        pytest.param(answer("404 Not Found", body=json.dumps(NOT_FOUND).encode()), None, id="none"),
    ],
)
async def test_R26_the_object_or_a_404_about_it_is_an_answer(answered, uid):
    script = Script()
    script.parts = [answered]
    async with api_for(script) as api:
        assert await api.uid_of(KEY) == uid


@pytest.mark.parametrize("body", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_R26_no_answer_is_asked_for_again_until_there_is_one(monkeypatch, body):
    monkeypatch.setattr(selection, "_RETRY_S", 0.01)
    script = Script()
    script.parts = [answer(body=json.dumps(body).encode())]
    async with api_for(script) as api:

        async def uid_of(key):
            if len(script.requests) == 2:
                script.parts = [answer(body=json.dumps(raw()).encode())]
            return await api.uid_of(key)

        chosen = Selection(Fixed(None), None, uid_of)
        assert await chosen.exists_still(KEY, "u1")
        script.requests, script.parts = [], [answer(body=json.dumps(body).encode())]
        assert await chosen.verified({KEY: "u1"}, None) == Verified(elsewhere=frozenset({KEY}), vanished=frozenset())


# --- long answers ---------------------------------------------------------------------------------------------------


class Listed:
    """A list of large objects, as many in a page as are asked for; `sizes` says how many those were."""

    def __init__(self, count, size):
        self.items = [raw(f"o{number}") | {"spec": {"x": "y" * size}} for number in range(count)]
        self.sizes = []

    def __call__(self, request):
        size = int(request.url.params["limit"])
        begin = int(request.url.params.get("continue", "0"))
        self.sizes.append(size)
        more = {"continue": str(begin + size)} if begin + size < len(self.items) else {}
        page = self.items[begin : begin + size]
        body = {"kind": "InferenceServiceList", "metadata": {"resourceVersion": "9"} | more, "items": page}
        return httpx.Response(
            200, headers={"Content-Type": "application/json"}, stream=httpx.ByteStream(json.dumps(body).encode())
        )


def listing_api(listed, bytes_max):
    http = httpx.AsyncClient(
        transport=CautiousTransport(httpx.MockTransport(listed), bytes_max=bytes_max), base_url="http://api"
    )
    return WatchApi(READER, Clients(http, http))


async def test_a_list_of_large_objects_goes_on_in_smaller_pages():
    listed = Listed(100, 1000)
    api = listing_api(listed, 100_000)
    pages = [await api.page("")]
    while pages[-1].token:
        pages.append(await api.page(pages[-1].token))
    assert [item.key.name for page in pages for item in page.items] == [f"o{number}" for number in range(100)]
    assert listed.sizes == [500, 62, 62]


async def test_the_next_list_begins_with_pages_of_the_usual_size():
    listed = Listed(100, 1000)
    api = listing_api(listed, 100_000)
    await api.page("")
    listed.items, listed.sizes = [], []
    await api.page("")
    assert listed.sizes == [500]


async def test_a_list_without_end_is_malformed():
    listed = Listed(1, 200_000)
    assert isinstance(await listing_api(listed, 100_000).page(""), Malformed)
    assert listed.sizes == [500, 62, 7, 1]


def packed(_request):
    """Answer in an encoding that was not asked for."""
    return httpx.Response(200, headers={"Content-Type": "application/json", "Content-Encoding": "br"}, content=b"?")


async def test_an_answer_in_an_encoding_that_nobody_asked_for_is_malformed_and_no_lost_connection():
    """Or the position would be kept for ever (R13), and no list find out what is missed."""
    http = httpx.AsyncClient(transport=CautiousTransport(httpx.MockTransport(packed)), base_url="http://api")
    endless = httpx.AsyncClient(
        transport=CautiousTransport(httpx.MockTransport(packed), endless=True), base_url="http://api"
    )
    api = WatchApi(READER, Clients(http, endless))
    assert isinstance(await api.page(""), Malformed)
    [[item]] = [items async for items in api.initial()]
    assert isinstance(item, Malformed)
