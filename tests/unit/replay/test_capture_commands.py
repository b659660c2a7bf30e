"""`isvc-sync record --from-watch`, `redact`, `validate`, `stats`, on files."""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from cli.app import app
from replay.capture import Captured, Footer, Header, Position, encode
from replay.files import reading
from tests.unit.replay.captures import ACTION, FACTS, HEADER, RECORD, STORIES, at, first_event, small, write

RUNNER = CliRunner()


def isvc_sync(*arguments: object):
    result = RUNNER.invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def storm(tmp_path) -> Path:
    path = tmp_path / "storm.jsonl"
    assert isvc_sync("record", path, "--from-watch", STORIES / "storm.jsonl").exit_code == 0
    return path


def read(path: Path):
    with reading(path) as capture:
        return capture.header, list(capture), capture.cut


def test_a_watch_file_is_recorded(storm):
    header, lines, cut = read(storm)
    assert cut is None
    assert (header.source, header.cluster, header.redaction.profile) == ("watch-file", "recorded", "reduced")
    assert sum(isinstance(line, Captured) for line in lines) == 180


def test_a_watch_file_is_recorded_from_standard_input_and_from_gzip(tmp_path):
    packed = tmp_path / "w.gz"
    packed.write_bytes(gzip.compress((STORIES / "rollout.jsonl").read_bytes()))
    done = isvc_sync("record", tmp_path / "x", "--from-watch", packed, "--cluster", "prod", "--cluster-id", "c-1")
    assert done.exit_code == 0
    header, lines, _ = read(tmp_path / "x")
    assert (header.cluster, header.cluster_id) == ("prod", "c-1")
    assert {line.event.cluster_id for line in lines if isinstance(line, Captured)} == {"c-1"}


@pytest.mark.parametrize("arguments", [("-n", "storm", "--kind", "llmisvc"), ("-n", "nowhere")])
def test_only_what_was_chosen_is_recorded_of_a_watch_file(tmp_path, arguments):
    isvc_sync("record", tmp_path / "x", "--from-watch", STORIES / "storm.jsonl", *arguments)
    assert not any(isinstance(line, Captured) for line in read(tmp_path / "x")[1])


def test_a_watch_file_that_was_cut_is_recorded_up_to_there_and_exits_3(tmp_path):
    source = tmp_path / "w"
    source.write_bytes((STORIES / "storm.jsonl").read_bytes()[:-100_000])
    done = isvc_sync("record", tmp_path / "x", "--from-watch", source, "-o", "json")
    assert done.exit_code == 3
    assert "stops in the middle. What stands before it is recorded." in done.stderr
    assert json.loads(done.stdout)["events"] > 100
    assert read(tmp_path / "x")[2] is None


def test_what_is_no_watch_file_is_refused_and_exits_2(tmp_path):
    (tmp_path / "w").write_text("NAME  URL\niris  http://x\n")
    done = isvc_sync("record", tmp_path / "x", "--from-watch", tmp_path / "w")
    assert done.exit_code == 2
    assert "is it the output of kubectl with -o json?" in done.stderr


def test_a_watch_file_without_objects_is_told(tmp_path):
    (tmp_path / "w").write_text("")
    done = isvc_sync("record", tmp_path / "x", "--from-watch", tmp_path / "w")
    assert done.exit_code == 3
    assert "tells of no object" in done.stderr


