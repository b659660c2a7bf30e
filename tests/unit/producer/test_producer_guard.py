"""Deletes that must wait: for a second list that agrees, or for a person."""

import pytest

from producer.guard import held_back
from tests.unit.producer.inventories import DELETED, EPOCH, NOW_S, full_pass, inventory, known, many, said
from tests.unit.producer.observed import observed


@pytest.mark.parametrize(
    ("total", "gone", "held"),
    [
        pytest.param(5, 5, 0, id="five are few, even when nothing remains"),
        pytest.param(6, 6, 6, id="six of six"),
        pytest.param(30, 6, 0, id="20 % of thirty"),
        pytest.param(30, 7, 7, id="more than 20 % of thirty"),
        pytest.param(1000, 200, 0, id="20 % of a thousand"),
        pytest.param(1000, 201, 201, id="more than 20 % of a thousand"),
    ],
)
def test_R30_a_pass_that_would_delete_too_much_is_held(total, gone, held):
    objects = many(total)
    changes, outcome = full_pass(inventory(*map(known, objects)), *objects[gone:])
    assert (len(changes), outcome.held, outcome.complete) == (gone - held, held, held == 0)


def test_R30_new_objects_do_not_hide_a_mass_delete():
    newcomers = [observed(f"n{i}", uid=f"n{i}") for i in range(100)]
    objects = many(10)
    _, outcome = full_pass(inventory(*map(known, objects)), *objects[6:], *newcomers)
    assert outcome.held == 6


def test_R30_a_second_pass_that_agrees_releases():
    objects = many(30)
    made = inventory(*map(known, objects))
    full_pass(made, *objects[10:])
    changes, outcome = full_pass(made, *objects[10:], version="101")
    assert len(changes) == 10
    assert outcome.complete


def test_R30_what_only_the_second_pass_misses_must_be_confirmed_itself():
    objects = many(60)
    made = inventory(*map(known, objects))
    full_pass(made, *objects[20:])
    changes, outcome = full_pass(made, *objects[40:], version="101")
    assert sorted(change.uid for change in changes) == sorted(found.uid for found in objects[:20])
    assert (outcome.held, outcome.complete) == (20, False)


def test_R30_what_the_second_pass_finds_again_was_never_gone():
    objects = many(30)
    made = inventory(*map(known, objects))
    full_pass(made, *objects[10:])
    changes, outcome = full_pass(made, *objects, version="101")
    assert changes == []
    assert outcome.complete


def test_R30_an_empty_scope_is_never_released_by_repetition():
    made = inventory(*map(known, many(6)))
    for version in ("100", "101", "102"):
        changes, outcome = full_pass(made, version=version)
        assert (changes, outcome.held) == ([], 6)


def test_R30_the_guard_survives_a_reload():
    objects = many(30)
    made = inventory(*map(known, objects))
    full_pass(made, *objects[10:])
    made.reload(dict(map(known, objects)))
    assert len(full_pass(made, *objects[10:], version="101")[0]) == 10


def test_R30_recreated_objects_are_no_mass_delete():
    changes, outcome = full_pass(
        inventory(*map(known, many(10))), *[observed(f"m{i}", uid=f"new{i}", version=20) for i in range(10)]
    )
    assert (len(changes), outcome.held) == (20, 0)


def test_R30_nothing_is_held_without_a_reason():
    assert held_back(frozenset(), frozenset(), known=0, remaining=0) == frozenset()


# ---- a person releases


def uids(*objects):
    return frozenset((found.key, found.uid) for found in objects)


def test_R30_what_is_held_can_be_seen():
    objects = many(30)
    made = inventory(*map(known, objects))
    full_pass(made, *objects[10:])
    assert made.held == uids(*objects[:10])


def test_R30_a_person_releases_exactly_what_is_named():
    objects = many(20)
    made = inventory(*map(known, objects))
    full_pass(made)
    assert made.approve(uids(*objects[:9])) == uids(*objects[:9])
    changes, outcome = full_pass(made, version="101")
    assert sorted(change.uid for change in changes) == sorted(found.uid for found in objects[:9])
    assert (outcome.held, made.held) == (11, uids(*objects[9:]))


