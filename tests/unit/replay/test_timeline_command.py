"""`isvc-sync timeline`: what it writes, with which exit code."""

import logging
import re

import msgspec
import pytest

from cli.replaying.timeline import CUT, REFUSED, WRITTEN, Options, run
from replay.capture import Captured
from replay.timeline.data import Page
from tests.unit.replay import captures


@pytest.fixture(autouse=True)
def _logs():
    """A command silences the logs of its process; this process goes on."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "rollout.jsonl"
    captures.write(path, list(captures.story("rollout")))
    return path


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out.html"


def page(path):
    (data,) = re.findall(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return msgspec.json.decode(data, type=Page)


def test_a_page_holds_every_event_of_the_capture(capture, output):
    assert run(Options(file=capture, output=output)) == WRITTEN
    events = [line for line in captures.story("rollout") if isinstance(line, Captured)]
    assert sorted(page(output).events.seq) == sorted(line.position.seq for line in events)


def test_it_says_what_it_wrote(capture, output, capsys):
    run(Options(file=capture, output=output))
    assert re.fullmatch(
        r".*out\.html: \d+ events of 1 object, 0\.\d\d MB\. Press \? in it\.\n", capsys.readouterr().out
    )


def test_a_page_that_is_there_is_left_alone(capture, output, capsys):
    output.write_text("mine")
    assert run(Options(file=capture, output=output)) == REFUSED
    assert output.read_text() == "mine"
    assert "--force" in capsys.readouterr().err


def test_force_writes_over_a_page(capture, output):
    output.write_text("x" * 1_000_000)
    assert run(Options(file=capture, output=output, force=True)) == WRITTEN
    assert output.read_text(encoding="utf-8").endswith("</html>\n")


def test_a_cut_capture_makes_a_page_that_says_so(capture, output, capsys):
    capture.write_bytes(capture.read_bytes()[:-200])
    assert run(Options(file=capture, output=output)) == CUT
    assert page(output).about.cut
    assert "was cut" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", '{"capture": "isvc-ca'])
def test_of_a_capture_that_was_cut_at_its_start_there_is_no_page(capture, output, text):
    capture.write_text(text)
    assert run(Options(file=capture, output=output)) == CUT
    assert not output.exists()


@pytest.mark.parametrize("text", ['{"story": "watch"}\n', "no json\n"])
def test_what_is_no_capture_is_refused(capture, output, text, capsys):
    capture.write_text(text)
    assert run(Options(file=capture, output=output)) == REFUSED
    assert not output.exists()
    assert capsys.readouterr().err.startswith("isvc-sync timeline: ")


def test_a_file_that_is_not_there_is_refused(tmp_path, output):
    assert run(Options(file=tmp_path / "none", output=output)) == REFUSED


def test_a_place_that_cannot_be_written_is_refused(capture, tmp_path):
    assert run(Options(file=capture, output=tmp_path / "none" / "out.html")) == REFUSED


def test_only_one_object_can_be_drawn(capture, output):
    assert run(Options(file=capture, output=output, only=("iris/classifier",))) == WRITTEN
    assert page(output).about.only == "iris/classifier"


def test_an_object_that_is_not_there_is_refused(capture, output, capsys):
    assert run(Options(file=capture, output=output, only=("iris/none",))) == REFUSED
    assert "iris/none" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("only", ["iris", "a/b/c", "/x", "x/"])
def test_an_object_without_a_namespace_is_refused(capture, output, only, capsys):
    assert run(Options(file=capture, output=output, only=(only,))) == REFUSED
    assert "NAMESPACE/NAME" in capsys.readouterr().err
