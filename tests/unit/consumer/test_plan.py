"""What `plan` decides: a table of named cases; over the whole small space of situations see test_plan_space.py.

What the records say that it writes: test_plan_records.py and test_plan_history.py; which states it believes:
test_plan_freshness.py.
"""

import pytest
from msgspec.structs import replace

from consumer.actions import DeferPatch, PatchObject, Reject, UpdateRecord
from consumer.plan import Questions, questions
from consumer.writeback import WriteBack, WriteCost
from shared.objects import Status
from tests.unit.consumer.planning import IN_SYNC, LINKED, RECORD, decided, kinds, only
from tests.unit.consumer.worlds import (
    ID,
    KEY,
    MODEL,
    PREDECESSORS,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)


@pytest.mark.parametrize(
    ("observation", "records", "expected"),
    [
        pytest.param(IN_SYNC, [RECORD], [], id="agreement"),
        pytest.param(seen(), [], ["CreateRecord", "PatchObject"], id="new"),
        pytest.param(seen(an_object(status=READY)), [], ["CreateRecord", "DeferPatch"], id="new and serving"),
        pytest.param(seen(an_object({}), models=()), [], [], id="never indexed"),
        pytest.param(seen(an_object({ID: "9"}), models=()), [], ["Warn"], id="id label alone is not indexed"),
        pytest.param(seen(an_object({VERSION: "11"}), models=()), [], [], id="version label alone is not indexed"),
        pytest.param(seen(an_object()), [RECORD], ["PatchObject"], id="id label removed by somebody"),
        pytest.param(seen(carrying(an_object(), "8")), [RECORD], ["PatchObject"], id="id of another record on it"),
        pytest.param(seen(LINKED, gone=True), [RECORD], ["UpdateRecord"], id="deleted"),
        pytest.param(seen(carrying(an_object(going=True), "7")), [RECORD], ["UpdateRecord"], id="being deleted"),
        pytest.param(seen(gone=True), [], ["CreateRecord"], id="deleted before it was ever handled"),
        pytest.param(
            seen(carrying(an_object(annotations={"serving.kserve.io/stop": "true"}), "7")),
            [RECORD],
            ["UpdateRecord"],
            id="stopped",
        ),
        pytest.param(seen(carrying(an_object({}), "7")), [RECORD], ["UpdateRecord"], id="model label gone"),
        pytest.param(
            seen(an_object({MODEL: "2"}), models=("1", "2")),
            [RECORD],
            ["UpdateRecord", "CreateRecord", "PatchObject"],
            id="model label changed",
        ),
        pytest.param(
            seen(an_object({MODEL: "404"}), models=("1", "404")),
            [RECORD],
            ["UpdateRecord", "Reject"],
            id="model label changed to a model that does not exist",
        ),
        pytest.param(seen(an_object({MODEL: "abc"})), [RECORD], ["UpdateRecord", "Reject"], id="model label is no id"),
        pytest.param(seen(an_object({MODEL: ""}), models=()), [], ["Reject"], id="model label is empty"),
        pytest.param(seen(an_object({MODEL: "404"}), models=("404",)), [], ["Reject"], id="model does not exist"),
        pytest.param(
            seen(an_object({MODEL: "1", VERSION: "404"})),
            [],
            ["CreateRecord", "PatchObject", "Reject"],
            id="version does not exist",
        ),
        pytest.param(
            seen(an_object({MODEL: "1", VERSION: "x"})),
            [],
            ["CreateRecord", "PatchObject", "Reject"],
            id="version label is no id",
        ),
        pytest.param(
            seen(an_object({MODEL: "1", VERSION: "21"})),
            [],
            ["CreateRecord", "PatchObject", "Warn"],
            id="version of another model",
        ),
        pytest.param(seen(LINKED), [PREDECESSORS], ["UpdateRecord"], id="an earlier controller's record is adopted"),
        pytest.param(
            seen(LINKED), [replace(RECORD, deployed=False)], ["UpdateRecord"], id="state edited by hand in the registry"
        ),
        pytest.param(seen(LINKED), [replace(RECORD, deployed=None)], ["UpdateRecord"], id="record without any state"),
    ],
)
def test_plan(observation, records, expected):
    assert kinds(decided(observation, *records)) == expected


