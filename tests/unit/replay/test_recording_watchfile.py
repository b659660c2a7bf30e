"""Files of watch events, in every spelling that kubectl has, become what a producer would have published."""

import json

import pytest

from replay.capture import Captured, CaptureError, CutError, Facts
from replay.recording.watchfile import captured, documents
from shared.events import EventType
from shared.objects import Kind
from tests.unit.replay.captures import CLUSTER_ID
from tests.unit.shared.captured import watch_events

STORY = "labels-come-and-go"


def kubectl(*events: tuple[str, object]) -> list[bytes]:
    """Return lines as `kubectl get -w -o json --output-watch-events` prints them."""
    return "".join(
        json.dumps({"type": kind, "object": obj}, indent=4) + "\n" for kind, obj in events
    ).encode().splitlines(keepends=True)  # fmt: skip


def isvc(version: int = 5, **metadata: object) -> dict:
    told = {"name": "iris", "namespace": "a", "uid": "u1", "resourceVersion": str(version)}
    told |= {"creationTimestamp": "2026-11-30T10:00:00Z", **metadata}
    return {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": told, "spec": {}}


def lines(source, said=None):
    return list(captured(source, CLUSTER_ID, tell=(said if said is not None else []).append))


def events(source, said=None) -> list[Captured]:
    return [line for line in lines(source, said) if isinstance(line, Captured)]


def labelled(model: str, version: str = "", number: int = 5) -> dict:
    prefix = "modelregistry.kubeflow.org/"
    return isvc(number, labels={f"{prefix}registered-model-id": model, f"{prefix}model-version-id": version})


def test_what_kubectl_prints_and_what_a_watch_sends_are_the_same():
    """But for the beginning: kubectl lists first."""
    compact = [
        json.dumps({"received": "2026-11-30T10:00:00Z", "event": {"type": kind, "object": obj}}).encode()
        for kind, obj in watch_events(STORY)
    ]
    pretty, sent = events(kubectl(*watch_events(STORY))), events(compact)
    assert len(sent) > 10
    assert [(line.event.key, line.event.digest, line.data) for line in pretty] == [
        (line.event.key, line.event.digest, line.data) for line in sent
    ]


def test_what_says_nothing_new_is_left_out():
    found = events(kubectl(("ADDED", isvc(5)), ("MODIFIED", isvc(6)), ("MODIFIED", isvc(7, labels={"x": "y"}))))
    assert len(found) == 1


def test_a_list_is_the_initial_state():
    items = {"apiVersion": "v1", "kind": "List", "items": [isvc(), isvc(7, name="b", uid="u2")]}
    found = events([json.dumps(items, indent=4).encode()])
    assert [(line.event.key.name, line.initial, line.event.synthetic) for line in found] == [
        ("iris", True, True), ("b", True, True),
    ]  # fmt: skip


def test_objects_one_after_the_other_are_understood():
    found = events(
        [json.dumps(each, indent=4).encode() for each in (isvc(5), isvc(6, deletionTimestamp="2026-11-30T10:00:09Z"))]
    )
    assert [line.event.type for line in found] == [EventType.CREATED, EventType.UPDATED]


@pytest.mark.parametrize("glue", [b"", b"\n", b" ", b"\r\n\r\n", b"\x1e"])
def test_documents_may_be_glued_in_any_way(glue):
    one, two = b'{"a":"} {\\" \\\\"}', b'{\n "b": {"c": [{}]}\n}'
    text = glue + one + glue + two + glue
    assert [found for _, found in documents(text.splitlines(keepends=True))] == [one, two]


def test_added_events_with_which_a_watch_begins_are_initial_and_later_ones_are_not():
    found = events(
        kubectl(
            ("ADDED", isvc(5)),
            ("ADDED", isvc(4, name="b", uid="u2")),
            ("MODIFIED", isvc(6, annotations={"serving.kserve.io/stop": "true"})),
            ("ADDED", isvc(7, name="c", uid="u3")),
        )
    )
    assert [line.initial for line in found] == [True, True, False, False]


def test_a_stream_that_began_at_a_version_has_no_initial_state():
    header = b'{"story":"x","request":"GET /x?watch=1&resourceVersion=5"}\n'
    assert [line.initial for line in events([header, *kubectl(("ADDED", isvc(6)))])] == [False]


def test_the_bookmark_that_ends_a_list_ends_the_initial_state():
    mark = {"metadata": {"resourceVersion": "6", "annotations": {"k8s.io/initial-events-end": "true"}}}
    found = events(kubectl(("ADDED", isvc(5)), ("BOOKMARK", mark), ("ADDED", isvc(7, name="b", uid="u2"))))
    assert [line.initial for line in found] == [True, False]


def test_an_object_that_is_made_anew_while_nobody_looked_was_deleted_first():
    found = events(kubectl(("ADDED", isvc(5)), ("MODIFIED", isvc(9, uid="u2"))))
    assert [(line.event.type, line.event.uid) for line in found] == [
        (EventType.CREATED, "u1"), (EventType.DELETED, "u1"), (EventType.CREATED, "u2"),
    ]  # fmt: skip
    assert found[1].data == found[0].data


def test_models_and_versions_that_labels_name_are_told_before_the_event_that_names_them():
    source = kubectl(
        ("ADDED", labelled("1", "11")),
        ("MODIFIED", labelled("2", "11", 6)),
        ("MODIFIED", labelled("2", "22", 7)),
        ("MODIFIED", labelled("latest", "", 8)),
    )
    found = lines(source)
    assert [type(line) for line in found] == [Facts, Captured, Facts, Captured, Facts, Captured, Captured]
    told = [(line.models, line.versions) for line in found if isinstance(line, Facts)]
    assert told == [(("1",), {"11": "1"}), (("2",), {}), ((), {"22": "2"})]


def test_both_kinds_are_recorded():
    llm = isvc(6, name="chat", uid="u2") | {"kind": "LLMInferenceService", "apiVersion": "serving.kserve.io/v1alpha2"}
    found = events(kubectl(("ADDED", isvc()), ("ADDED", llm)))
    assert [line.event.key.kind for line in found] == [Kind.ISVC, Kind.LLMISVC]


def test_times_are_those_at_which_the_events_came():
    line = {"received": "2026-11-30T17:00:00.123456Z", "event": {"type": "ADDED", "object": isvc()}}
    found = events([json.dumps(line).encode()])[0]
    assert found.event.time == found.position.time == "2026-11-30T17:00:00.123456Z"
    assert found.event.epoch == 1796058000


def test_without_these_times_are_the_latest_that_an_object_tells_and_never_go_back():
    ready = isvc(6) | {
        "status": {"url": "http://x", "conditions": [{"type": "Ready", "lastTransitionTime": "2026-11-30T10:05:00Z"}]}
    }
    found = events(kubectl(("ADDED", isvc(5)), ("MODIFIED", ready), ("ADDED", isvc(7, name="b", uid="u2"))))
    assert [line.event.time for line in found] == [
        "2026-11-30T10:00:00.000Z", "2026-11-30T10:05:00.000Z", "2026-11-30T10:05:00.000Z",
    ]  # fmt: skip


ODD = {
    "ERROR": ({"code": 410, "reason": "Expired", "message": "too old"}, "The server ended the watch: 410 Expired."),
    "ADDED": ({"kind": "Pod"}, "An object that is no InferenceService and no LLMInferenceService was passed over."),
    "MODIFIED": (isvc(uid=None), "An object was passed over: a/iris: object a/iris lacks metadata.uid."),
    "WEATHER": ({}, "A watch event of type 'WEATHER' was passed over."),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_passed_over_is_told_and_the_rest_is_recorded(kind):
    obj, sentence = ODD[kind]
    said = []
    found = events(kubectl((kind, obj), ("BOOKMARK", {}), ("ADDED", isvc())), said)
    assert len(found) == 1
    assert len(said) == 1
    assert said[0].startswith(sentence)


def test_a_document_that_is_nested_too_deeply_is_passed_over():
    deep = b'{"type":"ADDED","object":' + b'{"a":' * 5000 + b"1" + b"}" * 5001 + b"\n"
    said = []
    assert len(events([deep, *kubectl(("ADDED", isvc()))], said)) == 1
    assert said == ["The document at line 1 is nested too deeply: passed over."]


def test_a_file_that_is_cut_is_read_up_to_there():
    found, source = [], kubectl(("ADDED", isvc(5)), ("ADDED", isvc(6, name="b", uid="u2")))
    with pytest.raises(CutError, match=r"the document at line \d+ stops in the middle"):
        found.extend(captured(source[:-3], CLUSTER_ID))
    for line in captured(source, CLUSTER_ID):
        found.append(line)  # noqa: PERF402 - the first loop ended in the middle, and kept what came
    assert len(found) >= 2


@pytest.mark.parametrize(
    "text",
    [b"NAME  URL\niris  http://x\n", b"[1]\n", b'{"type": 1}\n', b'"x"\n', b'{"a" 1}\n', b"{}}\n"],
)
def test_what_is_no_watch_file_is_refused_in_a_sentence(text):
    with pytest.raises(CaptureError):
        lines(text.splitlines(keepends=True))


def test_the_content_of_a_broken_document_is_not_shown():
    with pytest.raises(CaptureError) as raised:
        lines([b'{"type": "ADDED", "object": "hush"}\n'])
    assert "hush" not in str(raised.value)
