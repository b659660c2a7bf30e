"""Bad input costs one log line with the object's name, one count, one dead letter with its reason: nothing else."""

import dataclasses
import json
from typing import Any

import pytest
import pytest_asyncio

from shared.events import MESSAGE_ID, decode, encode
from shared.objects import Kind, ObjectKey
from shared.subjects import parse_object_subject
from tests.e2e.pipeline import MODEL, STANDARD, STREAMS, SUBJECTS, Pipeline, isvc
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG_NAME = "n" * 300
LONGEST_NAME = ".".join("n" * 63 for _ in range(4))[:253]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory, guard):
    async with Pipeline(tmp_path_factory.mktemp("bad-input"), guard) as pipeline:
        pipeline.seed({"101": "1"})
        create(pipeline, "good/first")
        await eventually(lambda: pipeline.record_of("good/first"))
        await pipeline.settled()
        yield pipeline


def create(pipeline: Pipeline, name: str, *, model: str = "1", version: str | None = None) -> None:
    pipeline.cluster.create(isvc(name, model=model, version=version, annotations=STANDARD))


class Dead:
    """What is dead so far, to tell what dies next."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._counted = 0.0
        self._told = 0

    async def count(self) -> "Dead":
        self._counted = await self._pipeline.consumer.metric("isvc_sync_events_total", result="dead")
        self._told = len(self._lines())
        return self

    def _lines(self) -> list[dict[str, Any]]:
        return [entry for entry in self._pipeline.consumer.entries("ERROR") if entry["message"] == "dead letter"]

    async def one_more(self, subject: str, words: str) -> None:
        """Assert that exactly one message died, with these words, and that everything else goes on."""
        pipeline = self._pipeline
        await eventually(lambda: len(self._lines()) > self._told, "a line is logged")
        await goes_on(pipeline)
        (line,) = self._lines()[self._told :]
        assert named(subject) in line.get("object", line.get("subject"))
        assert words in line["reason"]
        assert await pipeline.consumer.metric("isvc_sync_events_total", result="dead") == self._counted + 1
        letters = await pipeline.dead_letters()
        assert words in letters[subject]


def named(subject: str) -> str:
    """Return what a log line calls the object of a subject: its key, or the subject where it names none."""
    return subject if len(subject.split(".")) != 7 else str(parse_object_subject(subject)[1])


async def goes_on(pipeline: Pipeline) -> None:
    """Assert that a good object is still recorded, that nothing is left to do, and that nothing repeats itself."""
    name = f"good/after-{len(pipeline.records())}"
    create(pipeline, name)
    await eventually(lambda: pipeline.record_of(name), "the others go on")
    await pipeline.settled()
    requests, errors = pipeline.registry.requests.total(), len(pipeline.consumer.entries("ERROR"))
    await pipeline.settled()
    assert pipeline.registry.requests.total() == requests, "nothing is asked again and again"
    assert len(pipeline.consumer.entries("ERROR")) == errors
    infos = await pipeline.client.jetstream().consumers_info(STREAMS.events)
    assert sum(info.num_ack_pending + info.num_pending for info in infos) == 0
    assert all(info.ack_floor.stream_seq == info.delivered.stream_seq for info in infos)


async def a_good_event(pipeline: Pipeline):
    return (await pipeline.events_of("good/first"))[0]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("garbage", "does not decode"),
        ("no-utf-8", "does not decode"),
        ("not-an-object", "does not decode"),
        ("no-headers", "header ce-"),
        ("no-uid", "header ce-uid"),
        ("no-metadata", "does not decode"),
        ("another-object", "speaks of another object"),
        ("another-cluster", "is from cluster id"),
    ],
)
async def test_an_event_that_cannot_be_believed_is_buried(shared, case, words):
    good = await a_good_event(shared)
    subject = SUBJECTS.event(ObjectKey(Kind.ISVC, "bad", case))
    event = renamed(good, "bad", case)
    headers, body = {
        "garbage": (event, b"\xff\xfe\x00 no json"),
        "no-utf-8": (event, good.body.replace(b"first", b"fi\xffst", 1)),
        "not-an-object": (event, b"[1, 2]"),
        "no-headers": ({}, good.body),
        "no-uid": ({k: v for k, v in event.items() if k != "ce-uid"}, good.body),
        "no-metadata": (event, b'{"kind": "InferenceService", "spec": {}}'),
        "another-object": ({**good.headers, MESSAGE_ID: case}, good.body),
        "another-cluster": (event | {"ce-source": "/clusters/somebody-else"}, good.body),
    }[case]
    dead = await Dead(shared).count()
    await shared.client.jetstream().publish(subject, body, headers=headers)
    await dead.one_more(subject, words)
    # Whoever finds another cluster under its name at a start refuses to start, and says to purge: as we do.
    await shared.client.jetstream().purge_stream(STREAMS.events, subject=subject)


def renamed(good, namespace: str, name: str) -> dict[str, str]:
    """Return the headers of a good event as those of another object."""
    names = {"ce-namespace": namespace, "ce-name": name, "ce-subject": f"{namespace}/{name}"}
    return {**good.headers, **names, MESSAGE_ID: f"bad-{name[:40]}"}


async def test_a_subject_that_names_no_object_is_buried(shared):
    dead, subject = await Dead(shared).count(), f"isvc.{SUBJECTS.cluster}.evt.3.isvc.only-a-namespace"
    await shared.client.jetstream().publish(subject, b"{}")
    await dead.one_more(subject, "is not <prefix>")


@pytest.mark.parametrize("value", ["abc", "", "2147483648", "01", "999"])
async def test_a_model_label_that_is_no_model_is_buried_until_it_is_mended(shared, value):
    dead, name = await Dead(shared).count(), f"bad/model-{value or 'empty'}"
    create(shared, name, model=value)
    subject = SUBJECTS.event(ObjectKey(Kind.ISVC, *name.split("/")))
    await dead.one_more(subject, "999 does not exist" if value == "999" else f"registered-model-id={value!r} is no id")
    assert shared.records(shared.object(name)["metadata"]["uid"]) == []
    shared.patch(name, {"metadata": {"labels": {MODEL: "1"}}})
    await eventually(lambda: shared.record_of(name), "recorded as soon as it is right")
    await shared.settled()
    assert subject not in await shared.dead_letters(), "its dead letter is void"


@pytest.mark.parametrize(("model", "version"), [("abc", None), ("999", None), ("1", "999")])
async def test_the_dead_letter_of_a_label_ends_with_its_object(shared, model, version):
    name = f"brief/model-{model}"
    create(shared, name, model=model, version=version)
    subject = SUBJECTS.event(ObjectKey(Kind.ISVC, *name.split("/")))
    await eventually(lambda: buried(shared, subject), "it is buried")
    shared.cluster.delete("InferenceService", *name.split("/"))
    await eventually(lambda: cleared(shared, subject), "nobody can correct it any more")


async def buried(pipeline: Pipeline, subject: str) -> bool:
    return subject in await pipeline.dead_letters()


async def cleared(pipeline: Pipeline, subject: str) -> bool:
    return subject not in await pipeline.dead_letters()


async def test_a_version_label_that_is_no_id_is_buried_and_the_rest_recorded(shared):
    dead = await Dead(shared).count()
    create(shared, "bad/version", version="latest")
    await dead.one_more(SUBJECTS.event(ObjectKey(Kind.ISVC, "bad", "version")), "'latest' is no id")
    record = shared.record_of("bad/version")
    assert (record["desiredState"], record.get("modelVersionId")) == ("DEPLOYED", None)
    assert shared.id_label("bad/version") == record["id"]


async def test_a_name_of_300_characters_is_buried(shared):
    """No API server lets it in; somebody publishes it."""
    good, key = await a_good_event(shared), ObjectKey(Kind.ISVC, "bad", LONG_NAME)
    body = json.loads(good.body)
    body["metadata"] |= {"name": LONG_NAME, "namespace": "bad", "uid": "uid-300"}
    event = decode(good.headers)
    headers = encode(type(event)(**(fields_of(event) | {"key": key, "uid": "uid-300"})))
    dead = await Dead(shared).count()
    await shared.client.jetstream().publish(SUBJECTS.event(key), json.dumps(body).encode(), headers=headers)
    await dead.one_more(SUBJECTS.event(key), "too long")


def fields_of(event) -> dict[str, Any]:
    return {field: getattr(event, field) for field in event.__struct_fields__}


async def test_the_longest_name_of_kubernetes_is_too_long_for_the_registry_and_buried(shared):
    dead = await Dead(shared).count()
    create(shared, f"bad/{LONGEST_NAME}")
    await dead.one_more(SUBJECTS.event(ObjectKey(Kind.ISVC, "bad", LONGEST_NAME)), "too long")


async def test_an_object_of_1_2_mb_is_recorded(shared):
    """Nearly all of it never enters the broker."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 1000} for number in range(1200)]
    obj = isvc("bad/big", model="1", annotations=STANDARD)
    obj["spec"]["predictor"]["model"]["env"] = env
    shared.cluster.create(obj)
    assert len(json.dumps(shared.object("bad/big"))) > 1_200_000
    await eventually(lambda: shared.id_label("bad/big"), "recorded and labelled")
    assert max(len(event.raw) for event in await shared.events_of("bad/big")) < 4096
    await goes_on(shared)


