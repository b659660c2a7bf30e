"""What the sandbox command says when it cannot run."""

import socket

import pytest

import cli.sandbox
from sandbox.broker import NatsServer
from sandbox.world import Options
from shared.errors import RefusedToStartError


def test_a_missing_nats_server_is_one_sentence(tmp_path, monkeypatch, capsys):
    async def start(self: NatsServer) -> None:
        raise RefusedToStartError("nats-server was found nowhere: install it.")

    monkeypatch.setattr(NatsServer, "start", start)
    assert cli.sandbox.run(tmp_path, Options(), ()) == 2
    assert capsys.readouterr().err == "isvc-sync sandbox cannot run: nats-server was found nowhere: install it.\n"


def test_a_file_that_is_no_capture_is_one_sentence_with_its_line(tmp_path, capsys):
    capture = tmp_path / "x.jsonl"
    capture.write_text("[]\n")
    assert cli.sandbox.run(tmp_path, Options(broker=False), (capture,)) == 2
    assert f"{capture}, line 1: " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["kubernetes_port", "registry_port"])
def test_a_port_that_is_taken_is_named_with_the_way_out(tmp_path, capsys, option):

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.sandbox.run(tmp_path, Options(broker=False, **{option: port}), ()) == 2
    said = capsys.readouterr().err
    assert str(port) in said
    assert "--kubernetes-port or --registry-port" in said
    assert not (tmp_path / "sandbox.json").exists()
