"""The lines of a capture: what is written can be read, what is not known stays, what is too new is refused."""

import json

import pytest

from replay.capture import (
    Action,
    Captured,
    CaptureError,
    Facts,
    Footer,
    Header,
    decode,
    encode,
)
from replay.upkeep.rewriting import encode_over
from tests.unit.replay.captures import ACTION, FACTS, HEADER, first_event, story
from tests.unit.shared.captured import stories


@pytest.mark.parametrize("name", stories())
def test_every_line_of_every_story_is_read_as_it_was_written(name):
    lines = list(story(name))
    assert any(isinstance(line, Captured) for line in lines)
    assert [decode(encode(line)) for line in lines] == lines


@pytest.mark.parametrize("line", [HEADER, FACTS, ACTION, Footer(8, 9)], ids=lambda line: type(line).__name__)
def test_a_line_is_read_as_it_was_written(line):
    assert decode(encode(line)) == line


def test_an_event_is_a_structured_cloud_event_that_other_tools_can_read():
    line = json.loads(encode(first_event()))
    assert line["specversion"] == "1.0"
    assert line["type"] == "io.kserve.inferenceservice.created.v1"
    assert line["partitionkey"] == "isvc/credit/scorer"
    assert line["data"]["metadata"]["name"] == "scorer"
    assert line["nats"]["seq"] == 1


def test_a_name_with_a_percent_sign_survives():
    event = first_event()
    text = encode(event).replace(b"credit", b"cre%64it")
    assert decode(text).event.key.namespace == "cre%64it"
    assert encode(decode(text)) == text


def test_the_trace_of_an_event_survives():
    line = decode(encode(first_event())[:-1] + b',"traceparent":"00-1-2-01"}')
    assert line.traceparent == "00-1-2-01"
    assert decode(encode(line)) == line


@pytest.mark.parametrize(
    ("line", "kind"),
    [(HEADER, Header), (FACTS, Facts), (ACTION, Action), (Footer(1, 1), Footer)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_members_that_this_release_does_not_know_stay_when_a_line_is_written_again(line, kind):
    document = json.loads(encode(line))
    inner = document if kind is Header else document[kind.__name__.lower()]
    inner["later"] = {"a": [1]}
    document["beside"] = 1
    text = json.dumps(document).encode()
    assert json.loads(encode_over(decode(text), text)) == document


def test_members_of_an_event_stay_and_what_changed_is_changed():
    text = encode(first_event())[:-1] + b',"later":{"a":1},"initial":true}'
    changed = Captured(first_event().event, b"{}", first_event().position)
    written = json.loads(encode_over(changed, text))
    assert written["later"] == {"a": 1}
    assert written["data"] == {}
    assert "initial" not in written


def test_a_line_of_a_kind_that_this_release_does_not_know_is_none():
    assert decode(b'{"weather":{"sun":true}}') is None


@pytest.mark.parametrize("capture", ["isvc-capture/2", "isvc-capture/10", "isvc-capture/1.1"])
def test_a_newer_format_is_refused(capture):
    with pytest.raises(CaptureError, match=f"is of format '{capture}'.*use a newer isvc-sync"):
        decode(encode(HEADER).replace(b"isvc-capture/1", capture.encode()))


def test_another_format_is_refused():
    with pytest.raises(CaptureError, match="is no capture"):
        decode(b'{"capture":"pcap/1"}')


BROKEN = {
    "no JSON": b"hello",
    "no object": b"[1]",
    "null": b"null",
    "deep": b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no UTF-8": b'{"specversion":"\xff"}',
    "facts of another type": b'{"facts":[]}',
    "an id that is none": encode(FACTS).replace(b'"17"', b"17"),
    "an event without uid": encode(first_event()).replace(b'"uid":', b'"iud":', 1),
    "a version that is no number": encode(first_event()).replace(b'"resourceversion":"8', b'"resourceversion":"x'),
    "an event without data": encode(first_event()).replace(b'"data":', b'"date":'),
    "a sequence that is no number": encode(first_event()).replace(b'"seq":1', b'"seq":"1"'),
    "an epoch that is no number": encode(first_event()).replace(b'"epoch":"', b'"epoch":"x'),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_line_that_does_not_decode_says_so_in_a_sentence(text):
    with pytest.raises(CaptureError, match="does not decode"):
        decode(text)
