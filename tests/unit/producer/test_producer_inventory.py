"""A complete list against what the broker holds: which changes have to be published."""

import pytest

from producer.changes import Entry
from shared.events import Event
from tests.unit.producer.inventories import (
    CHANGED,
    CREATED,
    DELETED,
    EPOCH,
    NOISE,
    NOW_S,
    OLDER,
    SAME_PLACE,
    TAKEN,
    UPDATED,
    A,
    entry,
    full_pass,
    inventory,
    known,
    live,
    many,
    said,
)
from tests.unit.producer.observed import MODEL, READER, observed, raw

TAKEN_B = observed("b", uid="u9", version=12)

# ---- one object in a pass


@pytest.mark.parametrize(
    ("before", "listed", "expected"),
    [
        pytest.param([], [A], [(CREATED, "u1", EPOCH, 0)], id="unknown"),
        pytest.param([known(A)], [A], [], id="unchanged"),
        pytest.param([known(A)], [NOISE], [], id="only the version moved"),
        pytest.param([known(A)], [CHANGED], [(UPDATED, "u1", EPOCH, 7)], id="changed"),
        pytest.param([known(A)], [], [(DELETED, "u1", EPOCH, 7)], id="R27 gone"),
        pytest.param([known(A, deleted=True)], [], [], id="gone and known to be"),
        pytest.param([known(A)], [TAKEN], [(DELETED, "u1", EPOCH, 7), (CREATED, "u2", EPOCH, 7)], id="R28 new uid"),
        pytest.param([known(A, deleted=True)], [TAKEN], [(CREATED, "u2", EPOCH, 7)], id="new uid, old one known gone"),
        pytest.param([known(A)], [OLDER], [(UPDATED, "u1", NOW_S, 7)], id="restored, same content"),
        pytest.param([known(A)], [SAME_PLACE], [(UPDATED, "u1", NOW_S, 7)], id="restored, other content in one place"),
        pytest.param([known(A, deleted=True)], [A], [(UPDATED, "u1", NOW_S, 7)], id="restored, alive again"),
        pytest.param([known(A, epoch=1, deleted=True)], [A], [(UPDATED, "u1", EPOCH, 7)], id="alive in a later epoch"),
        pytest.param([known(A, epoch=1)], [OLDER], [(UPDATED, "u1", EPOCH, 7)], id="said in an earlier epoch only"),
        pytest.param([known(A, epoch=1, deleted=True)], [], [(DELETED, "u1", EPOCH, 7)], id="gone in an earlier epoch"),
        pytest.param(
            [known(A, epoch=1, deleted=True)],
            [TAKEN],
            [(DELETED, "u1", EPOCH, 7), (CREATED, "u2", EPOCH, 7)],
            id="new uid, old one gone in an earlier epoch",
        ),
    ],
)
def test_a_pass_publishes_what_the_broker_does_not_know(before, listed, expected):
    # In a list as recent as the inventory, so that only the object itself can tell of a restore.
    assert said(full_pass(inventory(*before), *listed)[0]) == expected


@pytest.mark.parametrize(
    ("listed", "epoch"),
    [
        pytest.param([A], EPOCH, id="same"),
        pytest.param([NOISE], EPOCH, id="newer"),
        pytest.param([OLDER], NOW_S, id="a smaller version of the same uid"),
        pytest.param([SAME_PLACE], NOW_S, id="the same version with other content"),
        pytest.param([TAKEN], EPOCH, id="a new owner of the name"),
        pytest.param([observed("a", uid="u0", version=10)], NOW_S, id="an owner older than the last one"),
    ],
)
def test_R16_what_contradicts_the_numbering_begins_an_epoch(listed, epoch):
    made = inventory(known(A))
    full_pass(made, *listed)
    assert made._epoch.value == epoch


def test_R16_a_list_older_than_an_entry_begins_an_epoch():
    made = inventory(known(observed("b", uid="u9", version=500)), known(A))
    full_pass(made, A, version="100")
    assert made._epoch.value == NOW_S


def test_R16_a_list_older_than_the_sync_marker_begins_an_epoch():
    made = inventory(known(A), marker=(EPOCH, "101"))
    full_pass(made, A, version="100")
    assert made._epoch.value == NOW_S


@pytest.mark.parametrize("marker", [(EPOCH, "100"), (EPOCH - 1, "500")], ids=["as recent", "of an older epoch"])
def test_R16_a_marker_that_does_not_contradict_begins_none(marker):
    made = inventory(known(A), marker=marker)
    full_pass(made, A, version="100")
    assert made._epoch.value == EPOCH


def test_R16_what_a_pass_said_before_it_knew_of_the_restore_is_said_again_in_the_new_epoch():
    made = inventory(known(observed("z", uid="u9", version=500)), known(A))
    changes, _ = full_pass(made, CHANGED, version="100")
    assert said(changes) == [(UPDATED, "u1", EPOCH, 7), (UPDATED, "u1", NOW_S, 7), (DELETED, "u9", NOW_S, 7)]


