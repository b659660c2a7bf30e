"""`isvc-sync replay --to sandbox`: a local world, a real consumer, and what its registry holds in the end."""

import json

import pytest

from replay.capture import Captured, Position
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from tests.integration.replay.commands import ended, replay, started
from tests.unit.replay.replayed import START, captured, end, isvc, story, write


def by_name(document):
    return {each["name"]: each for each in document["objects"]}


@pytest.fixture
def capture(tmp_path):
    return write(tmp_path / "story.jsonl.gz", [START, *story(), end()])


async def test_the_registry_ends_as_the_capture_says(capture):
    done = await replay(capture, "--to", "sandbox", "-o", "json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["events"], document["compared"], document["unreadable"], document["cut"]) == (5, True, 0, None)
    iris = by_name(document)["iris"]
    assert (iris["agrees"], iris["record"]["state"], iris["record"]["history"]) == (True, "UNDEPLOYED", "2, 3")


async def test_an_end_that_differs_is_shown_by_field_and_exits_1(tmp_path):
    path = write(tmp_path / "story.jsonl", [START, *story(), end(model_version="2", storage_uri="s3://other")])
    done = await replay(path, "--to", "sandbox")
    assert done.code == 1, done.err
    assert "isvc/team-a/iris: storageUri is s3://models/iris, captured was s3://other" in done.out.splitlines()


async def test_a_record_that_was_there_before_is_found_and_closed(tmp_path):
    there = end(deleted=False, undeployed_at="", resource_version="51").records[0]
    gone = next(each for each in story() if each.event.type is EventType.DELETED)
    path = write(tmp_path / "story.jsonl", [START, end().__class__(records=(there,)), gone])
    done = await replay(path, "--to", "sandbox", "-o", "json")
    assert done.code == 0, done.err
    (iris,) = json.loads(done.out)["objects"]
    assert (iris["record"]["id"], iris["record"]["state"], iris["agrees"]) == ("71", "UNDEPLOYED", None)


async def test_what_can_never_succeed_is_told_with_its_reason(tmp_path):
    key = ObjectKey(Kind.ISVC, "team-a", "typo")
    wrong = captured(1, isvc(key, "u-3", 60, registered_model_id="99"), EventType.CREATED, models=("99",))
    broken = Captured(wrong.event, b'{"no": "object"}', Position(2))
    path = write(tmp_path / "story.jsonl", [START, wrong, broken])
    done = await replay(path, "--to", "sandbox", "-o", "json")
    assert done.code == 0, done.err
    assert list(json.loads(done.out)["deadLetters"]) == ["isvc/team-a/typo"]


async def test_only_and_until_choose_what_is_played(capture):
    done = await replay(capture, "--to", "sandbox", "--only", "team-a/iris", "--until", 12, "-o", "json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["events"], document["compared"]) == (2, False)
    assert [(each["name"], each["record"]["version"]) for each in document["objects"]] == [("iris", "2")]


async def test_a_cut_file_is_replayed_up_to_the_cut_and_exits_3(tmp_path):
    path = write(tmp_path / "story.jsonl", [START, *story()])
    path.write_bytes(path.read_bytes().rsplit(b"\n", 3)[0])
    done = await replay(path, "--to", "sandbox", "-o", "json")
    assert done.code == 3
    assert json.loads(done.out)["events"] == 4
    assert "the capture was cut, and was replayed up to there" in done.err


async def test_a_replay_whose_output_nobody_reads_ends_in_silence(capture):
    async with started(capture, "--to", "sandbox") as process:
        process.stdout._transport.close()
        done = await ended(process)
    assert (done.code, len(done.err.splitlines())) == (3, 1), done.err
    assert "playing" in done.err


async def test_two_registries_are_refused(tmp_path):
    facts = [START, type(START)(registry="b/registry", models=("1",))]
    done = await replay(write(tmp_path / "story.jsonl", [*facts, *story()]), "--to", "sandbox")
    assert done.code == 2
    assert "the sandbox has one: use --plan" in done.err


async def test_more_changes_of_one_object_than_the_stream_keeps_are_all_handled(tmp_path):
    key = ObjectKey(Kind.ISVC, "team-a", "busy")
    versions = [str(2 + number % 2) for number in range(150)]
    events = [
        captured(seq, isvc(key, "u-3", 100 + seq, registered_model_id="1", model_version_id=version))
        for seq, version in enumerate(versions)
    ]
    done = await replay(write(tmp_path / "story.jsonl", [START, *events]), "--to", "sandbox", "-o", "json")
    assert done.code == 0, done.err
    (busy,) = json.loads(done.out)["objects"]
    assert busy["record"]["history"].split(", ") == versions[-50:]
