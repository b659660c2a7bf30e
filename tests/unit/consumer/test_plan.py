"""What `plan` decides: a table of named cases; over the whole small space of situations see test_plan_space.py."""

import msgspec
import pytest
from msgspec.structs import replace

from consumer.actions import CreateRecord, DeferPatch, PatchObject, Reject, UpdateRecord
from consumer.observation import PassedVersion
from consumer.plan import Facts, Questions, is_stale, plan, questions
from consumer.records import PROPERTY, Stamp, VersionChange, string_property
from consumer.writeback import WriteBack, WriteCost
from shared.objects import ModelStatus, Spec, Status
from tests.unit.consumer.worlds import (
    BORN,
    FACTS,
    ID,
    KEY,
    MODEL,
    PREDECESSORS,
    READY,
    SEEN,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    performed,
    record_of,
    seen,
)

LINKED = carrying(an_object(), "7")
IN_SYNC = seen(LINKED)
RECORD = record_of(IN_SYNC)


def decided(observation, *records, facts=FACTS, settings=SETTINGS):
    return plan(observation, {record.model_id: record for record in records}, facts, settings)


def kinds(actions):
    return [type(action).__name__ for action in actions]


def only(kind, actions):
    """Return the one action of that kind."""
    (action,) = [action for action in actions if isinstance(action, kind)]
    return action


def stamp_in(action) -> Stamp:
    return msgspec.json.decode(action.properties[PROPERTY]["string_value"], type=Stamp)


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


def test_a_new_object_is_recorded_with_everything_that_it_says():
    create = only(CreateRecord, decided(seen(an_object(status=READY))))
    assert (create.environment, create.name, create.external_id) == ("team-a", f"iris/{UID}", f"kserve:{UID}/1")
    assert (create.model_id, create.version_id, create.runtime, create.deployed) == ("1", "11", "sk", True)
    assert create.properties["url"] == string_property("http://iris.example")
    assert stamp_in(create) == Stamp(
        cluster="prod-a",
        cluster_id="c-1",
        kind="isvc",
        namespace="team-a",
        name="iris",
        uid=UID,
        epoch=1,
        resource_version="10",
        digest="v1:d",
        generation=1,
        ready=True,
        deployment_mode="Standard",
        model_format="sklearn",
        storage_uri="s3://models/iris",
        model_version="11",
        deployed_at=BORN,
        history=(VersionChange("11", "10", SEEN),),
    )


def test_our_property_is_json_with_sorted_keys():
    text = only(CreateRecord, decided(seen())).properties[PROPERTY]["string_value"]
    keys = list(msgspec.json.decode(text))
    assert keys == sorted(keys)
    assert "clusterId" in keys


def test_a_later_model_of_the_same_object_gets_a_name_of_its_own():
    create = only(CreateRecord, decided(seen(an_object({MODEL: "2"}), models=("1", "2"))))
    assert (create.name, create.external_id) == (f"iris/{UID}/2", f"kserve:{UID}/2")


def test_the_first_name_is_not_taken_twice():
    """An earlier controller kept the record of a former model under the first name; we only know the present one."""
    former = replace(PREDECESSORS, model_id="1")
    create = only(CreateRecord, decided(seen(an_object({MODEL: "2"}), models=("2",)), former))
    assert create.name == f"iris/{UID}/2"


def test_a_model_label_that_comes_back_opens_its_record_again():
    closed = replace(RECORD, deployed=False)
    other = replace(record_of(seen(an_object({MODEL: "2"}, version="11"))), id="8", name=f"iris/{UID}/2")
    updates = decided(seen(carrying(an_object(version="12"), "7"), models=("1", "2")), closed, other)
    assert [(update.id, update.deployed) for update in updates] == [("8", False), ("7", True)]


def test_a_changed_version_is_one_write_and_history():
    update = only(
        UpdateRecord, decided(seen(carrying(an_object({MODEL: "1", VERSION: "12"}, version="20"), "7")), RECORD)
    )
    assert (update.version_id, update.deployed) == ("12", True)
    assert stamp_in(update).history == (VersionChange("11", "10", SEEN), VersionChange("12", "20", SEEN))


