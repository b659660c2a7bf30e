"""No secret gets into a capture file, wherever it stood; what decisions need stays."""

import gzip
import itertools
import json
import re

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from consumer.discovery import DiscoverySettings, Service
from consumer.records import Record, Stamp, encode_stamp
from replay.capture import Captured, Deciding, Facts, Position, RecordFact, decode, encode
from replay.files import reading, writing
from replay.recording.watchfile import captured
from replay.upkeep.redaction import Redactor
from shared.errors import BadEventError
from tests.e2e.planted import NEEDLE, planted, planted_llm, secret, secret_uri
from tests.unit.replay.captures import ACTION, CLUSTER_ID, HEADER, first_event, small, story
from tests.unit.shared.captured import stories

STAMP = Stamp(
    cluster="prod", cluster_id=CLUSTER_ID, kind="isvc", namespace="vault", name="scorer", uid="u1", epoch=1,
    resource_version="7", storage_uri="s3://models/iris",
)  # fmt: skip


def planted_objects():
    kinds = [planted("vault/scorer", "1"), planted("vault/odd", "latest"), planted_llm("vault/chat")]
    for number, obj in enumerate(kinds):
        metadata = {"uid": f"uid-{number}", "resourceVersion": str(5 + number), "generation": 1}
        metadata["creationTimestamp"] = "2026-11-30T00:00:00Z"
        obj["metadata"] |= metadata
        obj["metadata"]["annotations"]["modelregistry.kubeflow.org/url"] = secret_uri("http")
        yield obj


def watch_file(what):
    """Return a watch file in which the objects come, change and go."""
    for kind, obj in itertools.product(("ADDED", "MODIFIED", "DELETED"), planted_objects()):
        obj["metadata"]["resourceVersion"] += {"ADDED": "0", "MODIFIED": "1", "DELETED": "2"}[kind]
        yield what({"type": kind, "object": obj})


def planted_facts():
    stamp = encode_stamp(replace(STAMP, storage_uri=secret_uri("s3")))
    stamp["string_value"] = stamp["string_value"][:-1] + f',"later":"{secret()}"}}'
    properties = {
        "url": {"metadataType": "MetadataStringValue", "string_value": secret_uri("https")},
        "isvc-sync": stamp,
        "owner": {"metadataType": "MetadataStringValue", "string_value": secret()},
        "odd": secret(),
        "nested": {"metadataType": "MetadataStructValue", "struct_value": {"a": [secret()]}},
    }
    record = RecordFact(id="17", name="scorer/u1", environment="vault", model_id="1", properties=properties)
    by_hand = replace(record, properties={"isvc-sync": {"string_value": f'{{"x": "{secret()}'}})
    return Facts(registry=secret_uri("http"), records=(record, by_hand))


def planted_header():
    labels = {"component": "model-registry", "token": secret()}
    annotations = {"routing.kubeflow.org/external-address-rest": f"u:{secret()}@host.example.com:443", "x": secret()}
    service = Service("kubeflow", "registry", labels, annotations, {"http-api": 8080})
    discovery = DiscoverySettings(prefix=HEADER.deciding.prefix, url=secret_uri("http"))
    return replace(HEADER, deciding=Deciding(discovery=discovery, services=(service,)))


def planted_event():
    """An event of a producer that reduced nothing."""
    event = first_event()
    raw = next(planted_objects())
    return Captured(event.event, msgspec.json.encode(raw), Position(1), traceparent=secret())


