"""docs/isvc-capture-1.schema.json describes every line that we write, and nothing that we could not read."""

import json
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
from msgspec.structs import replace

from consumer import actions
from consumer.discovery import DiscoverySettings, Rule, Service
from replay.capture import Captured, CaptureError, Deciding, Footer, decode, encode
from replay.files import reading
from replay.upkeep.anonymity import Anonymizer
from replay.upkeep.redaction import Redactor
from tests.unit.replay.captures import ACTION, FACTS, HEADER, first_event, story
from tests.unit.shared.captured import stories

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "isvc-capture-1.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GOLDEN = sorted((ROOT / "tests" / "captures" / "golden").glob("*.jsonl*"))
SERVICE = Service("ns", "registry", {"component": "model-registry"}, {}, {"http-api": 8080})
DISCOVERY = DiscoverySettings(prefix=HEADER.deciding.prefix, url="http://r:8080", rules=(Rule("*", ("ns/registry",)),))
FULL = replace(HEADER, stream="ISVC_EVENTS", first_seq=7, deciding=Deciding(discovery=DISCOVERY, services=(SERVICE,)))


def faults(text: bytes) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(json.loads(text))]


def test_there_are_golden_captures():
    assert len(GOLDEN) >= 20


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("line", [HEADER, FULL, FACTS, ACTION, Footer(0, 0)], ids=lambda line: type(line).__name__)
def test_every_kind_of_line_fits(line):
    assert faults(encode(line)) == []


@pytest.mark.parametrize("name", stories())
def test_every_line_of_every_story_fits_also_when_it_is_anonymous(name):
    anonymous = Redactor(HEADER, Anonymizer(b"s", HEADER))
    for line in story(name):
        assert faults(encode(line)) == []
        assert faults(anonymous.line(line)) == []


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_every_line_of_the_golden_captures_fits(path):
    with reading(path) as capture:
        assert faults(capture.header_text) == []
        assert [faults(text) for _, text in capture.with_text()] == [[]] * (capture.number - 1)


def test_what_a_later_release_adds_fits():
    for text in (encode(HEADER), encode(first_event()), encode(FACTS)):
        assert faults(text[:-1] + b',"later":{"a":1}}') == []


BROKEN = {
    "a newer format": encode(HEADER).replace(b"capture/1", b"capture/2"),
    "an event without uid": encode(first_event()).replace(b'"uid":', b'"iud":'),
    "a version that is no number": encode(first_event()).replace(b'"resourceversion":"', b'"resourceversion":"x'),
    "an event of another type": encode(first_event()).replace(b".created.", b".born."),
    "a record with a number for an id": encode(FACTS).replace(b'"17"', b"17"),
    "a footer without a count": b'{"footer":{}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_read_does_not_fit(text):
    assert faults(text) != []
    with pytest.raises(CaptureError):
        decode(text)


def test_every_member_that_is_written_is_described():
    event = first_event()
    full = Captured(replace(event.event, corrects=3, truncated=True), event.data, event.position, True, "00-1-2-01")
    described = SCHEMA["$defs"]
    assert set(json.loads(encode(full))) <= set(described["event"]["properties"])
    assert set(json.loads(encode(FULL))) <= set(described["header"]["properties"])
    for kind, name in ((FACTS, "facts"), (ACTION, "action"), (Footer(0, 0), "footer")):
        assert set(type(kind).__struct_encode_fields__) == set(described[name]["properties"])


def test_each_kind_of_action_is_named_to_whoever_writes_one():
    decisions = {each.__name__ for each in get_args(actions.Action)}
    described = SCHEMA["$defs"]["action"]["properties"]["kind"]["description"]
    page = (ROOT / "docs" / "replay-record.md").read_text()
    for kind in (*decisions, "ack", "retry", "dead"):
        assert kind in described
        assert f"`{kind}`" in page