def test_a_removed_version_is_said_in_the_property_because_the_field_cannot_be_cleared():
    update = only(UpdateRecord, decided(seen(carrying(an_object({MODEL: "1"}, version="20"), "7")), RECORD))
    assert update.version_id == ""
    assert stamp_in(update).model_version == ""


def test_versions_that_were_passed_over_are_in_the_history():
    passed = (
        PassedVersion("1", "12", "15", "t15", 1),
        PassedVersion("2", "21", "16", "t16", 1),
        PassedVersion("1", "", "17", "t17", 1),
    )
    update = only(UpdateRecord, decided(replace(seen(carrying(an_object(version="20"), "7")), passed=passed), RECORD))
    assert [(each.version, each.resource_version) for each in stamp_in(update).history] == [
        ("11", "10"),
        ("12", "15"),
        ("", "17"),
        ("11", "20"),
    ]


def test_a_version_that_an_earlier_try_has_written_is_not_told_twice():
    """Its answer was lost, so it is handed on as passed over; the record itself knows better."""
    passed = (PassedVersion("1", "11", "10", SEEN, 1),)
    update = only(
        UpdateRecord,
        decided(
            replace(seen(carrying(an_object({MODEL: "1", VERSION: "12"}, version="20"), "7")), passed=passed), RECORD
        ),
    )
    assert [each.version for each in stamp_in(update).history] == ["11", "12"]


MANY = Facts(FACTS.models, {**FACTS.versions, **{str(100 + n): "1" for n in range(60)}})


def test_a_version_of_another_model_that_was_passed_over_is_recorded_as_none():
    passed = (PassedVersion("1", "21", "15", "t15", 1), PassedVersion("1", "latest", "17", "t17", 1))
    observation = replace(seen(carrying(an_object(version="20"), "7")), passed=passed)
    facts = Facts(FACTS.models, {**FACTS.versions, "21": "2"})
    update = only(UpdateRecord, decided(observation, RECORD, facts=facts))
    assert [each.version for each in stamp_in(update).history] == ["11", "", "11"]


def test_versions_that_were_passed_over_are_asked_for_unless_the_record_knows_them():
    passed = (
        PassedVersion("1", "11", "11", "t", 1),
        PassedVersion("1", "12", "12", "t", 1),
        PassedVersion("2", "21", "13", "t", 1),
    )
    observation = replace(IN_SYNC, passed=passed)
    assert questions(observation, {"1": RECORD}, SETTINGS) == Questions(versions=frozenset({"12"}))


def test_versions_passed_over_under_a_label_that_is_no_id_stop_nothing():
    observation = replace(seen(an_object({MODEL: "mnist"})), passed=(PassedVersion("mnist", "12", "5", "t", 1),))
    assert kinds(decided(observation, facts=Facts())) == ["Reject"]


def test_the_history_keeps_the_last_fifty_and_counts_the_others():
    passed = tuple(PassedVersion("1", str(100 + n), str(n + 11), "t", 1) for n in range(60))
    observation = replace(seen(carrying(an_object(version="99"), "7")), passed=passed)
    update = only(UpdateRecord, decided(observation, RECORD, facts=MANY))
    stamp = stamp_in(update)
    assert (len(stamp.history), stamp.history_cut, stamp.history[-1].version) == (50, 12, "11")


def test_users_properties_are_sent_back_as_they_are():
    theirs = {"owner": string_property("anna"), "odd": {"metadataType": "MetadataIntValue", "int_value": "3"}}
    with_theirs = replace(RECORD, properties=RECORD.properties | theirs)
    update = only(UpdateRecord, decided(seen(LINKED, gone=True), with_theirs))
    assert {name: update.properties[name] for name in theirs} == theirs


def test_a_vanished_url_is_removed():
    with_url = replace(RECORD, properties=RECORD.properties | {"url": string_property("http://old")})
    assert "url" not in only(UpdateRecord, decided(IN_SYNC, with_url)).properties


def test_a_runtime_that_is_gone_is_kept():
    bare = carrying(an_object(spec=Spec()), "7")
    assert decided(seen(bare), replace(record_of(seen(bare)), runtime="sk")) == ()


@pytest.mark.parametrize("change", [{"resource_version": "99"}, {"generation": 5}])
def test_what_only_rides_along_causes_no_write(change):
    newer = replace(LINKED, metadata=replace(LINKED.metadata, **change))
    assert decided(replace(seen(newer), digest="v1:other"), RECORD) == ()