async def test_an_object_that_is_too_large_even_when_reduced_is_published_truncated_and_recorded(shared):
    obj = isvc("bad/huge", model="1", annotations=STANDARD)
    containers = [{"name": f"container-{number}", "image": f"example.com/{'x' * 80}:1"} for number in range(10_000)]
    obj["spec"]["predictor"]["containers"] = containers
    shared.cluster.create(obj)
    assert len(json.dumps(shared.object("bad/huge"))) > 1_200_000
    await eventually(lambda: shared.id_label("bad/huge"), "recorded and labelled")
    await goes_on(shared)
    assert shared.record_of("bad/huge")["desiredState"] == "DEPLOYED"
    events = await shared.events_of("bad/huge")
    assert all(event.headers["ce-truncated"] == "true" for event in events)
    lines = [e for e in shared.producer.entries("WARNING") if "truncated" in e["message"]]
    assert [line["object"] for line in lines] == ["isvc/bad/huge"] * len(events)


async def test_an_object_without_metadata_in_the_watch_is_told_and_passed_over(shared):
    restarts = await shared.producer.metric("isvc_sync_watch_restarts_total", reason="unidentified")
    nameless = without_metadata(shared)
    await goes_on(shared)
    lines = [e for e in shared.producer.entries() if "without metadata" in json.dumps(e)]
    assert lines
    assert all("(no metadata)" in json.dumps(line) for line in lines)
    told = await shared.producer.metric("isvc_sync_watch_restarts_total", reason="unidentified")
    assert told > restarts
    await goes_on(shared)
    assert await shared.producer.metric("isvc_sync_watch_restarts_total", reason="unidentified") == told, (
        "it is no loop"
    )
    del shared.cluster.store._objects[nameless[0]][nameless[1]]


def without_metadata(pipeline: Pipeline) -> tuple[str, str]:
    """Let the API server tell of an object that has no metadata, in watch and list; return where it is kept."""
    store, resource = pipeline.cluster.store, pipeline.cluster.kind("InferenceService").resource
    pipeline.cluster.create(isvc("bad/nameless"))
    event = store.log(resource)._events[-1]
    entry = dataclasses.replace(
        event.entry, raw=b'{"apiVersion":"serving.kserve.io/v1beta1","kind":"InferenceService"}'
    )
    store.log(resource)._events[-1] = dataclasses.replace(event, entry=entry)
    store._objects[resource][entry.key] = entry
    store._sorted.pop(resource, None)
    return resource, entry.key
