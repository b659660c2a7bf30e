"""What `plan` writes into a record: names, fields, our property, times; and what is no reason to write."""

import msgspec
import pytest
from msgspec.structs import replace

from consumer.actions import CreateRecord, UpdateRecord
from consumer.plan import plan
from consumer.records import PROPERTY, Stamp, VersionChange, string_property
from shared.objects import ModelStatus, Spec, Status
from tests.unit.consumer.planning import IN_SYNC, LINKED, RECORD, decided, kinds, only, stamp_in
from tests.unit.consumer.worlds import (
    BORN,
    FACTS,
    MODEL,
    PREDECESSORS,
    READY,
    SEEN,
    SETTINGS,
    UID,
    an_object,
    carrying,
    performed,
    record_of,
    seen,
)


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


def test_an_earlier_controllers_record_is_closed_as_ours():
    (update,) = decided(seen(carrying(an_object({}), "7")), PREDECESSORS)
    assert (update.deployed, update.external_id, stamp_in(update).model_version) == (False, f"kserve:{UID}/1", "11")


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