@pytest.mark.parametrize(
    ("field", "obj"),
    [
        ("ready", carrying(an_object(status=replace(READY, url="")), "7")),
        ("deploymentMode", carrying(an_object(status=Status(deployment_mode="ModelMesh")), "7")),
        (
            "loadFailure",
            carrying(
                an_object(status=Status(deployment_mode="Standard", model_status=ModelStatus("InvalidSpec"))), "7"
            ),
        ),
        ("storageUri", carrying(an_object(spec=Spec()), "7")),
    ],
)
def test_a_change_of_what_the_property_says_is_written(field, obj):
    update = only(UpdateRecord, decided(seen(obj), RECORD))
    before, after = (msgspec.json.decode(r.properties[PROPERTY]["string_value"]) for r in (RECORD, update))
    assert before.get(field) != after.get(field)


def test_an_adopted_record_gets_our_externalid_and_property():
    update = only(UpdateRecord, decided(seen(LINKED), PREDECESSORS))
    assert (update.external_id, stamp_in(update).uid) == (f"kserve:{UID}/1", UID)


def test_an_older_state_does_nothing():
    assert decided(seen(an_object({MODEL: "2"}, version="9"), models=("1", "2")), RECORD) == ()


def test_an_older_state_does_nothing_even_if_only_a_closed_record_is_newer():
    closed = replace(record_of(seen(an_object(version="30"))), deployed=False)
    assert is_stale(seen(an_object({MODEL: "2"}, version="20"), models=("1", "2")), {"1": closed}, SETTINGS)


def test_another_clusters_record_says_nothing_of_freshness_however_new_it_is():
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    newer = record_of(seen(an_object(version="99"), epoch=9))
    assert is_stale(seen(), {"1": newer}, SETTINGS)
    assert not is_stale(seen(), {"1": newer}, foreign)
    assert kinds(decided(seen(), newer, settings=foreign)) == ["Reject"]


def test_nothing_opens_a_record_after_the_deletion():
    ended = record_of(seen(gone=True))
    assert decided(seen(an_object(version="99")), ended) == ()


def test_a_deletion_without_a_version_of_its_own_still_ends_the_record():
    (update,) = decided(seen(LINKED, gone=True), RECORD)
    assert (update.deployed, stamp_in(update).deleted) == (False, True)


def test_a_new_epoch_wins_over_a_higher_version():
    obj = carrying(an_object({MODEL: "1", VERSION: "12"}, version="2"), "7")
    assert kinds(decided(seen(obj, epoch=2), RECORD)) == ["UpdateRecord"]


def test_the_end_of_an_object_without_label_is_written_once_more_so_that_no_late_event_opens_it():
    closed = decided(seen(an_object({}, version="20")), RECORD)[0]
    _, records = performed(closed, LINKED, {"1": RECORD}, 8)
    (last,) = plan(seen(an_object({}, version="21"), gone=True), records, FACTS, SETTINGS)
    _, records = performed(last, LINKED, records, 8)
    assert plan(seen(an_object(version="30")), records, FACTS, SETTINGS) == ()


def test_a_closed_record_is_not_written_again():
    closed = decided(seen(an_object({}, version="20")), RECORD)[0]
    _, records = performed(closed, LINKED, {"1": RECORD}, 8)
    assert plan(seen(an_object({}, version="21")), records, FACTS, SETTINGS) == ()


def test_the_deletion_of_an_object_does_not_write_its_former_models_record_again():
    former = replace(record_of(seen(an_object(version="5"))), deployed=False)
    present = replace(
        record_of(seen(an_object({MODEL: "2", VERSION: "21"}, version="10"))), id="8", name=f"iris/{UID}/2"
    )
    gone = seen(an_object({MODEL: "2", VERSION: "21"}, version="20"), models=("1", "2"), gone=True)
    assert [action.id for action in decided(gone, former, present)] == ["8"]


def test_an_earlier_controllers_record_is_closed_as_ours():
    (update,) = decided(seen(carrying(an_object({}), "7")), PREDECESSORS)
    assert (update.deployed, update.external_id, stamp_in(update).model_version) == (False, f"kserve:{UID}/1", "11")


