"""The store: numbers, history, the past; and the pure pieces around it."""

import itertools
from datetime import UTC, datetime

import pytest

from sandbox.cluster import discovery, protobuf, table
from sandbox.cluster.auth import ADMIN, Action, Rule, User, authenticate, authorize
from sandbox.cluster.patch import json_patch, merge_patch, strategic_merge
from sandbox.cluster.render import negotiate
from sandbox.cluster.resources import BUILT_IN
from sandbox.cluster.status import ApiError
from sandbox.cluster.store import History, Store
from sandbox.cluster.watch import bookmark_times

R = "things"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, **history) -> Store:
    store = Store(History(first_version=10, **history), clock)
    store.open(R)
    return store


def put(store: Store, name: str, **spec) -> int:
    obj = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec}
    return store.put(R, obj, fields={}).version


def names(store: Store, version: int | None = None) -> list[str]:
    return [entry.name for entry in store.entries(R, version)]


def test_every_write_gets_the_next_number(clock: Clock):
    store = make(clock)
    assert [put(store, "a"), put(store, "b"), put(store, "a")] == [11, 12, 13]
    assert store.remove(R, "ns/b").version == 14


def test_the_order_of_lists_is_that_of_keys_where_a_dash_sorts_before_the_slash(clock: Clock):
    store = make(clock)
    for namespace in ("a", "a-b", "b"):
        obj = {"metadata": {"name": "x", "namespace": namespace, "uid": namespace}}
        store.put(R, obj, fields={})
    assert [entry.namespace for entry in store.entries(R)] == ["a-b", "a", "b"]


def test_the_past_can_be_seen_as_far_as_the_history_reaches(clock: Clock):
    store = make(clock)
    put(store, "a")
    before = put(store, "b")
    store.remove(R, "ns/a")
    put(store, "c")
    put(store, "b", changed=True)
    assert names(store, before) == ["a", "b"]
    assert store.entries(R, before)[1].version == before
    assert names(store) == ["b", "c"]


def test_a_full_history_forgets_the_oldest(clock: Clock):
    store = make(clock, events_max=2)
    versions = [put(store, name) for name in "abc"]
    log = store.log(R)
    assert log.read(log.position_after(versions[0]), 10) is not None
    with pytest.raises(ApiError, match=r"too old resource version: 10 \(11\)") as error:
        log.position_after(versions[0] - 1)
    assert (error.value.code, error.value.reason) == (410, "Expired")


def test_an_old_history_is_forgotten(clock: Clock):
    store = make(clock, age_s_max=75.0)
    first = put(store, "a")
    clock.now_s = 70.0
    second = put(store, "b")
    clock.now_s = 80.0
    assert [event.version for event in store.log(R).newer_than(first)] == [second]
    with pytest.raises(ApiError, match="too old"):
        store.log(R).newer_than(first - 1)


def test_a_position_stays_valid_while_old_events_go_and_then_says_so(clock: Clock):
    store = make(clock, events_max=2)
    log = store.log(R)
    position = log.end
    put(store, "a")
    put(store, "b")
    assert [event.entry.name for event in log.read(position, 10) or ()] == ["a", "b"]
    put(store, "c")
    assert log.read(position, 10) is None


def test_forgetting_everything_makes_the_last_number_too_old(clock: Clock):
    store = make(clock)
    last = put(store, "a")
    log = store.log(R)
    store.forget_history()
    assert log.closed
    with pytest.raises(ApiError, match="too old"):
        store.log(R).position_after(last)


def test_a_recorded_number_is_kept_when_it_is_higher(clock: Clock):
    store = make(clock)
    obj = {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}}
    assert store.put(R, obj, fields={}, version=500).version == 500
    assert store.put(R, obj, fields={}, version=400).version == 501


# --- patches ---

DOCUMENT = {"a": {"b": 1, "~/": 2}, "list": [1, 2, 3]}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/c", "value": 3}, {"a": {"b": 1, "~/": 2, "c": 3}, "list": [1, 2, 3]}),
        ({"op": "add", "path": "/list/1", "value": 9}, {"a": {"b": 1, "~/": 2}, "list": [1, 9, 2, 3]}),
        ({"op": "add", "path": "/list/-", "value": 9}, {"a": {"b": 1, "~/": 2}, "list": [1, 2, 3, 9]}),
        ({"op": "remove", "path": "/a/~0~1"}, {"a": {"b": 1}, "list": [1, 2, 3]}),
        ({"op": "remove", "path": "/list/0"}, {"a": {"b": 1, "~/": 2}, "list": [2, 3]}),
        ({"op": "replace", "path": "/a/b", "value": None}, {"a": {"b": None, "~/": 2}, "list": [1, 2, 3]}),
        ({"op": "move", "from": "/a/b", "path": "/c"}, {"a": {"~/": 2}, "list": [1, 2, 3], "c": 1}),
        ({"op": "copy", "from": "/list", "path": "/c"}, DOCUMENT | {"c": [1, 2, 3]}),
        ({"op": "test", "path": "/a/b", "value": 1}, DOCUMENT),
    ],
)
def test_json_patch(operation: dict, expected: dict):
    assert json_patch(DOCUMENT, [operation]) == expected
    assert DOCUMENT == {"a": {"b": 1, "~/": 2}, "list": [1, 2, 3]}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "test", "path": "/a/b", "value": True}, 422),
        ({"op": "test", "path": "/a/x", "value": None}, 422),
        ({"op": "remove", "path": "/a/x"}, 422),
        ({"op": "replace", "path": "/a/x", "value": 1}, 422),
        ({"op": "add", "path": "/x/y", "value": 1}, 422),
        ({"op": "add", "path": "/list/7", "value": 1}, 422),
        ({"op": "add", "path": "/list/x", "value": 1}, 422),
        ({"op": "frobnicate", "path": "/a"}, 400),
    ],
)
def test_json_patch_that_does_not_apply(operation: dict, code: int):
    with pytest.raises(ApiError) as refused:
        json_patch(DOCUMENT, [operation])
    assert refused.value.code == code


