"""`isvc-sync replay --to kube:`: objects of its own in a cluster, and nothing done to anybody else's."""

import logging
import signal
import socket

import httpx
import msgspec
import pytest
import yaml

from cli.replaying.to import Options, run
from replay.target.cluster import MARK
from sandbox.cluster import serve
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from tests.eventually import eventually
from tests.integration.replay.commands import ended, replay, started
from tests.unit.replay.replayed import START, captured, isvc, ready, story, write

NAMESPACE = "isvc-replay-tuesday-team-a"
WATCH = f"/apis/serving.kserve.io/v1beta1/namespaces/{NAMESPACE}/inferenceservices"
MODEL_VERSION = "modelregistry.kubeflow.org/model-version-id"
START_S = 60.0  # of a process on a machine that has much to do


@pytest.fixture
async def cluster():
    async with serve() as running:
        yield running


@pytest.fixture
def environ(cluster, tmp_path):
    return {"KUBECONFIG": str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))}


@pytest.fixture
def capture(tmp_path):
    return write(tmp_path / "story.jsonl", [START, *story()])


@pytest.fixture
def logging_as_before():
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


async def watched(cluster, since: int):
    """Return what a watch shows of the replay's namespace after that resourceVersion."""
    asked = {"watch": "1", "resourceVersion": str(since), "timeoutSeconds": "1"}
    async with httpx.AsyncClient(base_url=cluster.url, trust_env=False, timeout=30) as http:
        text = (await http.get(WATCH, params=asked)).text
    events = [msgspec.json.decode(line) for line in text.splitlines()]
    return [(each["type"], each["object"]) for each in events if each["type"] != "BOOKMARK"]


def foreign(name: str):
    """Return an object that somebody else has put where the replay wants to."""
    obj = isvc(story()[0].event.key, "", 1)
    return obj | {"metadata": {"name": name, "namespace": NAMESPACE, "labels": {"who": "somebody"}}}


def namespaces(cluster) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.list("Namespace")}


async def test_who_watches_sees_the_objects_live_in_the_order_of_the_events(cluster, environ, capture):
    since = cluster.store.version
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", "--keep", environ=environ)
    assert done.code == 0, done.err
    assert [
        (what, obj["metadata"]["name"], obj["metadata"]["labels"].get(MODEL_VERSION), "status" in obj)
        for what, obj in await watched(cluster, since)
    ] == [
        ("ADDED", "iris", "2", False),
        ("MODIFIED", "iris", "2", True),
        ("MODIFIED", "iris", "3", True),
        ("ADDED", "other", None, False),
        ("DELETED", "iris", "3", True),
    ]
    assert "2 created, 2 changed, 1 deleted." in done.out


async def test_the_status_of_a_new_object_is_part_of_its_creation(cluster, environ, tmp_path):
    first = captured(11, ready(isvc(story()[0].event.key, "u-1", 50)), initial=True)
    capture = write(tmp_path / "ready.jsonl", [first])
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", "--keep", environ=environ)
    assert "1 created, 0 changed, 0 deleted." in done.out
    assert cluster.list("InferenceService")[0]["status"]["url"] == "http://iris.team-a.example.com"


async def test_objects_bear_the_mark_and_the_servers_uid(cluster, environ, capture):
    await replay(capture, "--to", "kube:", "--name", "tuesday", "--keep", environ=environ)
    (found,) = cluster.list("InferenceService")
    assert found["metadata"]["annotations"] == {MARK: "tuesday"}
    assert found["metadata"]["uid"] not in {"u-1", "u-2"}


async def test_at_the_end_objects_and_namespace_are_gone(cluster, environ, capture):
    before = namespaces(cluster)
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", environ=environ)
    assert done.code == 0, done.err
    assert (cluster.list("InferenceService"), namespaces(cluster)) == ([], before)


async def test_keep_leaves_them_and_says_where_they_are(cluster, environ, capture):
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", "--keep", environ=environ)
    assert [each["metadata"]["name"] for each in cluster.list("InferenceService")] == ["other"]
    assert f"Kept: what has the annotation {MARK}: tuesday, in {NAMESPACE}." in done.err


async def test_a_later_replay_of_that_name_goes_on_from_what_was_kept(cluster, environ, capture):
    await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", "--keep", environ=environ)
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", "-o", "json", environ=environ)
    assert done.code == 0, done.err
    tally = msgspec.json.decode(done.out)["cluster"]
    assert tally == {"created": 1, "changed": 2, "deleted": 1, "troubles": {}}
    assert cluster.list("InferenceService") == []


async def test_somebody_elses_object_of_that_name_is_not_touched(cluster, environ, capture):
    theirs = cluster.create(foreign("iris"))
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", environ=environ)
    assert cluster.list("InferenceService") == [theirs]
    assert done.code == 1
    assert f"isvc/{NAMESPACE}/iris: an object of that name is there, and was not made by this replay" in done.out


async def test_somebody_elses_namespace_stays(cluster, environ, capture):
    cluster.create_namespace(NAMESPACE)
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", environ=environ)
    assert done.code == 0, done.err
    assert NAMESPACE in namespaces(cluster)
    assert cluster.list("InferenceService") == []


async def test_a_namespace_into_which_somebody_has_put_an_object_stays_with_it(cluster, environ, capture):
    chosen = ("--to", "kube:sandbox", "--name", "tuesday")
    await replay(capture, *chosen, "--keep", environ=environ)
    cluster.create(foreign("theirs"))
    done = await replay(capture, *chosen, environ=environ)
    assert done.code == 0, done.err
    assert [each["metadata"]["name"] for each in cluster.list("InferenceService")] == ["theirs"]