def test_an_earlier_controllers_closed_record_is_stamped_so_that_no_late_event_opens_it():
    (update,) = decided(seen(carrying(an_object({}), "7")), replace(PREDECESSORS, deployed=False))
    assert stamp_in(update).resource_version == "10"


def test_a_closed_record_is_not_ready():
    ready = record_of(seen(carrying(an_object(status=READY), "7")))
    assert stamp_in(only(UpdateRecord, decided(seen(an_object({}, status=READY, version="11")), ready))).ready is False


def test_a_changed_runtime_is_written():
    other = replace(RECORD, runtime="older")
    assert only(UpdateRecord, decided(IN_SYNC, other)).runtime == "sk"


@pytest.mark.parametrize("by_hand", [True, None])
def test_a_state_edited_by_hand_is_repaired_though_nothing_else_differs(by_hand):
    gone = seen(carrying(an_object(going=True), "7"))
    assert [action.deployed for action in decided(gone, replace(record_of(gone), deployed=by_hand))] == [False]


def test_what_was_cut_from_the_history_adds_up():
    observation = seen(carrying(an_object(version="99"), "7"))
    passed = tuple(PassedVersion("1", str(100 + n), str(n + 11), "t", 1) for n in range(60))
    first = only(UpdateRecord, decided(replace(observation, passed=passed), RECORD, facts=MANY))
    _, records = performed(first, LINKED, {"1": RECORD}, 8)
    newer = tuple(replace(each, resource_version=str(int(each.resource_version) + 100)) for each in passed)
    later = replace(seen(carrying(an_object(version="199"), "7")), passed=newer)
    second = only(UpdateRecord, plan(later, records, MANY, SETTINGS))
    assert stamp_in(second).history_cut == 12 + 61


def test_another_clusters_record_is_never_touched():
    theirs = record_of(IN_SYNC)
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    assert kinds(decided(seen(LINKED, gone=True), theirs, settings=foreign)) == ["Reject"]


def test_another_clusters_record_of_a_former_model_is_never_touched():
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    obj = an_object({MODEL: "2"}, version="20")
    actions = decided(seen(obj, models=("1", "2")), RECORD, settings=foreign)
    assert not [action for action in actions if isinstance(action, UpdateRecord)]


def test_times_say_when_it_was_deployed_and_when_not():
    stopped = carrying(an_object(annotations={"serving.kserve.io/stop": "true"}, version="20"), "7")
    stop = only(UpdateRecord, decided(replace(seen(stopped), time="t20"), RECORD))
    _, records = performed(stop, stopped, {"1": RECORD}, 8)
    resume = only(
        UpdateRecord, plan(replace(seen(carrying(an_object(version="30"), "7")), time="t30"), records, FACTS, SETTINGS)
    )
    assert (stamp_in(stop).deployed_at, stamp_in(stop).undeployed_at) == (BORN, "t20")
    assert (stamp_in(resume).deployed_at, stamp_in(resume).undeployed_at) == ("t30", "")


def test_the_end_has_the_time_of_the_deletion():
    update = only(UpdateRecord, decided(seen(carrying(an_object(going=True), "7")), RECORD))
    assert stamp_in(update).undeployed_at == "2026-11-30T11:00:00Z"


def test_one_stopped_from_the_beginning_was_never_deployed():
    create = only(CreateRecord, decided(seen(an_object(annotations={"serving.kserve.io/stop": "true"}))))
    assert (create.deployed, stamp_in(create).deployed_at) == (False, "")


def test_two_prefixes_that_contradict_each_other_are_told_and_ours_wins():
    obj = an_object({MODEL: "1", "modelregistry.opendatahub.io/registered-model-id": "2"})
    actions = decided(seen(obj))
    assert kinds(actions)[0] == "Warn"
    assert only(CreateRecord, actions).model_id == "1"


def test_labels_of_the_other_known_prefix_are_read():
    odh = "modelregistry.opendatahub.io/"
    obj = an_object({odh + "registered-model-id": "2", odh + "model-version-id": "21"})
    create = only(CreateRecord, decided(seen(obj, models=("2",))))
    assert (create.model_id, create.version_id) == ("2", "21")


def test_the_environment_is_named_by_its_template():
    settings = replace(SETTINGS, environment="{cluster}-{namespace}")
    assert only(CreateRecord, decided(seen(), settings=settings)).environment == "prod-a-team-a"


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
