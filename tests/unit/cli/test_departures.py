"""Which ids are ours to remove, what that costs, and the patch."""

import pytest
from msgspec.structs import replace

from cli.migration.departures import LEFT, Fate, Ground, marks_on, ours_of, removal
from consumer.records import PROPERTY, Record, Stamp, encode_stamp
from consumer.writeback import KServeLists, WriteBackForm, WriteCost
from shared.objects import Kind, ModelCopies, ModelStatus, Status
from tests.unit.cli.lives import ID, READY, STOPPED, live, uid

GROUND = Ground(ID, KServeLists(), frozenset({("7", uid(1))}), complete=True, restart_pods=False)
SERVING = live(1, labels={ID: "7"})
IDLE = live(1, labels={ID: "7"}, status=STOPPED)
STARTING = live(1, labels={ID: "7"}, status=Status(deployment_mode="Standard"))


def fates(obj, ground=GROUND) -> list[Fate]:
    return [each.fate for each in marks_on(obj, ground)]


def test_a_free_removal_is_made_and_one_that_restarts_pods_is_not():
    assert (fates(IDLE), fates(SERVING), fates(STARTING)) == ([Fate.REMOVE], [Fate.RESTARTS], [Fate.RESTARTS])


def test_pods_are_restarted_when_that_is_asked_for():
    asked = replace(GROUND, restart_pods=True)
    assert (fates(SERVING, asked), fates(STARTING, asked)) == ([Fate.REMOVE], [Fate.REMOVE])


def test_what_would_restart_is_told():
    serving = replace(READY, model_status=ModelStatus(copies=ModelCopies(3)))
    [three] = marks_on(live(1, labels={ID: "7"}, status=serving), GROUND)
    [starting], [idle] = marks_on(STARTING, GROUND), marks_on(IDLE, GROUND)
    assert (three.restarts, starting.restarts, idle.restarts) == (
        "its serving pods (3 of the predictor)",
        "one pod start, no serving pod",
        "nothing",
    )


@pytest.mark.parametrize("value", ["8", ""])
def test_an_id_that_no_record_of_ours_vouches_for_stays(value):
    assert fates(live(1, labels={ID: value}, status=STOPPED)) == [Fate.FOREIGN]


def test_the_id_of_another_objects_record_is_not_ours():
    assert fates(live(2, labels={ID: "7"}, status=STOPPED), replace(GROUND, restart_pods=True)) == [Fate.FOREIGN]


def test_where_a_registry_was_not_read_an_unknown_id_may_be_ours_and_stays():
    assert fates(live(1, labels={ID: "8"}, status=STOPPED), replace(GROUND, complete=False)) == [Fate.UNKNOWN]


def test_an_object_that_is_being_deleted_is_left_alone():
    assert fates(live(1, labels={ID: "7"}, status=STOPPED, deletion_timestamp="2026-11-30T11:00:00Z")) == [Fate.GOING]
    assert Fate.GOING not in LEFT


def test_both_forms_are_found_each_with_its_own_cost():
    ground = replace(GROUND, lists=KServeLists(annotations=frozenset({ID})))
    both = live(1, labels={ID: "7"}, annotations={ID: "7"})
    found = {each.form: (each.cost, each.fate) for each in marks_on(both, ground)}
    assert found == {
        WriteBackForm.LABEL: (WriteCost.RESTART, Fate.RESTARTS),
        WriteBackForm.ANNOTATION: (WriteCost.FREE, Fate.REMOVE),
    }


def test_nothing_but_our_key_is_a_mark():
    assert marks_on(live(1, labels={"modelregistry.opendatahub.io/inference-service-id": "7"}), GROUND) == []


def test_the_patch_removes_exactly_this_id_from_exactly_this_state():
    [mark] = marks_on(IDLE, GROUND)
    path = "/metadata/labels/modelregistry.kubeflow.org~1inference-service-id"
    assert removal(mark, KServeLists()) == [
        {"op": "test", "path": "/metadata/uid", "value": uid(1)},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "10"},
        {"op": "test", "path": path, "value": "7"},
        {"op": "remove", "path": path},
    ]


def test_where_a_removal_is_free_in_every_state_it_does_not_wait_for_a_quiet_moment():
    [mark] = marks_on(live(1, annotations={ID: "7"}, kind=Kind.LLMISVC), GROUND)
    tested = [each["path"] for each in removal(mark, KServeLists()) if each["op"] == "test"]
    path = "/metadata/annotations/modelregistry.kubeflow.org~1inference-service-id"
    assert tested == ["/metadata/uid", path]


def test_ours_are_the_records_that_name_this_cluster():
    def record(number: str, cluster_id: str) -> Record:
        stamp = Stamp("c", cluster_id, "isvc", "team-a", "iris", uid(1), 1, "10")
        return Record(number, "x", "y", "3", "1", properties={PROPERTY: encode_stamp(stamp)})

    bare = Record("9", f"iris/{uid(1)}", "", "3", "1")
    assert ours_of([record("7", "c-1"), record("8", "c-2"), bare], "c-1") == {("7", uid(1))}