def test_merge_patch_removes_with_null_and_replaces_lists():
    merged = merge_patch({"a": {"b": 1, "c": 2}, "l": [1]}, {"a": {"b": None, "n": {"x": None}}, "l": [2]})
    assert merged == {"a": {"c": 2, "n": {}}, "l": [2]}


def test_strategic_merge_merges_known_lists_by_their_key():
    before = {"ports": [{"port": 1, "name": "a"}, {"port": 2}], "finalizers": ["x"]}
    patch = {
        "ports": [{"port": 1, "name": "b"}, {"port": 2, "$patch": "delete"}, {"port": 3}],
        "finalizers": ["y"],
        "$setElementOrder/ports": [{"port": 1}],
    }
    assert strategic_merge(before, patch) == {
        "ports": [{"port": 1, "name": "b"}, {"port": 3}],
        "finalizers": ["x", "y"],
    }


# --- small pure pieces ---


def test_bookmarks_are_due_each_interval_and_twice_before_the_end():
    assert list(bookmark_times(60, 130)) == [60, 120, 128, 129]


def test_a_short_watch_has_no_bookmarks():
    assert list(bookmark_times(60, 5)) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (3599, "59m"),
        (10_800, "3h"),
        (11_400, "3h10m"),
        (100_000, "27h"),
        (200_000, "2d7h"),
        (864_000, "10d"),
        (90_000_000, "2y"),
        (-3, "0s"),
    ],
)
def test_ages_read_as_in_kubectl(seconds: int, text: str):
    assert table.duration(seconds) == text


def test_an_age_is_counted_from_a_stamp():
    assert table.age("2026-11-30T10:00:00Z", datetime(2026, 11, 30, 10, 0, 7, tzinfo=UTC)) == "7s"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.b", 1),
        (".list[1].x", 2),
        (".list[?(@.name=='two')].x", 2),
        (".list[?(@.on==true)].x", 1),
        (".list[?(@.name=='none')].x", None),
        (".a.b.c", None),
        (".a['b']", 1),
    ],
)
def test_printer_columns_find_their_values(path: str, value: object):
    obj = {"a": {"b": 1}, "list": [{"name": "one", "x": 1, "on": True}, {"name": "two", "x": 2}]}
    assert table.find(obj, path) == value


def test_a_rule_allows_what_it_names_and_nothing_else():
    rule = Rule(("get", "update"), ("leases.coordination.k8s.io",), ("ns",), ("lock",))
    user = User("u", (rule,))
    authorize(user, Action("get", "leases.coordination.k8s.io", "ns", "lock"))
    good = ("get", "leases.coordination.k8s.io", "ns", "lock")
    for position, other in itertools.product(range(4), ("other",)):
        bad = [*good]
        bad[position] = other
        with pytest.raises(ApiError, match="is forbidden") as refused:
            authorize(user, Action(*bad))
        assert refused.value.code == 403


def test_without_tokens_everybody_is_admin_and_with_them_nobody_unknown():
    assert authenticate(None, {}) is ADMIN
    assert authenticate("bearer t", {"t": ADMIN}) is ADMIN
    for header in (None, "Bearer other", "Basic t", "t"):
        with pytest.raises(ApiError, match="Unauthorized"):
            authenticate(header, {"t": ADMIN})


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "object"),
        ("application/json", "object"),
        ("application/vnd.kubernetes.protobuf,application/json", "object"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table"),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "metadata"),
    ],
)
def test_the_accept_header_chooses_the_form(accept: str, form: str):
    assert negotiate(accept) == form


def test_the_body_that_kubectl_sends_for_a_namespace_is_read():
    raw = b'k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x12\n\x0c\n\x06credit\x12\x00\x1a\x00\x12\x00\x1a\x00\x1a\x00"\x00'
    assert protobuf.decode(raw) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "credit"}}


@pytest.mark.parametrize("raw", [b"{}", b"k8s\x00\xff"])
def test_what_is_no_protobuf_is_a_value_error(raw: bytes):
    with pytest.raises(ValueError, match="protobuf"):
        protobuf.decode(raw)


def test_every_built_in_kind_is_discovered():
    for kind in BUILT_IN:
        path = f"/apis/{kind.group}/v1" if kind.group else "/api/v1"
        found = discovery.document(path, BUILT_IN)
        assert found is not None
        assert kind.plural in [entry["name"] for entry in found["resources"]]
