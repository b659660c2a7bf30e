"""A hold and its id: what makes another one of it, and how it is shown."""

import hashlib

from shared.holds import Held, hold_of
from shared.objects import Kind, ObjectKey
from tests.integration.holds.holding import held, id_of


def test_the_id_of_a_hold_is_the_same_in_every_process():
    objects = b'[["isvc/ns/o0","u0"],["isvc/ns/o1","u1"],["isvc/ns/o2","u2"]]'
    identity = b'["1b4e28ba","producer","isvc","too many are gone",' + objects + b"]"
    assert id_of(held(3)) == hashlib.sha256(identity).hexdigest()[:12] == "a56318baa773"


def test_an_id_does_not_change_with_age_scope_or_what_else_is_known():
    one = held(3)
    other = Held(kind=one.kind, why=one.why, objects=one.objects, known=7, since_s=9, scope=("ns",))
    assert id_of(other) == id_of(one)


def test_an_id_changes_with_every_object_the_reason_the_kind_the_holder_and_the_cluster():
    one = held(3)
    reborn = (one.objects - {(ObjectKey(Kind.ISVC, "ns", "o1"), "u1")}) | {(ObjectKey(Kind.ISVC, "ns", "o1"), "u9")}
    ids = {
        id_of(one),
        id_of(held(4)),
        id_of(Held(kind=one.kind, why=one.why, objects=reborn, known=100, since_s=0)),
        id_of(held(3, why="nothing is left")),
        id_of(held(3, kind=Kind.LLMISVC)),
        id_of(one, "sweep"),
        hold_of(one, "producer", "another").id,
    }
    assert len(ids) == 7


def test_what_is_still_held_keeps_its_age_and_what_has_changed_begins_anew():
    assert held(3, since_s=20).continued(held(3, since_s=10)).since_s == 10
    assert held(4, since_s=20).continued(held(3, since_s=10)).since_s == 20
    assert held(3, since_s=20).continued(None).since_s == 20


def test_a_long_scope_is_cut_and_an_empty_one_is_everything():
    def scope(*names: str) -> str:
        return hold_of(
            Held(kind=Kind.ISVC, why="", objects=frozenset(), known=0, since_s=0, scope=names), "sweep", ""
        ).scope

    assert [scope(), scope("a"), scope("a", "b")] == ["all namespaces", "namespace a", "namespaces a, b"]
    assert scope(*"abcdefgh") == "namespaces a, b, c, d, e and 3 more"
