"""What is told apart among a predecessor's leavings."""

import pytest

from cli.migration.adoptable import Fate, finalizers_on, orphan_limit, other_prefixed, sort_records, triaged, wrong_ids
from consumer.looks import RecordRef
from consumer.records import PROPERTY, string_property
from tests.unit.cli.lives import ID, PREFIX, live, theirs, uid

KUBEFLOW, ODH = "modelregistry.kubeflow.org/finalizer", "modelregistry.opendatahub.io/finalizer"
ODH_ID = "modelregistry.opendatahub.io/inference-service-id"
IRIS = live(1)
HERE = {IRIS.uid: IRIS}


def test_the_record_of_an_object_that_lives_here_is_to_be_adopted():
    found = sort_records([theirs(1)], HERE)
    assert [(shelved.record.id, known) for shelved, known in found.living] == [("7", IRIS)]
    assert (found.orphans, found.kept, found.elsewhere) == ((), (), 0)


def test_a_deployed_record_whose_uid_is_not_here_is_an_orphan_that_a_look_can_name():
    [orphan] = sort_records([theirs(2, "rose")], HERE).orphans
    assert (str(orphan.key), orphan.uid, orphan.record_id) == ("isvc/team-a/rose", uid(2), "7")
    assert orphan.ref == RecordRef("http://mr", uid(2), "1", unclaimed=True)


def test_an_orphan_says_what_speaks_for_and_against_it():
    recreated, unknown = sort_records([theirs(2), theirs(3, "rose")], HERE).orphans
    assert recreated.what == "an object of that name lives here, with another uid"
    assert "another cluster's" in unknown.what


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(theirs(2, deployed=False), id="undeployed: history"),
        pytest.param(theirs(2, deployed=None), id="without a state"),
        pytest.param(theirs(2, external_id="kserve:x/1"), id="of isvc-sync in any cluster"),
        pytest.param(theirs(2, properties={PROPERTY: string_property("edited")}), id="with a property edited by hand"),
        pytest.param(theirs(2, model_id=""), id="of no model"),
    ],
)
def test_no_orphan_is(record):
    found = sort_records([record], HERE)
    assert (found.living, found.orphans, found.kept, found.elsewhere) == ((), (), (), 0)


def test_a_record_in_an_environment_that_is_no_namespace_here_is_counted_and_no_orphan():
    found = sort_records([theirs(2, namespace=""), theirs(3, namespace="", deployed=False)], HERE)
    assert (found.orphans, found.elsewhere) == ((), 1)


@pytest.mark.parametrize("record", [theirs(1, namespace="team-b"), theirs(1, namespace=""), theirs(1, "rose")])
def test_a_living_uid_under_another_name_or_environment_is_neither_adopted_nor_an_orphan(record):
    found = sort_records([record], HERE)
    [kept] = found.kept
    assert (found.living, found.orphans, kept.fate) == ((), (), Fate.KEEP)


def test_orphans_stay_until_they_are_asked_for():
    orphans = sort_records([theirs(2)], HERE).orphans
    assert [each.fate for each in triaged(orphans, 5, wanted=False)] == [Fate.ORPHAN]
    assert [each.fate for each in triaged(orphans, 5, wanted=True)] == [Fate.UNDEPLOY]


@pytest.mark.parametrize(("count", "fate"), [(5, Fate.UNDEPLOY), (6, Fate.HELD)])
def test_more_than_the_limit_are_held_all_of_them(count, fate):
    orphans = sort_records([theirs(number, record_id=str(number)) for number in range(2, 2 + count)], HERE).orphans
    assert {each.fate for each in triaged(orphans, 5, wanted=True)} == {fate}


@pytest.mark.parametrize(("deployed", "limit"), [(0, 5), (25, 5), (30, 6), (500, 100)])
def test_as_many_orphans_are_believed_as_the_sweep_would(deployed, limit):
    assert orphan_limit(deployed) == limit


def test_only_the_predecessors_of_several_finalizers_are_named():
    held = live(1, finalizers=("inferenceservice.finalizers", KUBEFLOW, ODH))
    [found] = finalizers_on([held, live(2, finalizers=("inferenceservice.finalizers",)), live(3)], wanted=True)
    assert (found.fate, found.uid, found.finalizers) == (Fate.STRIP, held.uid, (KUBEFLOW, ODH))


def test_an_object_that_is_deleted_and_held_says_so():
    going = live(1, finalizers=(ODH,), deletion_timestamp="2026-11-30T11:00:00Z")
    [found] = finalizers_on([going], wanted=False)
    assert (found.fate, found.what) == (Fate.FINALIZER, f"deleted, and held by {ODH}")


def ids(*labels: tuple[str, str], records=(), key: str = ID) -> list[tuple[Fate, str]]:
    return [(each.fate, each.what) for each in wrong_ids([live(1, labels=dict(labels))], records, key)]


def test_an_id_that_names_another_objects_record_is_wrong():
    assert ids((ID, "7"), records=[theirs(2)]) == [(Fate.RELABEL, f"{ID}=7 is another object's record")]


def test_an_id_that_names_no_record_is_wrong():
    assert ids((ID, "404"), records=[theirs(1)]) == [(Fate.RELABEL, f"{ID}=404 is no record")]


def test_an_id_is_right_when_any_registrys_record_of_that_id_is_about_the_object():
    assert ids((ID, "7"), records=[theirs(2), theirs(1)]) == []


def test_a_wrong_id_under_the_other_prefix_is_told_and_nobody_rewrites_it():
    assert ids((ODH_ID, "7"), records=[theirs(2)]) == [(Fate.KEEP, f"{ODH_ID}=7 is another object's record")]


def test_objects_without_an_id_have_none_that_is_wrong():
    assert ids(records=[theirs(2)]) == []


def test_objects_that_are_labelled_under_the_other_prefix_only_are_counted():
    def labelled(*prefixes: str):
        return live(1, labels={f"{prefix}registered-model-id": "1" for prefix in prefixes})

    odh = "modelregistry.opendatahub.io/"
    assert other_prefixed([labelled(odh), labelled(PREFIX), labelled(PREFIX, odh), labelled()], PREFIX) == {odh: 1}
