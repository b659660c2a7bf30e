"""What `isvc-sync replay --to` refuses, and that nothing leaves the machine for it."""

import logging
import socket
from pathlib import Path

import pytest

from cli.replaying.to import Options, run
from tests.unit.replay.replayed import START, story, write


@pytest.fixture(autouse=True)
def logging_as_before():
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture
def capture(tmp_path):
    return write(tmp_path / "story.jsonl", [START, *story()])


@pytest.fixture
def no_sockets(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a socket was asked for")

    for name in ("socket", "socketpair", "create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.usefixtures("no_sockets")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"to": "nats://nats.prod:4222"},
            "may leave this machine: add --yes-to nats://nats.prod:4222 if that is meant",
        ),
        ({"to": "http://10.0.0.7:8080"}, "may leave this machine: add --yes-to http://10.0.0.7:8080"),
        (
            {"to": "nats://nats.prod:4222", "yes_to": "nats://nats.test:4222"},
            "names another one, nats://nats.test:4222",
        ),
        ({"to": "nowhere"}, "is no target"),
        ({"to": "nats://u:s3cr3t@localhost"}, "give NATS_CREDS_FILE or REGISTRY_TOKEN_FILE"),
        ({"to": "sandbox", "speed": "fast"}, "--speed is 'fast': it must be a factor such as 1x"),
        ({"to": "sandbox", "until": "noon"}, "--until is 'noon': it must be a stream sequence"),
        ({"to": "sandbox", "since": "noon"}, "--from is 'noon': it must be a stream sequence"),
        ({"to": "sandbox", "only": ("iris",)}, "--only 'iris' is not NAMESPACE/NAME"),
        ({"to": "sandbox", "file": Path("-")}, "--to plays a file"),
        ({"to": "sandbox", "step": True}, "--step waits for Enter, and there is no terminal here"),
    ],
)
def test_wrong_options_are_refused_before_any_socket_is_opened(capture, capsys, options, sentence):
    assert run(Options(**({"file": capture} | options)), {}) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert shown.err.count("\n") == 1
    assert "s3cr3t" not in shown.err + shown.out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(b'{"a": 1}\n', "is no capture"), (b'{"capture": "isvc-capture/2"}\n', "use a newer isvc-sync")],
)
def test_what_is_no_capture_is_refused(tmp_path, capsys, text, sentence):
    path = tmp_path / "file"
    path.write_bytes(text)
    assert run(Options(file=path, to="sandbox"), {}) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_not_there_is_refused(tmp_path, capsys):
    assert run(Options(file=tmp_path / "none", to="sandbox"), {}) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_name_that_cannot_be_part_of_a_subject_is_refused(capture, capsys):
    assert run(Options(file=capture, to="sandbox", name="isvc.>"), {}) == 2
    assert "--name 'isvc.>' must be small letters" in capsys.readouterr().err
