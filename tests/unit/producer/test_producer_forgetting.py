"""Which tombstones are old enough to be forgotten, and what the inventory knows of them."""

import msgspec
import pytest

from producer.forgetting import FORGET_AFTER_S, due
from tests.unit.producer.inventories import DELETED, EPOCH, NOW_S, UPDATED, A, full_pass, inventory, known, live, said
from tests.unit.producer.observed import observed

LATER_S = NOW_S + FORGET_AFTER_S


@pytest.mark.parametrize(
    ("entry", "now_s", "is_due"),
    [
        pytest.param(known(A, deleted=True), LATER_S, True, id="a week old"),
        pytest.param(known(A, deleted=True), LATER_S - 1, False, id="a second younger"),
        pytest.param(known(A), LATER_S, False, id="alive"),
        pytest.param(known(A, deleted=True, sequence=0), LATER_S, False, id="nowhere in the stream"),
    ],
)
def test_a_tombstone_is_due_a_week_after_its_delete(entry, now_s, is_due):
    assert bool(due(inventory(entry).tombstones(), now_s)) is is_due


def test_a_delete_is_as_old_as_when_it_was_seen():
    made = inventory(known(A), known(observed("b", uid="u2")))
    made.remove(observed("a", version=12), now_s=NOW_S + 1)
    full_pass(made)
    assert {key.name: entry.deleted_at for key, entry in made.entries.items()} == {"a": NOW_S + 1, "b": NOW_S}


def test_a_tombstone_under_way_is_not_due_although_its_predecessor_is_in_the_stream():
    made = inventory(known(A))
    made.remove(observed("a", version=12), now_s=NOW_S)
    assert made.tombstones() == []
    made.acknowledged(A.key, 8)
    assert [entry.sequence for _, entry in made.tombstones()] == [8]


def test_a_tombstone_is_under_way_until_the_last_message_about_its_object_is_acknowledged():
    made = inventory()
    live(made, A)
    made.remove(observed("a", version=12), now_s=NOW_S)
    made.acknowledged(A.key, 8)
    assert made.tombstones() == []
    made.acknowledged(A.key, 9)
    assert [entry.sequence for _, entry in made.tombstones()] == [9]


def test_a_reload_begins_when_nothing_is_under_way():
    made = inventory()
    made.remove(A, now_s=NOW_S)
    made.reload(dict([known(A, deleted=True)]))
    assert [entry.sequence for _, entry in made.tombstones()] == [7]


def tombstone(made):
    return made.entries[A.key]


def test_what_was_purged_is_forgotten():
    made = inventory(known(A, deleted=True))
    made.forget(A.key, tombstone(made))
    assert len(made) == 0


def test_a_name_that_was_taken_again_is_not_forgotten():
    made = inventory(known(A, deleted=True))
    purged = tombstone(made)
    live(made, observed("a", uid="u2", version=20))
    made.forget(A.key, purged)
    assert made.entries[A.key].uid == "u2"


def test_the_tombstone_of_a_later_owner_is_not_forgotten():
    made = inventory(known(A, deleted=True))
    purged = tombstone(made)
    made.remove(observed("a", uid="u2", version=20), now_s=NOW_S)
    made.forget(A.key, purged)
    assert made.entries[A.key].uid == "u2"


def test_what_lives_is_never_forgotten():
    made = inventory(known(A))
    made.forget(A.key, tombstone(made))
    assert len(made) == 1


def test_forgetting_twice_is_harmless():
    made = inventory(known(A, deleted=True))
    purged = tombstone(made)
    made.forget(A.key, purged)
    made.forget(A.key, purged)
    assert len(made) == 0


def test_R16_a_list_older_than_a_forgotten_tombstone_begins_an_epoch():
    gone = observed("a", uid="u9", version=500)
    made = inventory(known(gone, deleted=True), known(observed("b", version=10)))
    made.forget(gone.key, made.entries[gone.key])
    changes, _ = full_pass(made, observed("b", version=10), version="100")
    assert said(changes) == [(UPDATED, "u1", NOW_S, 7)]


def test_an_object_that_comes_back_under_a_forgotten_name_is_created():
    made = inventory(known(A, deleted=True))
    made.forget(A.key, tombstone(made))
    assert said(full_pass(made, observed("a", uid="u2", version=20))[0])[0][1:] == ("u2", EPOCH, 0)


def test_a_delete_that_is_said_again_is_kept_another_week():
    made = inventory(known(A, epoch=1, deleted=True))
    made.reload({key: msgspec.structs.replace(entry, deleted_at=5) for key, entry in made.entries.items()})
    assert said(full_pass(made)[0]) == [(DELETED, "u1", EPOCH, 7)]
    assert tombstone(made).deleted_at == NOW_S
