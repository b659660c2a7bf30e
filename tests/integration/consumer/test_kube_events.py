"""Events for owners on the sandbox's Kubernetes API, through the client that a pod would use."""

import asyncio

import pytest
from opentelemetry.trace import NoOpTracer

import sandbox.cluster
from consumer.kube_events import EventsApi, KubernetesEvents
from consumer.notices import About, Notice, Topic, registered
from consumer.requests.exchange import Exchanger, Instruments
from sandbox.cluster.auth import ADMIN, Rule, User
from sandbox.faults import Fault
from shared.cluster import ClusterSettings, client, load_cluster
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey
from tests.eventually import eventually

KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
IRIS = About(KEY, "5a1e", "10")
FAILED = Notice(Topic.SYNC_FAILED, "registered model 404 does not exist in the registry")
# What k8s/base grants, as far as Events go.
ACCOUNT = User("consumer", (Rule(("create", "patch"), ("events",)),))
READER = User("reader", (Rule(("get",), ("*",)),))


@pytest.fixture
async def cluster():
    settings = sandbox.cluster.Settings(tokens={"admin": ADMIN, "account": ACCOUNT, "reader": READER})
    async with sandbox.cluster.serve(settings) as served:
        for name in ("team-a", "team-b"):
            if served.get("Namespace", "", name) is None:
                served.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield served


class Owners:
    """Tells owners; `clock` is the time that it is told, `words` what came of each notice."""

    def __init__(self, http) -> None:
        self.clock = 1_796_000_000.0
        self.words = []
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        api = EventsApi(exchanger, NamingSettings(cluster_name="c").api_version)
        self.notices = KubernetesEvents(api, lambda: self.clock, self.words.append)

    async def told(self, about, notice, wanted) -> None:
        """Tell, and wait until so many notices have come to something."""
        self.notices.tell(about, notice)
        await eventually(lambda: len(self.words) >= wanted)


@pytest.fixture
async def owners(cluster, tmp_path):
    tasks, opened = [], []

    def connected(token: str = "account") -> Owners:
        path = cluster.write_kubeconfig(tmp_path / f"{token}.yaml", token)
        http = client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="consumer")
        opened.append(http)
        owners = Owners(http)
        tasks.append(asyncio.create_task(owners.notices.run()))
        return owners

    yield connected
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for http in opened:
        await http.aclose()


async def test_a_first_record_and_a_dead_letter_are_two_events_of_the_object(cluster, owners):
    one = owners()
    await one.told(IRIS, registered("7", "1", "http://registry.example"), 1)
    await one.told(IRIS, FAILED, 2)
    assert one.words == ["posted", "posted"]
    found = {event["reason"]: event for event in cluster.list("Event")}
    assert {reason: event["type"] for reason, event in found.items()} == {
        "Registered": "Normal",
        "RegistrySyncFailed": "Warning",
    }
    assert found["RegistrySyncFailed"]["message"] == FAILED.message
    assert {event["involvedObject"]["uid"] for event in found.values()} == {"5a1e"}


async def test_what_is_said_again_is_counted_with_the_right_to_create_and_patch_only(cluster, owners):
    one = owners()
    await one.told(IRIS, FAILED, 1)
    one.clock += 61
    await one.told(IRIS, FAILED, 2)
    (event,) = cluster.list("Event")
    assert (event["count"], one.words) == (2, ["posted", "counted"])
    assert event["firstTimestamp"] < event["lastTimestamp"]


async def test_an_expired_event_is_written_anew(cluster, owners):
    one = owners()
    await one.told(IRIS, FAILED, 1)
    (event,) = cluster.list("Event")
    cluster.delete("Event", "team-a", event["metadata"]["name"])
    one.clock += 61
    await one.told(IRIS, FAILED, 2)
    (event,) = cluster.list("Event")
    assert event["count"] == 2


async def test_an_event_whose_answer_was_lost_stays_one(cluster, owners):
    one = owners()
    cluster.faults.set(Fault(path=".*/events", lost_reply_rate=1.0, next_requests=1))
    await one.told(IRIS, FAILED, 1)
    assert (one.words, len(cluster.list("Event"))) == (["failed"], 1)
    assert cluster.faults.injected["lost_reply"] == 1
    one.clock += 61
    await one.told(IRIS, FAILED, 2)
    (event,) = cluster.list("Event")
    assert event["count"] == 2


async def test_each_object_has_its_events_in_its_own_namespace(cluster, owners):
    one = owners()
    await one.told(IRIS, FAILED, 1)
    await one.told(About(ObjectKey(Kind.LLMISVC, "team-b", "chat"), "c4a7"), FAILED, 2)
    where = {event["metadata"]["namespace"]: event["involvedObject"]["kind"] for event in cluster.list("Event")}
    assert where == {"team-a": "InferenceService", "team-b": "LLMInferenceService"}


async def test_without_the_right_nothing_is_written_and_one_line_says_what_to_grant(cluster, owners, caplog):
    one = owners("reader")
    for number in range(3):
        await one.told(About(KEY, f"uid-{number}"), FAILED, number + 1)
    assert (one.words, cluster.list("Event")) == (["failed"] * 3, [])
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "no right to create events" in record.error
