"""What a cluster is asked to do for the events of a capture."""

import msgspec
import pytest
from msgspec.structs import replace

from replay.target.choice import Target, TargetKind, guise
from replay.target.cluster import (
    MARK,
    Remove,
    Show,
    Showing,
    created,
    held_of,
    is_ours,
    namespace_of,
    patches,
    place_of,
    shown,
)
from shared.errors import BadEventError
from shared.events import EventType
from tests.unit.replay.replayed import HEADER, KEY, captured, isvc, ready, story

OURS = guise("tuesday", Target(TargetKind.KUBE, "kube:test"), HEADER)
CREATED = captured(11, isvc(KEY, "u-1", 50, registered_model_id="1"), EventType.CREATED)
PATH = "/apis/serving.kserve.io/v1beta1/namespaces/isvc-replay-tuesday-team-a/inferenceservices/iris"
DELETED = EventType.DELETED


def operations(*events):
    showing = Showing(OURS)
    return [each for event in events for each in showing.operations(event)]


def body(obj):
    return shown(msgspec.json.decode(captured(1, obj).data), OURS)


def test_a_story_is_shown_and_removed_in_its_order():
    found = operations(*story())
    assert [(type(each), each.place.key.name) for each in found] == [
        (Show, "iris"),
        (Show, "iris"),
        (Show, "iris"),
        (Show, "other"),
        (Remove, "iris"),
    ]


def test_an_object_stands_in_a_namespace_of_the_replay():
    assert place_of(CREATED, OURS).path == PATH


def test_what_is_created_has_the_reduced_form_the_mark_and_nothing_of_the_captured_server():
    (show,) = operations(CREATED)
    assert created(show.place, show.body) == {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "iris",
            "namespace": "isvc-replay-tuesday-team-a",
            "labels": {"modelregistry.kubeflow.org/registered-model-id": "1"},
            "annotations": {MARK: "tuesday"},
        },
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/iris"}}},
    }


def test_a_repetition_asks_for_nothing():
    assert len(operations(CREATED, CREATED)) == 1


def test_an_older_state_asks_for_nothing():
    newer = captured(12, isvc(KEY, "u-1", 51, registered_model_id="2"))
    assert len(operations(newer, CREATED)) == 1


def test_the_end_of_what_was_never_shown_asks_for_nothing():
    assert operations(captured(12, isvc(KEY, "u-1", 51), DELETED)) == []


def test_the_end_of_one_that_was_never_shown_leaves_the_shown_one_alone():
    assert [type(each) for each in operations(CREATED, captured(12, isvc(KEY, "u-0", 49), DELETED))] == [Show]


def test_what_is_gone_does_not_come_back():
    gone, late = captured(12, isvc(KEY, "u-1", 51), DELETED), captured(13, isvc(KEY, "u-1", 52))
    assert [type(each) for each in operations(CREATED, gone, late)] == [Show, Remove]


def test_another_uid_of_that_name_replaces_the_object():
    anew = captured(12, isvc(KEY, "u-2", 60), EventType.CREATED)
    assert [type(each) for each in operations(CREATED, anew)] == [Show, Remove, Show]


def test_a_late_end_of_the_replaced_one_leaves_the_new_one_alone():
    anew, late = captured(12, isvc(KEY, "u-2", 60)), captured(13, isvc(KEY, "u-1", 59), DELETED)
    assert [type(each) for each in operations(CREATED, anew, late)] == [Show, Remove, Show]


def test_the_replaced_one_does_not_come_back():
    anew, late = captured(12, isvc(KEY, "u-2", 60)), captured(13, isvc(KEY, "u-1", 61))
    assert [type(each) for each in operations(CREATED, anew, late)] == [Show, Remove, Show]


def test_one_that_comes_after_the_end_of_another_is_only_created():
    gone, anew = captured(12, isvc(KEY, "u-1", 51), DELETED), captured(13, isvc(KEY, "u-2", 60))
    assert [type(each) for each in operations(CREATED, gone, anew)] == [Show, Remove, Show]


def test_another_content_under_the_same_resource_version_is_shown():
    other = captured(12, isvc(KEY, "u-1", 50, registered_model_id="2"))
    assert [type(each) for each in operations(CREATED, other)] == [Show, Show]


@pytest.mark.parametrize("version", ["v1", "", "apps/v1", "serving.kserve.io/../../v1", "serving.kserve.io/"])
def test_what_is_not_of_kserve_is_no_object_of_a_replay(version):
    data = msgspec.json.encode(msgspec.json.decode(CREATED.data) | {"apiVersion": version})
    with pytest.raises(BadEventError, match="has the apiVersion"):
        operations(replace(CREATED, data=data))


@pytest.mark.parametrize("name", ["..", "a/b", "a?b", "a%2Fb", ""])
def test_a_name_that_would_lead_elsewhere_is_refused(name):
    event = replace(CREATED, event=replace(CREATED.event, key=replace(KEY, name=name)))
    with pytest.raises(BadEventError, match="a name that no object can have"):
        operations(event)


def test_a_long_namespace_is_cut_and_still_its_own():
    first, second = (namespace_of("n" * 60 + end, OURS) for end in ("-a", "-b"))
    assert (len(first), len(second)) == (63, 63)
    assert first != second
    assert first.startswith("isvc-replay-tuesday-nnn")


def test_a_changed_label_and_a_status_are_two_patches():
    before, after = isvc(KEY, "u-1", 50, model_version_id="2"), ready(isvc(KEY, "u-1", 51, model_version_id="3"))
    found = patches(body(before), body(after))
    assert found.main == {"metadata": {"labels": {"modelregistry.kubeflow.org/model-version-id": "3"}}}
    assert found.status["status"]["url"] == "http://iris.team-a.example.com"


def test_what_an_event_no_longer_says_is_taken_away():
    found = patches(body(ready(isvc(KEY, "u-1", 50, model_version_id="2"))), body(isvc(KEY, "u-1", 51)))
    assert found.main == {"metadata": {"labels": {"modelregistry.kubeflow.org/model-version-id": None}}}
    assert found.status["status"]["url"] is None


def test_the_same_state_takes_no_patch():
    found = patches(body(isvc(KEY, "u-1", 50)), body(isvc(KEY, "u-1", 51)))
    assert (found.main, found.status) == ({}, {})


def test_a_list_is_replaced_as_a_whole():
    before, after = {"spec": {"a": [1, 2]}}, {"spec": {"a": [2]}}
    assert patches(before, after).main == {"spec": {"a": [2]}}


def test_what_a_server_added_beside_is_no_part_of_what_is_held():
    live = isvc(KEY, "u-1", 50) | {"status": {"url": "http://x"}}
    assert held_of(live) == {
        "metadata": {"labels": {}, "annotations": {"example.com/note": "theirs"}},
        "spec": live["spec"],
        "status": {"url": "http://x"},
    }


@pytest.mark.parametrize(
    ("annotations", "ours"), [({MARK: "tuesday"}, True), ({MARK: "monday"}, False), ({}, False), (None, False)]
)
def test_only_the_mark_of_that_name_makes_it_ours(annotations, ours):
    assert is_ours({"metadata": {"annotations": annotations}}, OURS) is ours