def test_R16_a_restore_is_noticed_although_the_storage_of_the_broker_is_lost_too():
    made = inventory(known(A))
    made.reload({})
    changes, _ = full_pass(made, observed("b", uid="u2", version=3), version="9")
    assert said(changes)[-1] == (UPDATED, "u2", NOW_S, 0)


def test_R28_R31_a_producer_that_died_between_a_missed_delete_and_the_next_create_is_no_restore():
    (delete, _), _ = full_pass(inventory(known(A)), TAKEN)
    before = Entry(delete.uid, delete.epoch, delete.resource_version, delete.digest, delete.models, NOW_S, 8)
    assert delete.resource_version == TAKEN.resource_version
    assert said(full_pass(inventory((A.key, before)), TAKEN)[0]) == [(CREATED, "u2", EPOCH, 8)]


def test_R16_two_living_owners_of_a_name_at_one_version_are_of_two_numberings():
    full_pass(made := inventory(known(A)), observed("a", uid="u2", version=10))
    assert made._epoch.value == NOW_S


def test_a_delete_that_is_forgotten_during_a_pass_is_not_missed_in_it():
    made = inventory(known(A, deleted=True), known(TAKEN_B))
    made.begin_pass()
    ((key, purged),) = made.tombstones()
    made.forget(key, purged)
    made.observe(TAKEN_B, live=False, now_s=NOW_S)
    assert made.end_pass("100", doubtful=0, now_s=NOW_S).changes == ()
    assert A.key not in made.entries


def test_R16_an_epoch_grows_even_when_the_clock_does_not():
    made = inventory(known(A, epoch=NOW_S + 5), epoch=NOW_S + 5)
    full_pass(made, SAME_PLACE)
    assert made._epoch.value == NOW_S + 6


def test_R16_one_restore_begins_one_epoch():
    objects = many(5, version=50)
    made = inventory(*map(known, objects))
    full_pass(made, *many(5, version=40), version="45")
    assert made._epoch.value == NOW_S


# ---- tombstones


def test_R27_a_tombstone_carries_the_last_known_state_at_the_version_that_proves_the_absence():
    [change], _ = full_pass(inventory(known(A, models=("1", "4"))), version="100")
    assert (change.digest, change.models, change.resource_version) == (A.digest, ("1", "4"), "100")
    assert change.body is None  # the shell fetches the last message


def test_R28_a_tombstone_before_a_new_uid_is_older_than_nothing_of_the_old_one():
    changes, _ = full_pass(inventory(known(A)), TAKEN)
    assert [change.resource_version for change in changes] == ["20", "20"]


def test_R27_a_tombstone_is_published_once():
    made = inventory(known(A))
    assert said(full_pass(made)[0]) == [(DELETED, "u1", EPOCH, 7)]
    assert full_pass(made, version="101")[0] == []


def test_R17_a_pass_with_doubtful_objects_concludes_no_absence_and_is_not_complete():
    changes, outcome = full_pass(inventory(known(A)), observed("b", uid="u2"), doubtful=1)
    assert said(changes) == [(CREATED, "u2", EPOCH, 0)]
    assert not outcome.complete


def test_R07_an_unfinished_pass_leaves_no_trace():
    made = inventory(known(A), known(observed("b", uid="u2")))
    made.begin_pass()
    made.observe(A, live=False, now_s=NOW_S)
    changes, _ = full_pass(made, observed("b", uid="u2"))
    assert said(changes) == [(DELETED, "u1", EPOCH, 7)]


def test_an_object_deleted_inside_the_initial_stream_is_deleted_once():
    made = inventory(known(A))
    made.begin_pass()
    made.observe(A, live=False, now_s=NOW_S)
    assert said(made.remove(observed("a", version=30), now_s=NOW_S)) == [(DELETED, "u1", EPOCH, None)]
    assert made.end_pass("100", doubtful=0, now_s=NOW_S).changes == ()


# ---- live changes


@pytest.mark.parametrize(
    ("before", "found", "expected"),
    [
        pytest.param([], A, [(CREATED, "u1", EPOCH, None)], id="unknown"),
        pytest.param([known(A)], NOISE, [], id="only the version moved"),
        pytest.param([known(A)], CHANGED, [(UPDATED, "u1", EPOCH, None)], id="changed"),
        pytest.param(
            [known(A)],
            TAKEN,
            [(DELETED, "u1", EPOCH, 7), (CREATED, "u2", EPOCH, None)],
            id="R28 new uid, delete missed",
        ),
        pytest.param([known(A, deleted=True)], TAKEN, [(CREATED, "u2", EPOCH, None)], id="R28 new uid"),
    ],
)
def test_a_live_change_is_published_as_what_it_is(before, found, expected):
    assert said(live(inventory(*before), found)) == expected


def test_R25_a_delete_is_always_published_with_its_last_state():
    [change] = inventory().remove(observed(version=12, model="5"), now_s=NOW_S)
    assert (change.type, change.models, change.resource_version, change.corrects) == (DELETED, ("5",), "12", None)
    assert change.body == observed(version=12, model="5").body