def test_R30_a_release_survives_a_reload():
    objects = many(6)
    made = inventory(*map(known, objects))
    full_pass(made)
    made.approve(uids(*objects))
    made.reload(dict(map(known, objects)))
    _, outcome = full_pass(made, version="101")
    assert (len(outcome.changes), outcome.complete) == (6, True)


def test_R30_what_is_found_again_is_not_deleted_although_it_was_released():
    objects = many(6)
    made = inventory(*map(known, objects))
    full_pass(made)
    made.approve(uids(*objects))
    changes, _ = full_pass(made, objects[0], version="101")
    assert sorted(change.uid for change in changes) == [found.uid for found in objects[1:]]


def test_R30_a_release_is_good_for_one_pass():
    objects = many(6)
    made = inventory(*map(known, objects))
    full_pass(made)
    made.approve(uids(*objects))
    full_pass(made, *objects, version="101")
    _, outcome = full_pass(made, version="102")
    assert (outcome.changes, outcome.held) == ((), 6)


def test_R30_a_pass_that_concludes_nothing_leaves_a_release_standing():
    objects = many(6)
    made = inventory(*map(known, objects))
    full_pass(made)
    made.approve(uids(*objects))
    full_pass(made, version="101", doubtful=1)
    assert len(full_pass(made, version="102")[0]) == 6


def test_R30_what_is_not_held_cannot_be_released():
    objects = many(6)
    made = inventory(*map(known, objects))
    assert made.approve(uids(*objects)) == frozenset()
    assert full_pass(made)[1].held == 6


def test_R30_a_release_names_a_uid_and_not_a_name():
    objects = many(6)
    made = inventory(*map(known, objects))
    full_pass(made)
    assert made.approve(frozenset((found.key, "other") for found in objects)) == frozenset()
    assert full_pass(made, version="101")[1].held == 6


def test_R30_what_was_released_does_not_widen_the_limit_for_the_others():
    objects = many(30)
    made = inventory(*map(known, objects))
    full_pass(made, *objects[7:])
    made.approve(uids(*objects[:7]))
    _, outcome = full_pass(made, *objects[13:], version="101")
    assert (len(outcome.changes), outcome.held) == (7, 6)  # six are 20 % of thirty, but not of the rest


# ---- the kind is not installed


def test_R15_without_the_kind_every_delete_is_held_however_few():
    made = inventory(known(observed("a")), known(observed("b", uid="u2"), deleted=True))
    outcome = made.kind_absent(NOW_S)
    assert (outcome.changes, outcome.held, outcome.complete) == ((), 1, False)
    assert made.held == uids(observed("a"))


def test_R15_without_the_kind_a_person_releases_at_the_last_known_version():
    made = inventory(known(observed("a", version=42)), known(observed("b", uid="u2")))
    made.kind_absent(NOW_S)
    made.approve(uids(observed("a")))
    outcome = made.kind_absent(NOW_S)
    assert said(outcome.changes) == [(DELETED, "u1", EPOCH, 7)]
    assert outcome.changes[0].resource_version == "42"
    assert (outcome.held, made.held) == (1, uids(observed("b", uid="u2")))


def test_R15_a_tombstone_without_the_kind_is_published_once():
    made = inventory(known(observed("a")))
    made.kind_absent(NOW_S)
    made.approve(uids(observed("a")))
    made.kind_absent(NOW_S)
    assert made.kind_absent(NOW_S).changes == ()


def test_R15_a_404_is_no_first_list_that_a_second_one_could_agree_with():
    objects = many(30)
    made = inventory(*map(known, objects))
    made.kind_absent(NOW_S)
    changes, outcome = full_pass(made, *objects[10:])
    assert (changes, outcome.held) == ([], 10)


def test_R15_when_the_kind_is_back_with_its_objects_nothing_is_held():
    objects = many(6)
    made = inventory(*map(known, objects))
    made.kind_absent(NOW_S)
    _, outcome = full_pass(made, *objects)
    assert (outcome.changes, outcome.complete, made.held) == ((), True, frozenset())


def test_R15_without_the_kind_only_the_scope_is_held():
    made = inventory(known(observed("a", ns="in")), known(observed("b", uid="u2", ns="out")))
    made.begin_pass(frozenset({"in"}))
    assert made.kind_absent(NOW_S).held == 1
