"""The comparison of freshness is an order, and it is the right one."""

import itertools

import pytest

from consumer.freshness import Freshness, Order, compare
from shared.errors import BadEventError

SPACE = [
    Freshness(epoch, version, deleted)
    for epoch in (1, 2, 1764500000)
    for version in ("1", "2", "9", "10", "99999999999999999999999")
    for deleted in (False, True)
]
OPPOSITE = {Order.OLDER: Order.NEWER, Order.NEWER: Order.OLDER, Order.SAME: Order.SAME}


def test_two_states_stand_to_each_other_in_opposite_ways():
    for a, b in itertools.product(SPACE, SPACE):
        assert compare(a, b) is OPPOSITE[compare(b, a)]


def test_only_equal_states_are_the_same():
    for a, b in itertools.product(SPACE, SPACE):
        assert (compare(a, b) is Order.SAME) == (a == b)


def test_what_is_newer_than_something_newer_is_newer():
    for a, b, c in itertools.product(SPACE, SPACE, SPACE):
        if compare(a, b) is Order.NEWER and compare(b, c) is Order.NEWER:
            assert compare(a, c) is Order.NEWER


def test_within_an_epoch_deleted_is_final():
    for a, b in itertools.product(SPACE, SPACE):
        if a.epoch == b.epoch and a.deleted and not b.deleted:
            assert compare(a, b) is Order.NEWER


def test_a_newer_epoch_wins_over_everything():
    for a, b in itertools.product(SPACE, SPACE):
        if a.epoch > b.epoch:
            assert compare(a, b) is Order.NEWER


@pytest.mark.parametrize(
    ("state", "other", "order"),
    [
        (Freshness(1, "10"), Freshness(1, "9"), Order.NEWER),
        (Freshness(1, "9"), Freshness(1, "10"), Order.OLDER),
        (Freshness(1, "9"), Freshness(1, "9"), Order.SAME),
        (Freshness(1, "9", deleted=True), Freshness(1, "10"), Order.NEWER),
        (Freshness(1, "10", deleted=True), Freshness(1, "9", deleted=True), Order.NEWER),
        (Freshness(2, "1"), Freshness(1, "10", deleted=True), Order.NEWER),
    ],
)
def test_examples(state, other, order):
    assert compare(state, other) is order


def test_what_is_no_resource_version_is_refused():
    with pytest.raises(BadEventError):
        compare(Freshness(1, "x"), Freshness(1, "1"))