PACKED = {
    "x.jsonl": lambda data: data,
    "x.jsonl.gz": gzip.decompress,
    "x.jsonl.zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.mark.parametrize("form", PACKED)
def test_no_secret_stands_in_the_bytes_of_a_file(tmp_path, form):
    documents = list(watch_file(lambda event: json.dumps(event, indent=4).encode() + b"\n"))
    assert b"".join(documents).count(NEEDLE.encode()) > 700, "the secrets are there"
    said = []
    lines = list(captured(b"".join(documents).splitlines(keepends=True), CLUSTER_ID, tell=said.append))
    lines += [planted_facts(), planted_event(), replace(ACTION, reason=f"GET {secret_uri('http')}: Bearer {secret()}")]
    redactor = Redactor(planted_header())
    with writing(tmp_path / form, redactor.header_text()) as writer:
        for line in lines:
            writer.write_text(redactor.line(line), line)
    found = PACKED[form]((tmp_path / form).read_bytes())
    assert len(lines) > 10
    assert b"vault" in found
    assert re.findall(rb".{40}" + NEEDLE.encode() + rb"\d+x", found) == []
    assert NEEDLE not in "".join(said)


def test_no_secret_stands_in_what_is_said_of_a_broken_watch_file():
    said = []
    for obj in planted_objects():
        del obj["metadata"]["uid"]
        odd = [{"type": "ADDED", "object": obj}, {"type": "ERROR", "object": {"code": 410, "message": secret()}}]
        odd += [{"type": "ADDED", "object": obj | {"kind": secret()}}]
        list(captured([json.dumps(each).encode() for each in odd], CLUSTER_ID, tell=said.append))
    assert len(said) == 9
    assert NEEDLE not in "".join(said)


@pytest.mark.parametrize("name", stories())
def test_what_is_reduced_already_is_not_changed(name):
    redactor = Redactor(HEADER)
    for line in story(name):
        assert json.loads(redactor.line(line)) == json.loads(encode(line))


def test_redacting_twice_changes_nothing(tmp_path):
    redactor = Redactor(planted_header())
    once = [redactor.line(planted_facts()), redactor.line(planted_event())]
    assert [redactor.line(decode(line)) for line in once] == once


def test_of_a_user_property_only_its_name_and_type_stay():
    record = decode(Redactor(HEADER).line(planted_facts())).records[0]
    assert record.properties["owner"] == {"metadataType": "MetadataStringValue", "string_value": "***"}
    assert record.properties["odd"] == {"metadataType": "MetadataStringValue", "string_value": "***"}
    assert record.properties["url"]["string_value"] == "https://host.example.com/models/iris"


def test_our_own_property_stays_but_for_what_is_secret_in_it():
    found, by_hand = decode(Redactor(HEADER).line(planted_facts())).records

    def stamp(fact):
        return Record("17", "n", "", "3", "1", properties=fact.properties).stamp

    assert stamp(found) == replace(STAMP, storage_uri="s3://host.example.com/models/iris")
    assert stamp(by_hand) is None


def test_a_count_of_annotations_that_were_left_out_stays():
    event = first_event()
    assert event.obj.metadata.has_annotations
    bare = event.data.replace(b'"serving.kserve.io/deploymentMode":"Standard"', b"")
    again = decode(Redactor(HEADER).line(Captured(event.event, bare, event.position)))
    assert again.obj.metadata.annotations == {}
    assert again.obj.metadata.has_annotations


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"metadata":{}}', b'"\xff"', b'{"a":' + b"[" * 9999])
def test_an_object_that_cannot_be_reduced_is_refused(data):
    with pytest.raises(BadEventError):
        Redactor(HEADER).line(Captured(first_event().event, data, Position(1)))


def test_what_this_release_does_not_know_stays_without_credentials():
    redactor = Redactor(HEADER)
    text = encode(first_event())[:-1] + b',"later":{"uri":"s3://u:hush@b/x?hush","auth":"Bearer hushhush"}}'
    assert json.loads(redactor.rewritten(decode(text), text))["later"] == {"uri": "s3://b/x", "auth": "Bearer ***"}
    assert redactor.rewritten(None, b'{"weather":"s3://u:hush@b"}') == b'{"weather":"s3://b"}'


def test_a_redacted_file_is_a_capture(tmp_path):
    redactor = Redactor(HEADER)
    with writing(tmp_path / "x", redactor.header_text()) as writer:
        for line in small():
            writer.write_text(redactor.line(line), line)
    with reading(tmp_path / "x") as capture:
        assert list(capture)[:-1] == small()
    assert capture.cut is None
