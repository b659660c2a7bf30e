"""What an event looks like on the wire, and that nothing is lost on the way there and back."""

import random
from urllib.parse import unquote

import msgspec
import pytest

from shared.errors import BadEventError
from shared.events import (
    Event,
    EventType,
    SyncMarker,
    cluster_id_of,
    decode,
    decode_marker,
    digest8,
    encode,
    encode_marker,
)
from shared.objects import Kind, ObjectKey

EVENT = Event(
    type=EventType.UPDATED,
    key=ObjectKey(Kind.ISVC, "team-a", "iris"),
    uid="5a1e",
    epoch=1764500000,
    resource_version="4210",
    digest="v1:0123456789abcdef",
    models=("1", "7"),
    cluster_id="c-1",
    time="2026-11-30T10:00:05Z",
)
SYNTHETIC = msgspec.structs.replace(EVENT, type=EventType.DELETED, corrects=91)


def test_headers_are_those_of_cloudevents_in_binary_mode():
    assert encode(EVENT) == {
        "ce-specversion": "1.0",
        "ce-id": "5a1e:1764500000:4210:01234567:u",
        "Nats-Msg-Id": "5a1e:1764500000:4210:01234567:u",
        "ce-source": "/clusters/c-1",
        "ce-type": "io.kserve.inferenceservice.updated.v1",
        "ce-subject": "team-a/iris",
        "ce-time": "2026-11-30T10:00:05Z",
        "ce-datacontenttype": "application/json",
        "ce-kind": "isvc",
        "ce-namespace": "team-a",
        "ce-name": "iris",
        "ce-uid": "5a1e",
        "ce-resourceversion": "4210",
        "ce-epoch": "1764500000",
        "ce-digest": "v1:0123456789abcdef",
        "ce-models": "1,7",
        "ce-sequence": "00000000000000004210",
        "ce-partitionkey": "isvc/team-a/iris",
    }


def test_a_synthetic_event_says_so_and_names_what_it_corrects():
    extra = {name: value for name, value in encode(SYNTHETIC).items() if name not in encode(EVENT)}
    assert extra == {"ce-synthetic": "true"}
    assert encode(SYNTHETIC)["ce-id"] == "5a1e:1764500000:4210:01234567:d:91"


def test_a_synthetic_event_that_corrects_no_entry_names_zero():
    headers = encode(msgspec.structs.replace(SYNTHETIC, corrects=0))
    assert headers["ce-synthetic"] == "true"
    assert headers["Nats-Msg-Id"].endswith(":d:0")
    assert decode(headers).corrects == 0


def test_a_truncated_event_says_so():
    assert encode(msgspec.structs.replace(EVENT, truncated=True))["ce-truncated"] == "true"


@pytest.mark.parametrize(
    ("kind", "verb", "written"),
    [
        (Kind.ISVC, EventType.CREATED, "io.kserve.inferenceservice.created.v1"),
        (Kind.ISVC, EventType.DELETED, "io.kserve.inferenceservice.deleted.v1"),
        (Kind.LLMISVC, EventType.UPDATED, "io.kserve.llminferenceservice.updated.v1"),
    ],
)
def test_the_type_names_kind_and_verb(kind, verb, written):
    event = msgspec.structs.replace(EVENT, type=verb, key=ObjectKey(kind, "a", "b"))
    assert encode(event)["ce-type"] == written


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "other"},
        {"epoch": 1764500001},
        {"resource_version": "4211"},
        {"digest": "v1:f123456789abcdef"},
        {"type": EventType.CREATED},
        {"corrects": 0},
        {"corrects": 90},
    ],
)
def test_the_id_changes_with_each_of_its_parts(change):
    assert msgspec.structs.replace(EVENT, **change).id != EVENT.id


def test_the_id_is_the_same_whoever_publishes_the_change_and_when():
    assert msgspec.structs.replace(EVENT, time="2030-01-01T00:00:00Z", models=(), truncated=True).id == EVENT.id


@pytest.mark.parametrize(
    ("raw", "encoded"),
    [
        (" ", "%20"),
        ('"', "%22"),
        ("%", "%25"),
        ("ä", "%C3%A4"),
        ("雪", "%E9%9B%AA"),
        ("\x7f", "%7F"),
        ("\n", "%0A"),
        ("!#$&'()*+,-./:;<=>?@[]^_`{|}~", "!#$&'()*+,-./:;<=>?@[]^_`{|}~"),
    ],
)
def test_values_are_percent_encoded_where_cloudevents_wants_it(raw, encoded):
    headers = encode(msgspec.structs.replace(EVENT, uid=raw))
    assert headers["ce-uid"] == encoded
    assert headers["ce-id"].startswith(encoded)