@pytest.mark.parametrize(
    "labels", [{MODEL: "abc"}, {MODEL: "404"}, {MODEL: "1", VERSION: "latest"}, {MODEL: "1", VERSION: "404"}]
)
def test_nobody_is_asked_to_correct_the_labels_of_an_object_that_is_gone(labels):
    assert "Reject" in kinds(decided(seen(an_object(labels), models=(labels[MODEL],))))
    assert "Reject" not in kinds(decided(seen(an_object(labels), models=(labels[MODEL],), gone=True)))


def test_another_clusters_record_is_never_touched():
    theirs = record_of(IN_SYNC)
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    assert kinds(decided(seen(LINKED, gone=True), theirs, settings=foreign)) == ["Reject"]


def test_another_clusters_record_of_a_former_model_is_never_touched():
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    obj = an_object({MODEL: "2"}, version="20")
    actions = decided(seen(obj, models=("1", "2")), RECORD, settings=foreign)
    assert not [action for action in actions if isinstance(action, UpdateRecord)]


@pytest.mark.parametrize(
    ("mode", "status", "expected"),
    [
        (WriteBack.OFF, None, None),
        (WriteBack.FREE, None, DeferPatch),
        (WriteBack.SAFE, None, PatchObject),
        (WriteBack.SAFE, READY, DeferPatch),
        (WriteBack.ALWAYS, READY, PatchObject),
        (WriteBack.FREE, Status(deployment_mode="ModelMesh"), PatchObject),
    ],
)
def test_the_id_is_written_where_the_setting_allows_its_cost(mode, status, expected):
    actions = decided(seen(an_object(status=status)), settings=replace(SETTINGS, write_back=mode))
    written = [type(action) for action in actions if isinstance(action, PatchObject | DeferPatch)]
    assert written == ([expected] if expected else [])


def test_a_patch_says_which_state_its_cost_was_judged_from():
    patch = only(PatchObject, decided(seen(an_object(version="17"))))
    assert (patch.record_id, patch.cost, patch.resource_version) == (None, WriteCost.POD_START, "17")


def test_a_rejection_comes_last_so_that_it_stops_nothing():
    actions = decided(seen(an_object({MODEL: "1", VERSION: "404"}, version="20")), RECORD)
    assert isinstance(actions[-1], Reject)
    assert only(UpdateRecord, actions).deployed


@pytest.mark.parametrize(
    ("observation", "records", "expected"),
    [
        pytest.param(seen(), [], Questions(frozenset({"1"}), frozenset({"11"})), id="new"),
        pytest.param(IN_SYNC, [RECORD], Questions(), id="a record says both already"),
        pytest.param(
            seen(an_object({MODEL: "1", VERSION: "12"})),
            [RECORD],
            Questions(versions=frozenset({"12"})),
            id="version changed",
        ),
        pytest.param(
            seen(LINKED), [PREDECESSORS], Questions(versions=frozenset({"11"})), id="nobody checked its version"
        ),
        pytest.param(seen(an_object({MODEL: "x", VERSION: "11"})), [], Questions(), id="no id"),
        pytest.param(
            seen(an_object({MODEL: "1", VERSION: "x"})), [], Questions(models=frozenset({"1"})), id="version no id"
        ),
        pytest.param(seen(an_object({}), models=()), [], Questions(), id="not indexed"),
    ],
)
def test_only_what_no_record_says_is_asked(observation, records, expected):
    assert questions(observation, {record.model_id: record for record in records}, SETTINGS) == expected


def test_key_of_the_worlds_is_the_one_in_the_records():
    assert f"{KEY.name}/{UID}" == RECORD.name
