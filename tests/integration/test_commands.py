"""`isvc-sync history` and `isvc-sync drift`, as processes, where less than the whole pipeline is there."""

import json
from typing import Any

import pytest

import sandbox.registry
from consumer.records import Stamp, VersionChange, encode_stamp
from sandbox.world import Options, world
from shared.broker import Broker, BrokerSettings
from shared.streams import ensure_streams
from tests.e2e.commands import run as command


def moment(minute: int) -> str:
    return f"2026-11-30T10:{minute:02}:00.123Z"


def record(number: int, name: str, *versions: str, cluster: str = "prod", ended: str = "") -> dict[str, Any]:
    """Return a record that was given these versions, one a minute."""
    stamp = Stamp(
        cluster=cluster,
        cluster_id=f"id-of-{cluster}",
        kind="isvc",
        namespace="team-a",
        name=name,
        uid=f"u{number}",
        epoch=1,
        resource_version="7",
        model_version=versions[-1],
        deployed_at=moment(0),
        undeployed_at=ended,
        history=tuple(VersionChange(version, "1", moment(minute)) for minute, version in enumerate(versions)),
    )
    return {
        "id": str(number),
        "name": f"{name}/u{number}",
        "externalId": f"kserve:u{number}/1",
        "servingEnvironmentId": "3",
        "registeredModelId": "1",
        "desiredState": "UNDEPLOYED" if ended else "DEPLOYED",
        "customProperties": {"isvc-sync": encode_stamp(stamp)},
    }


@pytest.fixture
async def registry():
    async with sandbox.registry.serve() as server:
        server.seed(
            registered_models=[{"id": "1", "name": "iris"}],
            serving_environments=[{"id": "3", "name": "team-a"}],
            inference_services=[
                record(11, "iris", "101", "102", ended=moment(9)),
                record(12, "iris", "102"),
                record(13, "iris", "102", cluster="test"),
                record(14, "lily", "101", "103"),
            ],
        )
        yield server


@pytest.fixture
def environ(registry) -> dict[str, str]:
    return {"REGISTRY_URL": registry.url}


async def test_the_history_of_an_object_is_told_from_the_registry_alone(environ):
    done = await command(environ, "history", "team-a/iris", "--cluster", "prod")
    assert (done.code, done.err) == (0, "")
    assert [line.rstrip() for line in done.out.splitlines()] == [
        "isvc/team-a/iris, uid u11, cluster prod",
        "registered model 1, record 11: UNDEPLOYED",
        "  Version  Since                 Until",
        "  101      2026-11-30T10:00:00Z  2026-11-30T10:01:00Z",
        "  102      2026-11-30T10:01:00Z  2026-11-30T10:09:00Z",
        "",
        "isvc/team-a/iris, uid u12, cluster prod",
        "registered model 1, record 12: DEPLOYED",
        "  Version  Since                 Until",
        "  102      2026-11-30T10:00:00Z  now",
    ]


async def test_the_history_of_a_version_names_every_object_that_had_it(environ):
    done = await command(environ, "history", "--version", "102")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()[1:]] == [
        ["isvc/team-a/iris", "prod", "1", "2026-11-30T10:00:00Z", "now"],
        ["isvc/team-a/iris", "test", "1", "2026-11-30T10:00:00Z", "now"],
        ["isvc/team-a/iris", "prod", "1", "2026-11-30T10:01:00Z", "2026-11-30T10:09:00Z"],
    ]


async def test_programs_get_a_history_with_its_exact_times(environ):
    done = await command(environ, "history", "team-a/lily", "-o", "json")
    [found] = json.loads(done.out)
    assert (found["uid"], found["record"], found["deployed"], found["cut"]) == ("u14", "14", True, 0)
    assert found["versions"] == [
        {"version": "101", "since": moment(0), "until": moment(1)},
        {"version": "103", "since": moment(1), "until": ""},
    ]


async def test_a_history_of_nothing_is_exit_code_1(environ):
    done = await command(environ, "history", "team-a/other")
    assert (done.code, done.out) == (1, "")
    assert done.err == "isvc-sync history: no record of isvc-sync is about team-a/other.\n"


async def test_a_registry_that_does_not_answer_is_exit_code_3_in_one_sentence(environ, registry):
    registry.switch(database="stopped")
    done = await command(environ, "history", "--version", "102", "-o", "json")
    assert (done.code, done.out, len(done.err.splitlines())) == (3, "", 1)


@pytest.mark.parametrize(
    ("missing", "code", "said"),
    [
        ({"CLUSTER_NAME": ""}, 2, "CLUSTER_NAME is not set"),
        ({"NATS_URL": "nats://127.0.0.1:1"}, 3, "did not let us in"),
    ],
    ids=["no cluster name", "no broker"],
)
async def test_what_cannot_be_compared_is_said_in_one_sentence(tmp_path, missing, code, said):
    async with world(tmp_path, Options(broker=False, kserve=False)) as there:
        done = await command(there.environ | missing, "drift")
    assert (done.code, done.out, said in done.err, len(done.err.splitlines())) == (code, "", True, 1)


@pytest.mark.parametrize(
    ("shards", "code", "said"),
    [("8", 2, "is for 16 shards, and SHARDS is 8: set SHARDS=16"), ("16", 0, "0 records in 1 registry")],
)
async def test_looks_are_never_asked_for_with_another_number_of_shards(tmp_path, shards, code, said):
    async with world(tmp_path, Options(kserve=False)) as there:
        assert there.broker is not None
        settings = BrokerSettings(nats_url=(there.broker.url,), shards=16)
        async with Broker(settings, on_closed=lambda: None) as broker:
            await ensure_streams(broker.jetstream, settings)
        done = await command(there.environ | {"SHARDS": shards}, "drift")
    assert (done.code, said in done.out + done.err) == (code, True)


async def test_without_an_event_stream_there_is_nothing_to_compare(tmp_path):
    async with world(tmp_path, Options(kserve=False)) as there:
        done = await command(there.environ, "drift")
    assert (done.code, done.out, "ISVC_EVENTS" in done.err, len(done.err.splitlines())) == (3, "", True, 1)


@pytest.mark.parametrize("command_name", [("drift",), ("adopt", "--dry-run")])
async def test_a_broker_without_the_stream_is_told_with_the_way_out(tmp_path, command_name):
    async with world(tmp_path, Options(kserve=False)) as there:
        assert there.broker is not None
        done = await command(there.environ, *command_name)
        assert f"NATS at {there.broker.url} has no stream ISVC_EVENTS: start the producer" in done.err
    assert ("give NATS_URL and SUBJECT_PREFIX as it has them" in done.err, "10059" in done.err) == (True, False)


async def test_an_api_server_that_does_not_answer_is_told_with_its_address(tmp_path):
    async with world(tmp_path, Options(broker=False, kserve=False)) as there:
        address, environ = there.cluster.url, there.environ
    done = await command(environ, "drift")
    assert (done.code, len(done.err.splitlines())) == (3, 1)
    assert f"reading the namespace kube-system at {address}: no answer" in done.err