def random_event(chance: random.Random) -> Event:
    def text(minimum: int = 1) -> str:
        return "".join(chance.choices("aZ09-._:/%, =\"'äß雪\x01😀", k=chance.randrange(minimum, 12)))

    synthetic = chance.random() < 0.5
    return Event(
        type=chance.choice(list(EventType)),
        key=ObjectKey(chance.choice(list(Kind)), text(), text()),
        uid=text(),
        epoch=chance.randrange(2**40),
        resource_version=str(chance.randrange(1, 10 ** chance.randrange(1, 30))),
        digest="v1:" + text(),
        models=tuple(str(chance.randrange(1, 100)) for _ in range(chance.randrange(4))),
        cluster_id=text(),
        time=text(),
        corrects=chance.randrange(2**63) if synthetic else None,
        truncated=chance.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_is_encoded_decodes_to_the_same(seed):
    chance = random.Random(seed)
    for _ in range(100):
        event = random_event(chance)
        headers = encode(event)
        assert decode(headers) == event
        assert all(value.isascii() and value.isprintable() and " " not in value for value in headers.values())


@pytest.mark.parametrize("change", [str.upper, str.title, str.lower])
def test_header_names_are_read_whatever_their_case(change):
    assert decode({change(name): value for name, value in encode(SYNTHETIC).items()}) == SYNTHETIC


@pytest.mark.parametrize("digits", [1, 19, 20, 25])
def test_the_sequence_is_the_resource_version_at_a_width_that_compares_as_text(digits):
    version = "9" * digits
    sequence = encode(msgspec.structs.replace(EVENT, resource_version=version))["ce-sequence"]
    assert sequence == version.zfill(20)


READ = (
    "ce-type", "ce-kind", "ce-namespace", "ce-name", "ce-uid", "ce-epoch", "ce-resourceversion", "ce-digest",
    "ce-models", "ce-source", "ce-time", "ce-id",
)  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_missing_header_is_named(name):
    headers = encode(SYNTHETIC)
    del headers[name]
    with pytest.raises(BadEventError, match=rf"\b{name}\b"):
        decode(headers)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce-type", ""),
        ("ce-type", "io.kserve"),
        ("ce-type", "io.kserve.inferenceservice.renamed.v1"),
        ("ce-kind", "pod"),
        ("ce-kind", ""),
        ("ce-epoch", "soon"),
        ("ce-epoch", ""),
        ("ce-epoch", "9" * 5000),
        ("ce-id", "5a1e:1764500000:4210:01234567:d"),
        ("ce-id", ""),
        ("ce-uid", ""),
        ("ce-digest", ""),
        ("ce-resourceversion", ""),
        ("ce-resourceversion", "0x1"),
        ("ce-resourceversion", "007"),
    ],
)
def test_a_broken_header_is_named(name, value):
    # resourceVersion is the field's own name, with and without the prefix of the header
    words = rf"\b({name}|{name.removeprefix('ce-').replace('version', 'Version')})\b"
    with pytest.raises(BadEventError, match=words) as refused:
        decode(encode(SYNTHETIC) | {name: value})
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("headers", [None, {}, {"Nats-Msg-Id": "x"}])
def test_a_message_without_our_headers_is_no_event(headers):
    with pytest.raises(BadEventError, match="missing"):
        decode(headers)


def test_a_digest_is_named_by_its_first_eight_digits():
    assert digest8("v1:0123456789abcdef") == "01234567"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (None, None),
        ({}, None),
        ({"ce-type": "x"}, None),
        (encode(EVENT), "c-1"),
        ({"CE-Source": "/clusters/a%20b"}, "a b"),
    ],
)
def test_any_message_says_which_cluster_it_is_from(headers, found):
    assert cluster_id_of(headers) == found


@pytest.mark.parametrize("scope", [(), ("team-a", "team-b")])
@pytest.mark.parametrize("kind", list(Kind))
def test_a_sync_marker_comes_back_as_it_was(kind, scope):
    marker = SyncMarker(scope, "4300", 1764500000)
    headers, body = encode_marker(marker, kind=kind, cluster_id="c 1", time="2026-11-30T10:00:05Z")
    assert decode_marker(headers, body) == ("c 1", marker)
    assert unquote(headers["ce-source"]) == "/clusters/c 1"
    assert headers["ce-type"] == f"io.kserve.{kind.kubernetes_kind.lower()}.synced.v1"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (None, b'{"scope": [], "resourceVersion": "1", "epoch": 1}'),
        ({"ce-source": "/clusters/c"}, b""),
        ({"ce-source": "/clusters/c"}, b'{"scope": ["\xff"], "resourceVersion": "1", "epoch": 1}'),
        ({"ce-source": "/clusters/c"}, b'{"scope": []}'),
        ({"ce-source": "/clusters/c"}, b'{"scope": 1, "resourceVersion": "1", "epoch": 1}'),
    ],
)
def test_a_broken_sync_marker_is_refused(headers, body):
    with pytest.raises(BadEventError, match="sync marker"):
        decode_marker(headers, body)
