"""Which absences are deletes: the scope of a pass, and what was asked for one by one."""

from producer.passes import Verified
from tests.unit.producer.inventories import DELETED, EPOCH, NOW_S, A, full_pass, inventory, known, live, many, said
from tests.unit.producer.observed import observed

INSIDE = observed("a", ns="in")
OUTSIDE = observed("b", uid="u2", ns="out")


def test_R27_only_what_was_listed_can_be_missed():
    inside, outside = observed("a", ns="in"), observed("b", uid="u2", ns="out")
    changes, outcome = full_pass(inventory(known(inside), known(outside)), scope=frozenset({"in"}))
    assert said(changes) == [(DELETED, "u1", EPOCH, 7)]
    assert (outcome.left_scope, outcome.complete) == (1, True)


def test_what_has_left_the_scope_is_counted_while_it_lives():
    outside, dead = observed("b", uid="u2", ns="out"), observed("c", uid="u3", ns="out")
    _, outcome = full_pass(inventory(known(outside), known(dead, deleted=True)), scope=frozenset({"in"}))
    assert outcome.left_scope == 1


def test_a_scope_without_namespaces_misses_nothing():
    changes, outcome = full_pass(inventory(known(INSIDE), known(OUTSIDE)), scope=frozenset())
    assert (changes, outcome.left_scope, outcome.held) == ([], 2, 0)


def test_what_a_pass_has_not_seen_is_absent_in_scope_or_not():
    made = inventory(known(INSIDE), known(OUTSIDE), known(observed("c", uid="u3", ns="out"), deleted=True))
    made.begin_pass(frozenset({"in"}))
    assert made.absent().keys() == {INSIDE.key, OUTSIDE.key}
    made.observe(INSIDE, live=False, now_s=NOW_S)
    assert made.absent().keys() == {OUTSIDE.key}


def test_R26_what_exists_still_has_left_the_selection_and_is_no_delete():
    made = inventory(known(A), known(observed("b", uid="u2")))
    changes, outcome = full_pass(made, verified=Verified(elsewhere=frozenset({A.key})))
    assert said(changes) == [(DELETED, "u2", EPOCH, 7)]
    assert (outcome.left_scope, made.left_scope) == (1, 1)


def test_what_is_gone_with_its_unselected_namespace_is_a_delete():
    made = inventory(known(OUTSIDE), known(observed("c", uid="u3", ns="other")))
    changes, outcome = full_pass(made, scope=frozenset(), verified=Verified(vanished=frozenset({"out"})))
    assert said(changes) == [(DELETED, "u2", EPOCH, 7)]
    assert outcome.left_scope == 1


def test_R30_a_namespace_that_vanished_is_guarded_like_anything_else():
    objects = [observed(f"m{i}", uid=f"u{i}", ns="out") for i in range(6)]
    verified = Verified(vanished=frozenset({"out"}))
    _, outcome = full_pass(inventory(*map(known, objects)), scope=frozenset({"in"}), verified=verified)
    assert (outcome.changes, outcome.held) == ((), 6)


def test_R30_what_left_the_selection_does_not_widen_the_limit():
    objects = many(40)
    elsewhere = frozenset(found.key for found in objects[:20])
    made = inventory(*map(known, objects))
    _, outcome = full_pass(made, *objects[26:], verified=Verified(elsewhere=elsewhere))
    assert outcome.held == 6  # less than 20 % of forty, but not of the twenty that are selected


def test_R30_objects_that_exist_elsewhere_show_that_the_cluster_is_not_empty():
    objects = many(40)
    elsewhere = frozenset(found.key for found in objects[:20])
    made = inventory(*map(known, objects))
    full_pass(made, verified=Verified(elsewhere=elsewhere))
    _, outcome = full_pass(made, version="101", verified=Verified(elsewhere=elsewhere))
    assert (len(outcome.changes), outcome.complete) == (20, True)


def test_R26_a_live_leaving_publishes_nothing_and_is_counted_once():
    made = inventory(known(A))
    made.left(A.key, A.uid)
    made.left(A.key, A.uid)
    assert (made.left_scope, made.living(), made.entries[A.key].deleted) == (1, 1, False)


def test_R26_a_leaving_of_what_the_inventory_does_not_hold_counts_nothing():
    made = inventory(known(observed("b", uid="u2"), deleted=True))
    made.left(A.key, A.uid)
    made.left(observed("b").key, "u2")
    made.left(observed("b").key, "another")
    assert made.left_scope == 0


def test_R26_who_comes_back_or_goes_for_good_is_no_longer_out_of_the_selection():
    made = inventory(known(A), known(observed("b", uid="u2")))
    made.left(A.key, A.uid)
    made.left(observed("b").key, "u2")
    live(made, A)
    made.remove(observed("b", uid="u2", version=30), now_s=NOW_S)
    assert made.left_scope == 0


def test_R26_who_left_is_remembered_over_a_reload_while_it_lives():
    made = inventory(known(A), known(observed("b", uid="u2")))
    made.left(A.key, A.uid)
    made.left(observed("b").key, "u2")
    made.reload(dict([known(A), known(observed("b", uid="u2"), deleted=True)]))
    assert made.left_scope == 1
