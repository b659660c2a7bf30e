"""When a kind is announced: when all its lists are complete, with what they cover together."""

from producer.completeness import Completeness
from producer.items import Watched
from shared.events import SyncMarker
from shared.objects import Kind

A, B = Watched(Kind.ISVC, "a"), Watched(Kind.ISVC, "b")
EVERYWHERE = Watched(Kind.LLMISVC)


def test_one_list_of_all_namespaces_is_announced_by_itself():
    completeness = Completeness([A, B, EVERYWHERE])
    assert completeness.reached(EVERYWHERE, None, "7", 3) == SyncMarker((), "7", 3)


def test_lists_of_single_namespaces_are_announced_together_at_the_highest_version():
    completeness = Completeness([B, A, EVERYWHERE])
    assert completeness.reached(B, frozenset({"b"}), "101", 3) is None
    assert completeness.reached(A, frozenset({"a"}), "99", 3) == SyncMarker(("a", "b"), "101", 3)


def test_a_list_that_is_read_again_is_announced_with_what_the_others_have_reached():
    completeness = Completeness([A, B])
    completeness.reached(A, frozenset({"a"}), "5", 3)
    completeness.reached(B, frozenset({"b"}), "6", 3)
    assert completeness.reached(A, frozenset({"a"}), "9", 4) == SyncMarker(("a", "b"), "9", 4)


def test_a_new_stream_is_announced_only_when_all_lists_were_read_again():
    completeness = Completeness([A, B])
    completeness.reached(A, frozenset({"a"}), "5", 3)
    completeness.reached(B, frozenset({"b"}), "6", 3)
    completeness.forget()
    assert completeness.reached(A, frozenset({"a"}), "9", 3) is None


def test_a_choice_of_no_namespace_is_not_announced_as_all_of_them():
    assert Completeness([EVERYWHERE]).reached(EVERYWHERE, frozenset(), "7", 3) is None
