"""What a registry holds after a replay, against what the capture says."""

import msgspec
import pytest
from msgspec.structs import replace

from consumer.records import PROPERTY, Record, encode_stamp
from replay.target.outcome import Held, rows
from shared.objects import Kind, ObjectKey
from tests.unit.replay.replayed import KEY, end

OTHER = ObjectKey(Kind.ISVC, "team-a", "other")
OBJECTS = {KEY: {"u-1"}, OTHER: {"u-2"}}


def held(facts=None, **changes):
    """Return the registry's records as the capture has them, but with ids of its own; `changes` are of the first."""
    records = [
        Record(
            id=f"9{fact.id}",
            name=fact.name,
            external_id=fact.external_id,
            environment_id="4",
            model_id=fact.model_id,
            version_id=fact.version_id,
            runtime=fact.runtime,
            deployed=fact.deployed,
            properties=fact.properties,
        )
        for fact in (facts or end()).records
    ]
    return [Held(replace(records[0], **changes), "team-a"), Held(records[1], "team-a")]


def differing(held_records, expected=None):
    return [
        (row.key.name, each.field, each.captured, each.replayed)
        for row in rows(OBJECTS, held_records, [expected or end()], {})
        for each in row.differences
    ]


def test_the_same_content_under_other_ids_agrees():
    found = rows(OBJECTS, held(), [end()], {})
    assert [(row.key, row.record.id, row.agrees) for row in found] == [(KEY, "971", True), (OTHER, "972", True)]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"deployed": True}, "state"),
        ({"model_id": "8"}, "model"),
        ({"version_id": ""}, "version"),
        ({"runtime": "mine"}, "runtime"),
    ],
)
def test_a_field_that_differs_is_named(changes, field):
    assert [each[:2] for each in differing(held(**changes))] == [("iris", field)]


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": True},
        {"storage_uri": "s3://other"},
        {"model_version": "2"},
        {"history": ()},
        {"undeployed_at": ""},
        {"load_failure": "InvalidSpec"},
        {"deleted": False},
    ],
)
def test_what_differs_in_our_property_is_named(changes):
    assert len(differing(held(end(**changes)))) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_version": "99"},
        {"epoch": 1_800_000_000},
        {"digest": "v1:ff"},
        {"generation": 7},
        {"undeployed_at": "2026-12-01T00:00:00Z"},
        {"deployed_at": ""},
    ],
)
def test_what_depends_on_the_states_passed_over_is_no_difference(changes):
    assert differing(held(end(**changes))) == []


def test_the_users_own_properties_count():
    properties = end().records[0].properties | {"team": {"string_value": "x"}}
    assert [each[1] for each in differing(held(properties=properties))] == ["properties"]


def test_a_missing_record_differs_in_all_that_it_said():
    found = rows(OBJECTS, held()[1:], [end()], {})
    assert (found[0].record, found[0].agrees) == (None, False)
    assert ("iris", "state", "UNDEPLOYED", "") in differing(held()[1:])


def test_a_record_too_many_differs():
    assert [row.agrees for row in rows({OTHER: {"u-2"}}, held(), [replace(end(), records=())], {})] == [False]


def test_an_object_without_record_agrees_when_none_was_captured():
    (row,) = rows({OTHER: {"u-9"}}, held(), [end()], {})
    assert (row.record, row.agrees) == (None, True)


def test_without_anything_to_compare_with_nothing_is_said_about_agreement():
    assert {row.agrees for row in rows(OBJECTS, held(), None, {})} == {None}


def test_each_record_of_an_object_is_a_row():
    second = replace(held()[0].record, id="5", name="iris/u-1/8", external_id="kserve:u-1/8", model_id="8")
    found = rows({KEY: {"u-1"}}, [*held(), Held(second, "team-a")], None, {})
    assert [row.record.id for row in found] == ["971", "5"]


def test_a_record_without_external_id_is_found_by_its_name():
    assert [row.record.id for row in rows({KEY: {"u-1"}}, held(external_id=""), None, {})] == ["971"]


def test_the_reason_of_a_dead_letter_stands_beside_its_object():
    found = rows(OBJECTS, held(), None, {"isvc/team-a/other": "no such model"})
    assert [row.dead for row in found] == ["", "no such model"]


def test_our_property_is_compared_by_what_it_says_and_not_by_its_text():
    stamp = held()[0].record.stamp
    text = msgspec.json.format(encode_stamp(stamp)["string_value"].encode(), indent=4).decode()
    spelt = held()[0].record.properties | {PROPERTY: encode_stamp(stamp) | {"string_value": text}}
    assert differing(held(properties=spelt)) == []
