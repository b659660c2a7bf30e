"""What a record of the registry says, and what is not ours in it."""

import msgspec
import pytest
from msgspec.structs import replace

from consumer.freshness import Freshness
from consumer.records import (
    PROPERTY,
    Record,
    Stamp,
    VersionChange,
    base_name,
    encode_stamp,
    external_id,
    string_property,
)  # fmt: skip
from tests.unit.consumer.worlds import KEY

STAMP = Stamp(
    cluster="prod-a", cluster_id="c-1", kind="isvc", namespace="team-a", name="iris", uid="5a1e", epoch=7,
    resource_version="41", history=(VersionChange("11", "40", "t"),),
)  # fmt: skip
RECORD = Record("7", "iris/5a1e", "kserve:5a1e/1", "3", "1", properties={PROPERTY: encode_stamp(STAMP)})


def with_property(value):
    return replace(RECORD, properties={PROPERTY: value})


def test_a_stamp_comes_back_as_it_was_written():
    assert RECORD.stamp == STAMP
    assert RECORD.stamp.freshness == Freshness(7, "41")
    assert with_property(encode_stamp(replace(STAMP, deleted=True))).stamp.freshness == Freshness(7, "41", deleted=True)


def test_a_stamp_is_a_string_property_of_sorted_json():
    written = encode_stamp(STAMP)
    assert written["metadataType"] == "MetadataStringValue"
    assert list(msgspec.json.decode(written["string_value"])) == sorted(msgspec.json.decode(written["string_value"]))
    assert msgspec.json.decode(written["string_value"])["resourceVersion"] == "41"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [],
        {},
        {"metadataType": "MetadataIntValue", "int_value": "3"},
        {"string_value": None},
        {"string_value": ""},
        {"string_value": "hand-made"},
        {"string_value": "[]"},
        {"string_value": '{"cluster": "c"}'},
        encode_stamp(replace(STAMP, resource_version="")),
        encode_stamp(replace(STAMP, resource_version="new")),
        encode_stamp(replace(STAMP, resource_version="007")),
    ],
    ids=repr,
)
def test_what_does_not_decode_is_no_stamp(value):
    assert with_property(value).stamp is None


def test_a_record_without_our_property_has_no_stamp():
    assert replace(RECORD, properties={}).stamp is None


def test_a_stamp_of_a_later_version_of_ours_is_read():
    text = encode_stamp(STAMP)["string_value"].replace("{", '{"someday":1,', 1)
    assert with_property(string_property(text)).stamp == STAMP


@pytest.mark.parametrize(
    ("value", "url"), [(string_property("http://x"), "http://x"), (None, ""), ({"int_value": "3"}, "")]
)
def test_the_url_is_a_property_that_others_know(value, url):
    assert replace(RECORD, properties={"url": value}).url == url


def test_the_names_are_those_of_the_design():
    assert external_id("5a1e", "1") == "kserve:5a1e/1"
    assert base_name(KEY, "5a1e") == "iris/5a1e"


@pytest.mark.parametrize(
    ("history", "versions"),
    [((), ()), (("11", "", "12"), ("11", "", "12")), (("",), ()), (("", "11"), ("11",))],
)
def test_a_first_period_without_a_version_is_none_of_the_versions_of_a_history(history, versions):
    changes = tuple(VersionChange(each, "1", "t") for each in history)
    assert replace(STAMP, history=changes).versions == versions
