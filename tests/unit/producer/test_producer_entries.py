"""Entries go into the packed form and come back the same, whatever they hold."""

import msgspec
import pytest

from producer.changes import Entry
from producer.entries import Entries
from shared.objects import Kind, ObjectKey

KEY = ObjectKey(Kind.ISVC, "team-a", "fraud")
OTHER = ObjectKey(Kind.LLMISVC, "team-a", "fraud")
ENTRY = Entry(
    uid="efad524f-5c93-4bf0-84f3-717e5c06f97b",
    epoch=1_764_500_000,
    resource_version="500000123",
    digest="v1:" + "0f" * 32,
    models=("12", "7"),
    deleted_at=0,
    sequence=99_999,
)


def but(**changes) -> Entry:
    return msgspec.structs.replace(ENTRY, **changes)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(ENTRY, id="usual"),
        pytest.param(but(deleted_at=1_764_500_001), id="deleted"),
        pytest.param(but(epoch=0, sequence=0, models=()), id="new"),
        pytest.param(but(uid="u1"), id="uid that is no UUID"),
        pytest.param(but(uid="EFAD524F-5c93-4bf0-84f3-717e5c06f97b"), id="uid in capitals"),
        pytest.param(but(uid="efad524f5c934bf084f3717e5c06f97b"), id="uid without hyphens"),
        pytest.param(but(uid="é"), id="uid that is no ASCII"),
        pytest.param(but(resource_version="9" * 18), id="longest version that is packed"),
        pytest.param(but(resource_version="1" + "0" * 40), id="version of many digits"),
        pytest.param(but(resource_version="007"), id="version with zeros in front"),
        pytest.param(but(resource_version="\u0667"), id="version in other digits"),
        pytest.param(but(digest="v2:" + "0f" * 32), id="digest of another version"),
        pytest.param(but(digest="v1:" + "0F" * 32), id="digest in capitals"),
        pytest.param(but(digest="v1:0f 0f"), id="digest with a blank"),
        pytest.param(but(digest="0f" * 32), id="digest without version"),
        pytest.param(but(digest="d"), id="digest that is none"),
        pytest.param(but(models=("012", "x", "99999999999")), id="models that are no ids"),
    ],
)
def test_an_entry_comes_back_as_it_was(entry):
    assert Entries({KEY: entry})[KEY] == entry


def test_a_key_has_one_entry_and_kinds_are_apart():
    entries = Entries({KEY: ENTRY, OTHER: but(uid="u2")})
    entries[KEY] = but(sequence=100_000)
    assert dict(entries) == {KEY: but(sequence=100_000), OTHER: but(uid="u2")}


def test_what_was_taken_out_is_not_there():
    entries = Entries({KEY: ENTRY, OTHER: ENTRY})
    del entries[KEY]
    assert (KEY in entries, entries.get(KEY), list(entries), len(entries)) == (False, None, [OTHER], 1)


@pytest.mark.parametrize(
    ("change", "living"),
    [
        (lambda entries: None, 2),
        (lambda entries: entries.update({KEY: but(deleted_at=5)}), 1),
        (lambda entries: entries.update({KEY: but(sequence=5)}), 2),
        (lambda entries: entries.pop(KEY), 1),
        (lambda entries: (entries.update({KEY: but(deleted_at=5)}), entries.pop(KEY)), 1),
        (lambda entries: (entries.update({KEY: but(deleted_at=5)}), entries.update({KEY: ENTRY})), 2),
    ],
    ids=["as given", "deleted", "changed", "taken out", "deleted and taken out", "deleted and alive again"],
)
def test_the_living_are_counted_through_every_change(change, living):
    entries = Entries({KEY: ENTRY, OTHER: ENTRY})
    change(entries)
    assert (entries.living, len(list(entries.living_keys()))) == (living, living)


def test_tombstones_are_what_is_deleted():
    entries = Entries({KEY: ENTRY, OTHER: but(deleted_at=5)})
    assert (list(entries.tombstones()), list(entries.living_keys())) == ([(OTHER, but(deleted_at=5))], [KEY])


def test_walks_by_epoch_take_only_those_of_it():
    old = but(epoch=1, resource_version="77")
    entries = Entries({KEY: ENTRY, OTHER: old})
    assert list(entries.before(ENTRY.epoch)) == [(OTHER, old)]
    assert (list(entries.versions_in(1)), list(entries.versions_in(2))) == (["77"], [])


def test_unlike_are_those_that_the_other_does_not_say_alike():
    ours = Entries({KEY: ENTRY, OTHER: ENTRY})
    assert list(ours.unlike(Entries({KEY: ENTRY}))) == [(OTHER, ENTRY)]
    assert list(ours.unlike(Entries({KEY: but(models=()), OTHER: ENTRY}))) == [(KEY, ENTRY)]
    assert list(ours.unlike(ours)) == []
