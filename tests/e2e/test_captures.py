"""Every recorded watch stream of the real KServe, through producer and consumer, ends in the right records.

What is right stands in tests/captures/expected/, written by hand from the stories. Nearly all stories share one world;
they are played once, and each story is judged on its own.
"""

import asyncio
import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandbox.cluster.play import play, read
from shared.objects import Kind, ObjectKey
from shared.subjects import parse_object_subject
from tests.e2e.pipeline import ID, VERSION, Pipeline

CAPTURES = Path(__file__).parents[1] / "captures"
STORIES = sorted(path.stem for path in CAPTURES.glob("*.jsonl"))
SETTLE_S = 12.0  # a deferred label is looked at 1 s and 5 s after the last event


class ExpectedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    model: str
    state: str
    version: str = ""
    history: tuple[str, ...] = ()
    url: str = ""
    runtime: str = ""
    failure: str = ""


class ExpectedObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    records: tuple[ExpectedRecord, ...] = ()
    label: str | None = None
    dead: str = ""


class Story(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expected end, and what must be true in the registry for it."""

    versions: dict[str, str]
    objects: tuple[ExpectedObject, ...]


class Birth(msgspec.Struct, frozen=True):
    """An object of a capture: its uid, and what it is called."""

    uid: str
    key: ObjectKey

    @property
    def name(self) -> str:
        return f"{self.key.namespace}/{self.key.name}"


def expected(story: str) -> Story:
    raw = tomllib.loads((CAPTURES / "expected" / f"{story}.toml").read_text())
    return msgspec.convert(raw, Story)


def births(story: str) -> list[Birth]:
    """Return every object of a capture in order of appearance."""
    found: dict[str, Birth] = {}
    for line in (CAPTURES / f"{story}.jsonl").read_text().splitlines():
        event = json.loads(line).get("event")
        if event is not None and event["type"] != "BOOKMARK":
            metadata = event["object"]["metadata"]
            kind = next(kind for kind in Kind if kind.kubernetes_kind == event["object"]["kind"])
            key = ObjectKey(kind, metadata["namespace"], metadata["name"])
            found.setdefault(metadata["uid"], Birth(metadata["uid"], key))
    return list(found.values())


def worlds() -> list[list[str]]:
    """Put the stories into as few worlds as possible: no object twice in one."""
    packed: list[tuple[list[str], set[str]]] = []
    for story in STORIES:
        uids = {birth.uid for birth in births(story)}
        stories, present = next((each for each in packed if not each[1] & uids), ([], set()))
        if not stories:
            packed.append((stories, present))
        stories.append(story)
        present |= uids
    return [stories for stories, _ in packed]


def version_id(story: str, version: str) -> str:
    """Return the registry's id of a version that a story's labels name.

    A real registry numbers models and versions in one sequence, and a version has one model; the stories know neither.
    So each story has a thousand ids of its own for versions, above those of the models.
    """
    return str(1000 * (1 + STORIES.index(story)) + int(version)) if version else ""


def test_every_object_of_a_capture_has_an_expected_end():
    for story in STORIES:
        named = [thing.name for thing in expected(story).objects]
        assert sorted(named) == sorted(birth.name for birth in births(story)), story


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory, guard) -> dict[str, Any]:
    """What each story ended in, beside what it should, by story."""
    found: dict[str, Any] = {}
    for number, stories in enumerate(worlds()):
        directory = tmp_path_factory.mktemp(f"world-{number}")
        found |= asyncio.run(_play(Pipeline(directory, guard), stories))
    return found


@pytest.mark.timeout(180)  # the first one plays them all
@pytest.mark.parametrize("story", STORIES)
def test_a_capture_ends_in_the_right_records(ends, story):
    seen, wanted = ends[story]
    assert seen == wanted


async def _play(pipeline: Pipeline, stories: list[str]) -> dict[str, Any]:
    async with pipeline:
        for story in stories:
            pipeline.seed({version_id(story, v): model for v, model in expected(story).versions.items()})
        for story in stories:
            await _replay(pipeline, story)
        await pipeline.settled()
        return await _ends(pipeline, stories)


async def _replay(pipeline: Pipeline, story: str) -> None:
    """Tell the watchers a story as fast as possible."""
    lines = read(CAPTURES / f"{story}.jsonl")
    for line in lines:
        labels = line.event.object["metadata"].get("labels", {}) if line.event else {}
        if VERSION in labels:
            labels[VERSION] = version_id(story, labels[VERSION])
    assert await play(pipeline.cluster.cluster, lines) > 0


async def _ends(pipeline: Pipeline, stories: list[str]) -> dict[str, Any]:
    """Return the ends as soon as all are right, else as they are when everything has had its time."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        letters = {parse_object_subject(s)[1]: reason for s, reason in (await pipeline.dead_letters()).items()}
        found = {story: _compared(pipeline, story, letters) for story in stories}
        unforeseen = letters.keys() - {birth.key for story in stories for birth in births(story)}
        assert not unforeseen
        if all(seen == wanted for seen, wanted in found.values()) or time.monotonic() > deadline:
            known = {birth.uid for story in stories for birth in births(story)}
            assert {r["externalId"].split(":")[1].split("/")[0] for r in pipeline.records()} <= known
            return found
        await asyncio.sleep(0.2)


def _compared(pipeline: Pipeline, story: str, letters: dict[ObjectKey, str]) -> tuple[Any, Any]:
    """Return how the objects of a story ended, and how they should."""
    seen, wanted = {}, {}
    for number, (birth, end) in enumerate(_paired(story)):
        reason = letters.get(birth.key, "")
        title = f"{number} {birth.name} {birth.uid}"
        wanted[title] = {
            "records": [_as_seeded(story, record) for record in end.records],
            "label": end.label,
            "dead": end.dead,
        }
        seen[title] = {
            "records": sorted(_records(pipeline, birth.uid), key=lambda record: record["model"]),
            "label": None if end.label is None else _label(pipeline, birth),
            "dead": end.dead if end.dead and end.dead in reason else reason,
        }
    return seen, wanted


def _as_seeded(story: str, record: ExpectedRecord) -> dict[str, Any]:
    """Return an expected record with the registry's version ids."""
    version, history = version_id(story, record.version), tuple(version_id(story, v) for v in record.history)
    return msgspec.to_builtins(msgspec.structs.replace(record, version=version)) | {"history": history}


def _paired(story: str) -> Iterator[tuple[Birth, ExpectedObject]]:
    """Pair the objects of a capture with their expected ends: those of one name in order of birth."""
    ends = list(expected(story).objects)
    for birth in births(story):
        end = next(end for end in ends if end.name == birth.name)
        ends.remove(end)
        yield birth, end


def _records(pipeline: Pipeline, uid: str) -> Iterator[dict[str, Any]]:
    for record in pipeline.records(uid):
        stamp = json.loads(record["customProperties"]["isvc-sync"]["string_value"])
        assert record["externalId"] == f"kserve:{uid}/{record['registeredModelId']}"
        yield {
            "model": record["registeredModelId"],
            "state": record["desiredState"],
            "version": record.get("modelVersionId", ""),
            "history": tuple(change["version"] for change in stamp["history"]),
            "url": record["customProperties"].get("url", {}).get("string_value", ""),
            "runtime": record.get("runtime", ""),
            "failure": stamp["loadFailure"],
        }


def _label(pipeline: Pipeline, birth: Birth) -> str:
    """Return the id label of a living object: `none`, `ours` when it is that of its record, else its value."""
    obj = pipeline.object(birth.name, birth.key.kind.kubernetes_kind)
    value = obj["metadata"]["labels"].get(ID)
    if value is None:
        return "none"
    return "ours" if value in {record["id"] for record in pipeline.records(birth.uid)} else str(value)