async def test_one_that_took_the_place_of_ours_is_not_touched(cluster, environ, capture):
    chosen = ("--to", "kube:sandbox", "--name", "tuesday", "--speed", "0.5x", "--until", 12)
    async with started(capture, *chosen, environ=environ) as process:
        await eventually(lambda: cluster.list("InferenceService"), "the first object", START_S)
        cluster.delete("InferenceService", NAMESPACE, "iris")
        theirs = cluster.create(foreign("iris"))
        done = await ended(process)
    assert done.code == 1, done.err
    assert cluster.list("InferenceService") == [theirs]


async def test_an_object_that_the_server_refuses_is_told_and_the_others_go_on(cluster, environ, tmp_path):
    bad = isvc(ObjectKey(Kind.ISVC, "team-a", "BAD"), "u-9", 40)
    capture = write(tmp_path / "bad.jsonl", [captured(10, bad, EventType.CREATED), *story()])
    done = await replay(capture, "--to", "kube:sandbox", "--name", "tuesday", environ=environ)
    assert done.code == 1
    assert f"isvc/{NAMESPACE}/BAD: POST" in done.out
    assert "2 created, 2 changed, 1 deleted." in done.out


async def test_one_that_a_finalizer_holds_is_waited_for_before_it_is_created_anew(cluster, environ, tmp_path):
    first = isvc(story()[0].event.key, "u-1", 50)
    anew = isvc(story()[0].event.key, "u-2", 60)
    lines = [captured(11, first, EventType.CREATED), captured(12, anew, EventType.CREATED, at_s=2.0)]
    capture = write(tmp_path / "anew.jsonl", lines)
    where = ("InferenceService", NAMESPACE, "iris")
    chosen = ("--to", "kube:sandbox", "--name", "tuesday", "--speed", "1x", "--keep")
    async with started(capture, *chosen, environ=environ) as process:
        await eventually(lambda: cluster.get(*where), "the first object", START_S)
        old = cluster.patch(where[0], where[1:], {"metadata": {"finalizers": ["example.com/hold"]}})
        await eventually(lambda: "deletionTimestamp" in cluster.get(*where)["metadata"], "its deletion", START_S)
        cluster.patch(where[0], where[1:], {"metadata": {"finalizers": None}})
        done = await ended(process)
    assert done.code == 0, done.err
    assert cluster.get(*where)["metadata"]["uid"] != old["metadata"]["uid"]


async def test_ctrl_c_leaves_nothing_behind(cluster, environ, capture):
    before = namespaces(cluster)
    chosen = ("--to", "kube:sandbox", "--name", "tuesday", "--speed", "0.001x")
    async with started(capture, *chosen, environ=environ) as process:
        await eventually(lambda: cluster.list("InferenceService"), "the first object", START_S)
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert (done.code, cluster.list("InferenceService"), namespaces(cluster)) == (130, [], before)
    assert "Traceback" not in done.err


async def test_a_cluster_that_does_not_answer_exits_3(tmp_path, capture):
    environ = {"KUBECONFIG": kubeconfig(tmp_path, "http://127.0.0.1:9")}
    done = await replay(capture, "--to", "kube:prod", environ=environ)
    assert done.code == 3
    assert "no answer" in done.err


def kubeconfig(tmp_path, server: str, **more: str) -> str:
    """Write a kubeconfig whose user's credentials come from a plugin that would leave a trace."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(tmp_path / "ran")]}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "prod",
        "clusters": [{"name": "far", "cluster": {"server": server} | more}],
        "users": [{"name": "me", "user": {"exec": plugin} if "127.0.0.1:9" not in server else {}}],
        "contexts": [{"name": "prod", "context": {"cluster": "far", "user": "me"}}],
    }
    path = tmp_path / "far"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture
def no_sockets(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a socket was asked for")

    for name in ("socket", "socketpair", "create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.usefixtures("no_sockets", "logging_as_before")
@pytest.mark.parametrize(
    ("server", "more", "options", "sentence"),
    [
        ("https://api.prod:6443", {}, {"to": "kube:prod"}, "may leave this machine: add --yes-to kube:prod"),
        ("https://api.prod:6443", {}, {"to": "kube:"}, "may leave this machine: add --yes-to kube:prod"),
        ("https://api.prod:6443", {}, {"to": "kube:", "yes_to": "kube:"}, "names another one, kube:: add"),
        ("https://api.prod:6443", {}, {"to": "kube:prod", "yes_to": "kube:test"}, "names another one, kube:test"),
        ("https://10.0.0.7:6443", {}, {"to": "kube:prod"}, "may leave this machine"),
        ("https://127.0.0.1.example.com", {}, {"to": "kube:prod"}, "may leave this machine"),
        ("https://[", {}, {"to": "kube:prod"}, "may leave this machine"),
        ("https://127.0.0.1:6443", {"proxy-url": "http://10.0.0.7:3128"}, {"to": "kube:prod"}, "may leave this"),
        ("https://127.0.0.1:6443", {}, {"to": "kube:other"}, "cannot be used"),
        ("https://127.0.0.1:6443", {}, {"to": "kube:prod", "cluster_id": "x"}, "--cluster-id is of events"),
    ],
)
def test_what_is_refused_is_refused_before_any_socket_or_plugin(
    tmp_path, capture, capsys, server, more, options, sentence
):
    environ = {"KUBECONFIG": kubeconfig(tmp_path, server, **more)}
    assert run(Options(file=capture, **options), environ) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("no_sockets", "logging_as_before")
def test_no_kubeconfig_is_told(tmp_path, capture, capsys):
    assert run(Options(file=capture, to="kube:"), {"KUBECONFIG": str(tmp_path / "none")}) == 2
    assert "No cluster is configured" in capsys.readouterr().err