def test_R25_a_delete_is_published_once():
    made = inventory(known(A))
    made.remove(observed(version=12, model="1"), now_s=NOW_S)
    assert made.remove(observed(version=12, model="1"), now_s=NOW_S) == ()


def deleting(version):
    """The object as it looks from its deletionTimestamp on."""
    given = raw("a", version=version, labels={MODEL: "1"})
    given["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return READER.object(given)


def test_R29_a_deletion_timestamp_is_one_update_and_the_delete_comes_later():
    made = inventory(known(A))
    assert said(live(made, deleting(11))) == [(UPDATED, "u1", EPOCH, None)]
    assert live(made, deleting(12)) == ()
    assert said(made.remove(deleting(13), now_s=NOW_S)) == [(DELETED, "u1", EPOCH, None)]


def test_the_inventory_follows_what_was_published():
    made = inventory()
    assert said(live(made, A)) == [(CREATED, "u1", EPOCH, None)]
    assert live(made, NOISE) == ()
    assert said(live(made, CHANGED)) == [(UPDATED, "u1", EPOCH, None)]
    assert live(made, CHANGED) == ()


def test_an_acknowledgement_tells_what_a_later_correction_corrects():
    made = inventory()
    live(made, A)
    made.acknowledged(A.key, 42)
    assert said(full_pass(made)[0]) == [(DELETED, "u1", EPOCH, 42)]


def event(change):
    return Event(
        change.type, change.key, change.uid, change.epoch, change.resource_version, change.digest, change.models,
        "c", "now", change.corrects,
    )  # fmt: skip


def test_R38_a_repair_is_not_swallowed_by_the_window_in_which_the_broker_knows_ids():
    made = inventory()
    said_live = [event(change) for found in (A, CHANGED) for change in live(made, found)]
    late = event(live(inventory(known(observed(version=9))), A)[0])  # of a leader that was paused
    window = {one.id for one in (*said_live, late)}
    made.reload(dict([known(A, sequence=len(window))]))
    [repair] = [event(change) for change in full_pass(made, CHANGED)[0]]
    assert repair.digest == CHANGED.digest
    assert repair.id not in window


@pytest.mark.parametrize(
    ("version", "uids"), [(21, ["u1", "u2"]), (9, ["u2"])], ids=["a later owner", "an earlier owner"]
)
def test_R28_a_delete_of_a_later_owner_shows_that_the_former_one_is_gone(version, uids):
    changes = inventory(known(A)).remove(observed("a", uid="u2", version=version), now_s=NOW_S)
    assert [(change.type, change.uid) for change in changes] == [(DELETED, uid) for uid in uids]


# ---- models


def test_models_are_sticky_and_in_order():
    made = inventory()
    seen = [live(made, observed(version=10 + i, model=model))[0].models for i, model in enumerate(("3", "1", "", "3"))]
    assert seen == [("3",), ("3", "1"), ("3", "1"), ("3", "1")]


def test_models_are_taken_over_from_the_broker():
    [change] = live(inventory(known(A, models=("9",))), CHANGED)
    assert change.models == ("9", "2")


@pytest.mark.parametrize(
    "held", [[], [known(TAKEN)], [known(A)]], ids=["storage lost", "another owner's message", "a late message"]
)
def test_models_are_remembered_when_the_broker_no_longer_names_them(held):
    made = inventory(known(A, models=("9",)))
    made.reload(dict(held))
    made.begin_pass()
    change = made.observe(observed("a", version=30), live=False, now_s=NOW_S)[-1]
    assert change.models == ("9",)


def test_models_belong_to_a_uid():
    changes = live(inventory(known(A, models=("9",))), TAKEN)
    assert [change.models for change in changes] == [("9",), ("3",)]


def test_a_delete_adds_the_model_of_its_last_state():
    [change] = inventory(known(A, models=("9",))).remove(observed(version=12, model="5"), now_s=NOW_S)
    assert change.models == ("9", "5")


def test_an_object_without_model_was_never_indexed():
    [change] = live(inventory(), observed())
    assert change.models == ()


# ---- digest versions


def old_digest(found, **kwargs):
    made = entry(found, **kwargs)
    return (found.key, Entry(made.uid, made.epoch, made.resource_version, "v0:abc", made.models, 0, 7))


def test_a_new_digest_version_alone_publishes_nothing_and_is_compared_from_then_on():
    made = inventory(old_digest(A))
    assert full_pass(made, A)[0] == []
    assert live(made, NOISE) == ()
    assert said(live(made, CHANGED)) == [(UPDATED, "u1", EPOCH, None)]


def test_digests_of_two_versions_cannot_tell_so_an_object_that_moved_is_published():
    assert said(full_pass(inventory(old_digest(A)), NOISE)[0]) == [(UPDATED, "u1", EPOCH, 7)]


def test_counts():
    made = inventory(known(A), known(observed("b", uid="u2"), deleted=True))
    assert (len(made), made.living()) == (2, 1)