def test_a_watch_file_that_is_not_there_is_told(tmp_path):
    done = isvc_sync("record", tmp_path / "x", "--from-watch", tmp_path / "w")
    assert done.exit_code == 2
    assert "No such file" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--from-watch", "w", "--from-cluster"), "two sources"),
        (("--from-watch", "w", "--follow"), "read to its end"),
        (("--from-watch", "w", "--from", "7"), "places in the stream"),
        (("--from-cluster", "--until", "7"), "places in the stream"),
        (("--cluster", "x"), "go with --from-watch"),
        (("--salt", "x"), "--salt says nothing without --anonymous"),
        (("--from", "yesterday"), "--from is 'yesterday'"),
        (("--for", "soon"), "--for is 'soon'"),
        (("--for", "-3s"), "--for is '-3s'"),
        (("--only", "iris"), "must be NAMESPACE/NAME"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, arguments, sentence):
    done = isvc_sync("record", tmp_path / "x", *arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_file_that_exists_is_written_over_on_demand_only(storm):
    before = storm.read_bytes()
    again = ("record", storm, "--from-watch", STORIES / "rollout.jsonl")
    assert isvc_sync(*again).exit_code == 2
    assert storm.read_bytes() == before
    assert isvc_sync(*again, "--force").exit_code == 0
    assert storm.read_bytes() != before


NONE = {
    "a table": b"NAME  URL\niris  http://x\n",
    "nothing": b"",
    "a document that is cut": b'{"type":"ADDED",',
    "noise after good documents": (STORIES / "storm.jsonl").read_bytes() + b"password=hunter2\n",
}


@pytest.mark.parametrize("source", NONE.values(), ids=NONE)
def test_a_recording_that_fails_leaves_the_file_that_was_there_and_else_none(storm, tmp_path, source):
    before = storm.read_bytes()
    (tmp_path / "w").write_bytes(source)
    for into, more in ((storm, ("--force",)), (tmp_path / "new", ())):
        assert isvc_sync("record", into, "--from-watch", tmp_path / "w", *more).exit_code in {2, 3}
    assert storm.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["storm.jsonl", "w"]


@pytest.mark.parametrize(
    "complaint", ["error: watch closed", "Error from server (Gone)", "Unable to connect to the server: x"]
)
def test_an_error_of_kubectl_after_good_documents_counts_like_a_cut(tmp_path, complaint):
    (tmp_path / "w").write_bytes((STORIES / "storm.jsonl").read_bytes() + complaint.encode() + b" SECRET\n")
    done = isvc_sync("record", tmp_path / "x", "--from-watch", tmp_path / "w")
    assert done.exit_code == 3
    assert "w was cut: line 473 is an error of kubectl, and ends it. What stands before it is recorded." in done.stderr
    assert "SECRET" not in done.stderr + done.stdout
    _, lines, cut = read(tmp_path / "x")
    assert (sum(isinstance(line, Captured) for line in lines), cut) == (180, None)


def test_compressed_watch_events_that_were_cut_are_recorded_up_to_there(tmp_path):
    packed = gzip.compress((STORIES / "storm.jsonl").read_bytes())
    (tmp_path / "w").write_bytes(packed[: len(packed) // 2])
    done = isvc_sync("record", tmp_path / "x", "--from-watch", tmp_path / "w")
    assert done.exit_code == 3
    assert "What stands before it is recorded." in done.stderr
    assert read(tmp_path / "x")[2] is None


def test_a_file_in_which_a_line_does_not_decode_is_redacted_into_nothing(storm, tmp_path):
    lines = storm.read_bytes().splitlines(keepends=True)
    (tmp_path / "broken").write_bytes(b"".join((*lines[:50], b"{\n", *lines[50:])))
    before = storm.read_bytes()
    for into, more in ((storm, ("--force",)), (tmp_path / "new", ())):
        assert isvc_sync("redact", tmp_path / "broken", into, *more).exit_code == 2
    assert storm.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broken", "storm.jsonl"]


def test_a_folder_is_no_file_to_write(tmp_path):
    done = isvc_sync("record", tmp_path, "--from-watch", STORIES / "rollout.jsonl", "--force")
    assert done.exit_code == 2
    assert "is no file that can be written" in done.stderr


def test_what_record_wrote_is_not_changed_by_redacting_it(storm, tmp_path):
    done = isvc_sync("redact", storm, tmp_path / "y")
    assert (done.exit_code, done.stderr) == (0, "")
    assert (tmp_path / "y").read_bytes() == storm.read_bytes()


def test_an_anonymous_copy_tells_no_names_and_is_valid(storm, tmp_path):
    assert isvc_sync("redact", storm, tmp_path / "y.gz", "--anonymous").exit_code == 0
    data = gzip.decompress((tmp_path / "y.gz").read_bytes())
    assert b"storm" not in data
    assert b"model-0" not in data
    assert isvc_sync("validate", tmp_path / "y.gz").exit_code == 0


def test_a_salt_makes_two_files_that_belong_together(storm, tmp_path):
    for name, salt in (("a", "s"), ("b", "s"), ("c", "t")):
        isvc_sync("redact", storm, tmp_path / name, "--anonymous", "--salt", salt)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


def test_a_copy_of_a_file_that_was_cut_is_one_that_was_cut(storm, tmp_path):
    storm.write_bytes(storm.read_bytes()[:-5000])
    done = isvc_sync("redact", storm, tmp_path / "y")
    assert done.exit_code == 3
    assert "was cut: line" in done.stderr
    assert read(tmp_path / "y")[2] is not None


def test_a_line_that_this_release_does_not_know_stays_and_in_an_anonymous_file_does_not(tmp_path):
    later = b'{"weather":{"at":"credit"}}\n'
    (tmp_path / "x").write_bytes(encode(HEADER) + b"\n" + later + encode(Footer(0, 0)) + b"\n")
    assert isvc_sync("redact", tmp_path / "x", tmp_path / "y").exit_code == 0
    assert later in (tmp_path / "y").read_bytes()
    done = isvc_sync("redact", tmp_path / "x", tmp_path / "z", "--anonymous", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["leftOut"]) == (1, 1)
    assert b"credit" not in (tmp_path / "z").read_bytes()


def test_a_file_is_not_redacted_into_itself(storm):
    before = storm.read_bytes()
    assert isvc_sync("redact", storm, storm, "--force").exit_code == 2
    assert storm.read_bytes() == before


def test_a_whole_file_is_valid(storm):
    done = isvc_sync("validate", storm)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("180 events in 213 lines, no problem\n")


def changed(event: Captured, **fields) -> Captured:
    return replace(event, event=replace(event.event, **fields))


EVENT = first_event()
KEY = EVENT.event.key
WRONG = {
    "a gap that goes back": ([at(5, EVENT), at(5, EVENT)], "has the sequence 5, which is not above"),
    "another cluster": ([changed(EVENT, cluster_id="c-2")], "comes from the cluster 'c-2'"),
    "another object": ([changed(EVENT, key=replace(KEY, name="other"))], "holds the object credit/scorer"),
    "another digest": ([changed(EVENT, digest="v1:00")], "holds another object than its digest"),
    "another subject": (
        [replace(EVENT, position=Position(1, "isvc.p.evt.1.isvc.a.b"))],
        "stood on the subject of isvc/a/b",
    ),
    "no subject of ours": ([replace(EVENT, position=Position(1, "x.y"))], "subject 'x.y' is not"),
    "a field that is not reduced": (
        [replace(EVENT, data=EVENT.data.replace(b'"storageUri"', b'"env":[{"name":"TOKEN"}],"storageUri"'))],
        "holds what no reduced object does: spec.predictor.model.env.*.name",
    ),
    "an object that does not decode": ([replace(EVENT, data=b"[]")], "does not decode"),
    "a late initial event": ([at(5, EVENT), replace(at(3, EVENT), initial=True)], "is initial, and stands after"),
    "an action about nothing": ([replace(ACTION, object="scorer")], "'scorer' is no <kind>/<namespace>/<name>"),
}


@pytest.mark.parametrize(("lines", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_found(tmp_path, lines, sentence):
    write(tmp_path / "x", lines)
    done = isvc_sync("validate", tmp_path / "x", "-o", "json")
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert sentence in "\n".join(each["problem"] for each in shown["shown"])
    assert shown["shown"][-1]["line"] == len(lines) + 1


def test_a_line_that_does_not_decode_hides_none_behind_it(tmp_path):
    texts = [encode(HEADER), b"{", encode(EVENT), encode(HEADER), encode(Footer(7, 1)), encode(FACTS)]
    (tmp_path / "x").write_bytes(b"\n".join(texts) + b"\n")
    done = isvc_sync("validate", tmp_path / "x")
    assert done.exit_code == 1
    assert [line.split()[1] for line in done.stdout.splitlines()[:-1]] == ["2", "4", "5", "6"]


def test_an_id_that_its_attributes_do_not_make_is_found(tmp_path):
    text = encode(EVENT).replace(b':c"', b':u"', 1).replace(b'"subject":"credit/scorer"', b'"subject":"credit/other"')
    (tmp_path / "x").write_bytes(encode(HEADER) + b"\n" + text + b"\n" + encode(Footer(1, 1)) + b"\n")
    done = isvc_sync("validate", tmp_path / "x")
    assert "has the id" in done.stdout
    assert "has the subject 'credit/other', and is about isvc/credit/scorer" in done.stdout


@pytest.mark.parametrize("value", [b"7", b"null", b'["x"]'])
@pytest.mark.parametrize("name", ["id", "subject"])
def test_an_id_or_a_subject_that_is_no_text_is_a_problem(tmp_path, name, value):
    given = {"id": EVENT.event.id, "subject": "credit/scorer"}[name].encode()
    text = encode(EVENT).replace(b'"%s":"%s"' % (name.encode(), given), b'"%s":%s' % (name.encode(), value), 1)
    (tmp_path / "x").write_bytes(encode(HEADER) + b"\n" + text + b"\n" + encode(Footer(1, 1)) + b"\n")
    done = isvc_sync("validate", tmp_path / "x", "-o", "json")
    assert done.exit_code == 1
    assert f"has the {name} " in json.loads(done.stdout)["shown"][0]["problem"]


@pytest.mark.parametrize("value", [{"string_value": 7}, {"string_value": None}, 7, {}])
def test_a_record_whose_property_is_no_text_is_made_anonymous(tmp_path, value):
    record = replace(RECORD, properties={"isvc-sync": value, "url": value})
    write(tmp_path / "x", [EVENT, replace(FACTS, records=(record,))])
    assert isvc_sync("redact", tmp_path / "x", tmp_path / "y", "--anonymous").exit_code == 0
    [_, facts, _] = read(tmp_path / "y")[1]
    assert facts.records[0].id == RECORD.id


@pytest.mark.parametrize("command", ["validate", "stats"])
def test_a_file_that_was_cut_exits_3(storm, command):
    storm.write_bytes(storm.read_bytes()[:-10])
    done = isvc_sync(command, storm)
    assert done.exit_code == 3
    assert "was cut: line 213 stops in the middle. What stands before it was read." in done.stderr


@pytest.mark.parametrize("command", ["validate", "stats"])
def test_a_file_of_which_nothing_is_left_exits_3(tmp_path, command):
    (tmp_path / "x").write_bytes(b'{"capture":"isvc-ca')
    done = isvc_sync(command, tmp_path / "x")
    assert done.exit_code == 3
    assert "was cut in the middle of its first line" in done.stderr


@pytest.mark.parametrize(("command", "code"), [("validate", 1), ("stats", 2)])
def test_what_is_no_capture_is_told(tmp_path, command, code):
    (tmp_path / "x").write_text("hello\n")
    done = isvc_sync(command, tmp_path / "x")
    assert done.exit_code == code
    assert "does not decode" in done.stderr


def test_a_capture_is_read_from_standard_input(storm, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert isvc_sync("stats", "/dev/stdin", "-o", "json").exit_code in {2, 3}


@pytest.mark.parametrize(
    ("text", "code", "problems", "is_cut"),
    [("hello\n", 1, 1, False), ("", 3, 0, True), ('{"capture":"isv', 3, 0, True)],
)
def test_programs_are_told_of_what_is_no_capture_too(tmp_path, text, code, problems, is_cut):
    (tmp_path / "x").write_text(text)
    done = isvc_sync("validate", tmp_path / "x", "-o", "json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["events"], found["problems"], len(found["shown"])) == (code, 0, problems, problems)
    assert (found["cut"] is not None) is is_cut


@pytest.mark.parametrize("output", ["table", "json"])
def test_what_is_recorded_anonymously_is_shown_without_names(tmp_path, output):
    source = STORIES / "create-ready-delete.jsonl"
    done = isvc_sync("record", tmp_path / "x", "--from-watch", source, "--anonymous", "-o", output)
    _, lines, _ = read(tmp_path / "x")
    [key] = {str(line.event.key) for line in lines if isinstance(line, Captured)}
    assert key in done.stdout
    assert "scorer" not in done.stdout + done.stderr
    assert "credit" not in done.stdout + done.stderr


def test_the_numbers_of_a_file(tmp_path):
    initial = replace(at(3, EVENT), initial=True)
    again = changed(EVENT, uid="u2", corrects=4)
    write(tmp_path / "x", [*small()[:1], initial, at(10, EVENT), at(13, again), at(12, EVENT), ACTION, ACTION, FACTS])
    done = isvc_sync("stats", tmp_path / "x", "-o", "json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (found["events"], found["initial"], found["synthetic"]) == (4, 1, 1)
    assert (found["objects"], found["uids"], found["duplicates"]) == (1, 2, 2)
    assert (found["firstSeq"], found["lastSeq"], found["gaps"], found["missing"], found["outOfOrder"]) == (
        10,
        13,
        1,
        2,
        1,
    )
    assert found["types"] == {"created": 4, "updated": 0, "deleted": 0}
    assert found["facts"] == {"lines": 2, "records": {"start": 0, "end": 1}}
    assert found["actions"] == 2
    assert found["perObject"][0]["object"] == "isvc/credit/scorer"


def test_the_rates_and_the_objects_of_a_file(storm):
    found = json.loads(isvc_sync("stats", storm, "-o", "json").stdout)
    assert (found["spanS"], found["eventsPerS"], found["peakPerS"]) == (28.188, 6.386, 59)
    assert (len(found["perObject"]), found["perObject"][0]["events"]) == (30, 6)
    lines = isvc_sync("stats", storm).stdout.splitlines()
    assert any("180 (30 created, 120 updated, 30 deleted)" in line for line in lines)
    assert lines[-1].strip() == "and 10 more; -o json names all of them"


def test_a_header_is_written_by_this_release(storm):
    header, _, _ = read(storm)
    assert isinstance(header, Header)
    assert header.tool
    assert header.created.endswith("Z")
