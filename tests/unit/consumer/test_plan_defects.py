"""The thirty defects of earlier controllers, D01 to D30, where the decision is made: in `plan`, or another pure part.

docs/reconcile.md says in a line what each one was; the same through the whole loop: tests/integration/consumer.
"""

import asyncio
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from consumer.act import Actor
from consumer.actions import CreateRecord, PatchObject, Reject, UpdateRecord
from consumer.discovery import Asked, DiscoverySettings, Located, Refused, Service, Unsettled, resolve
from consumer.environments import Environments, Place
from consumer.lookup import Lookup
from consumer.plan import Questions, plan
from consumer.reconcile import How, Reconciler
from consumer.records import PROPERTY, Record, Stamp, string_property
from consumer.requests.circuit import FAILURES_MAX, Bearing, Closed, Open, admit, settle
from consumer.requests.registry_errors import Answer, Request, RequestKind, classify
from consumer.verdict import DELAY_S_MAX, Bury, Retry, verdict
from consumer.writeback import patch_operations
from shared.errors import ConflictError, NotFoundError, NotSentError, PermanentError, TransientError, UnauthorizedError
from shared.objects import Address, Component, Kind, Model, ModelStatus, ObjectKey, Spec, Status
from shared.tokens import TokenFile
from tests.unit.consumer.deliveries import event_work
from tests.unit.consumer.fakes import FakeKubernetes, FakeRegistries, FakeRegistry
from tests.unit.consumer.situations import SECTIONS
from tests.unit.consumer.worlds import (
    FACTS,
    ID,
    MODEL,
    PREFIX,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)

ROOT = Path(__file__).parents[3]
LINKED = carrying(an_object(), "7")
RECORD = record_of(seen(LINKED))
PREDECESSORS = Record("7", f"iris/{UID}", "", "3", "1", "11", "sk", deployed=True)
STOP = {"serving.kserve.io/stop": "true"}

TOKEN_SERVER = Service("kubeflow", "mr", {"component": "model-registry"}, {}, {"https-api": 8443})
DISCOVERY = DiscoverySettings(prefix=PREFIX, namespaces=("kubeflow",))


def decided(observation, *records, settings=SETTINGS):
    return plan(observation, {record.model_id: record for record in records}, FACTS, settings)


def only(kind, actions):
    """Return the one action of that kind."""
    (action,) = [action for action in actions if isinstance(action, kind)]
    return action


def stamp_in(action) -> Stamp:
    return msgspec.json.decode(action.properties[PROPERTY]["string_value"], type=Stamp)


def later(labels=None, **changes):
    """Return a later state of the linked object."""
    return seen(carrying(an_object(labels, version="20", **changes), "7"))


# --- labels -----------------------------------------------------------------------------------------------------------


def test_D01_an_object_whose_labels_are_gone_is_undeployed_when_it_goes():
    update = only(UpdateRecord, decided(seen(an_object({}), gone=True), RECORD))
    assert (update.id, update.deployed, stamp_in(update).deleted) == ("7", False, True)


def test_D03_a_delete_needs_no_id_label():
    update = only(UpdateRecord, decided(seen(an_object(), gone=True), RECORD))
    assert (update.id, update.deployed) == ("7", False)


def test_D03_an_earlier_controllers_record_found_by_its_name_is_undeployed_too():
    update = only(UpdateRecord, decided(seen(an_object(), gone=True), PREDECESSORS))
    assert (update.deployed, update.external_id) == (False, f"kserve:{UID}/1")


def test_D05_a_changed_version_label_is_written():
    update = only(UpdateRecord, decided(later({MODEL: "1", VERSION: "12"}), RECORD))
    assert update.version_id == "12"


def test_D06_a_changed_model_label_closes_the_old_record_and_makes_a_new_one():
    obj = carrying(an_object({MODEL: "2", VERSION: "21"}, version="20"), "7")
    close, create, patch = decided(seen(obj, models=("1", "2")), RECORD)
    assert (close.id, close.deployed) == ("7", False)
    assert (create.model_id, create.version_id, create.deployed) == ("2", "21", True)
    assert patch.record_id is None, "the id of the record that is made now"


@pytest.mark.parametrize("records", [(), (RECORD,)], ids=["without a record", "with its own"])
def test_D07_the_record_that_a_strange_id_names_is_never_touched(records):
    actions = decided(seen(carrying(an_object(version="20"), "99")), *records)
    assert not [action for action in actions if isinstance(action, UpdateRecord)]
    assert only(PatchObject, actions).record_id == (records[0].id if records else None)


def test_D08_a_record_that_is_missing_is_made_again_and_its_id_rewritten():
    create, patch = decided(seen(LINKED))
    assert (create.external_id, create.deployed, patch.record_id) == (f"kserve:{UID}/1", True, None)


@pytest.mark.parametrize("label", ["abc", "", "0", "01", "+1", "-1", "1 ", "99999999999", "\uff11"])
def test_D22_a_label_that_is_no_id_is_rejected_and_a_rejection_is_buried(label):
    (rejection,) = decided(seen(an_object({MODEL: label}), models=()))
    assert isinstance(rejection, Reject)
    assert verdict(PermanentError(rejection.reason), 1, 0.5) == Bury(rejection.reason)


# --- what the record says ---------------------------------------------------------------------------------------------


def test_D04_a_changed_url_deploys_nothing_that_is_stopped():
    stopped = later(annotations=STOP)
    update = only(UpdateRecord, decided(later(annotations=STOP, status=READY), record_of(stopped)))
    assert ("url" in update.properties, update.deployed) == (True, False)


def test_D04_a_changed_url_says_deployed_of_what_lives():
    update = only(UpdateRecord, decided(later(status=READY), replace(RECORD, deployed=False)))
    assert ("url" in update.properties, update.deployed) == (True, True)


def test_D11_a_custom_predictor_is_recorded_without_a_runtime():
    create = only(CreateRecord, decided(seen(an_object(spec=Spec(predictor=Component())))))
    assert (create.runtime, create.deployed) == ("", True)


@pytest.mark.parametrize(
    ("obj", "runtime"),
    [
        pytest.param({"spec": Spec(predictor=Component(model=Model(runtime="triton")))}, "triton", id="spec"),
        pytest.param(
            {"spec": Spec(predictor=Component()), "status": Status(cluster_serving_runtime_name="auto")},
            "auto",
            id="ClusterServingRuntime that KServe chose",
        ),
        pytest.param(
            {"spec": Spec(predictor=Component()), "status": Status(serving_runtime_name="near")},
            "near",
            id="ServingRuntime that KServe chose",
        ),
    ],
)
def test_D12_the_runtime_follows(obj, runtime):
    assert only(UpdateRecord, decided(later(**obj), RECORD)).runtime == runtime


def test_D13_without_a_url_the_address_is_used():
    status = Status(deployment_mode="Standard", address=Address("http://iris.team-a.svc"))
    assert only(UpdateRecord, decided(later(status=status), RECORD)).properties["url"] == string_property(
        "http://iris.team-a.svc"
    )


def test_D13_a_url_that_is_gone_is_removed_and_not_emptied():
    with_url = record_of(seen(carrying(an_object(status=READY), "7")))
    update = only(UpdateRecord, decided(later(), with_url))
    assert "url" in with_url.properties
    assert "url" not in update.properties


def test_D14_readiness_and_a_failed_load_are_in_the_property():
    ready = only(UpdateRecord, decided(later(status=READY), RECORD))
    failed = replace(READY, model_status=ModelStatus("BlockedByFailedLoad"))
    blocked = only(UpdateRecord, decided(later(status=failed), RECORD))
    assert (RECORD.stamp.ready, stamp_in(ready).ready) == (False, True)
    assert (stamp_in(blocked).ready, stamp_in(blocked).load_failure) == (True, "BlockedByFailedLoad")


@pytest.mark.parametrize("value", ["true", "True"])
def test_D15_a_stopped_object_is_undeployed_and_deployed_again_when_it_starts(value):
    stopped = later(annotations={"serving.kserve.io/stop": value})
    assert not only(UpdateRecord, decided(stopped, RECORD)).deployed
    assert only(UpdateRecord, decided(seen(carrying(an_object(version="30"), "7")), record_of(stopped))).deployed


def test_D27_nothing_that_happens_to_an_object_that_goes_deploys_it_again():
    going = an_object(going=True, version="20")
    assert not event_work(going).seen.lives, "from the timestamp on, though it is still there"
    closed = record_of(seen(going))
    newer = replace(going, metadata=replace(going.metadata, resource_version="30"), status=READY)
    update = only(UpdateRecord, decided(seen(newer), closed))
    assert ("url" in update.properties, update.deployed) == (True, False)
    assert decided(seen(an_object(version="40", status=READY)), closed) == (), "nor does an event without the timestamp"


@pytest.mark.parametrize("edited", [False, None])
def test_D28_a_state_edited_by_hand_is_set_right(edited):
    assert only(UpdateRecord, decided(seen(LINKED), replace(RECORD, deployed=edited))).deployed


def test_D29_users_properties_are_in_every_write():
    theirs = {"owner": string_property("anna"), "n": {"metadataType": "MetadataIntValue", "int_value": "3"}}
    record = replace(RECORD, properties=RECORD.properties | theirs)
    for observation in (later(status=READY), later({}), later(annotations=STOP), seen(LINKED, gone=True)):
        assert only(UpdateRecord, decided(observation, record)).properties.items() >= theirs.items()


def test_D30_an_llminferenceservice_is_recorded_and_linked():
    obj = an_object({MODEL: "1"}, spec=Spec(model=Model(uri="hf://org/chat")), status=Status(addresses=(Address("u"),)))
    observation = replace(seen(replace(obj, kind="LLMInferenceService")), key=ObjectKey(Kind.LLMISVC, "team-a", "iris"))
    create, patch = decided(observation)
    assert (stamp_in(create).kind, stamp_in(create).storage_uri) == ("llmisvc", "hf://org/chat")
    assert create.properties["url"] == string_property("u")
    assert isinstance(patch, PatchObject)


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_D23_the_environment_may_name_the_cluster_and_the_record_always_does():
    create = only(CreateRecord, decided(seen(), settings=replace(SETTINGS, environment="{cluster}-{namespace}")))
    assert create.environment == "prod-a-team-a"
    assert (stamp_in(create).cluster, stamp_in(create).cluster_id) == ("prod-a", "c-1")


@pytest.mark.parametrize(
    "observation",
    [seen(LINKED), later({}), later({MODEL: "2"}), seen(LINKED, gone=True), seen(an_object({}), gone=True)],
    ids=["lives", "label gone", "label changed", "deleted", "label gone, deleted"],
)
def test_D23_another_clusters_record_is_not_touched(observation):
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    assert not [action for action in decided(observation, RECORD, settings=foreign) if isinstance(action, UpdateRecord)]


# --- what failures mean -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [TransientError("503"), UnauthorizedError("401"), NotFoundError("404")])
def test_D02_an_outage_is_waited_for_without_limit(failure):
    for attempt in (1, 100, 1_000_000):
        decision = verdict(failure, attempt, 0.99)
        assert isinstance(decision, Retry)
        assert decision.delay_s <= DELAY_S_MAX


@pytest.mark.parametrize(
    "answer",
    [
        Answer(401, "text/plain", b"Unauthorized"),
        Answer(403, "text/plain", b"Forbidden"),
        Answer(404, "text/plain", b"404 page not found"),
        Answer(404, "application/json", b'{"code": "404", "message": "multiple inference services found"}'),
        Answer(400, "application/json", b'{"code": "400", "message": "invalid filter query"}'),
        Answer(500, "application/json", b'{"code": "500", "message": "connection refused"}'),
        Answer(503),
    ],
    ids=lambda answer: f"{answer.status} {answer.content_type}",
)
def test_D09_a_failed_find_is_never_an_answer(answer):
    """Only "no ..." of the registry itself is: everything else raises, so that no plan is made and nothing created."""
    asked = Request(RequestKind.FIND, "GET", "/inference_service", {"externalId": "kserve:u/1"})
    error = classify(asked, answer)
    assert isinstance(error, TransientError)
    assert not isinstance(error, NotFoundError)


class OvertakenRegistry(FakeRegistry):
    """Somebody else makes each environment between our find and our create."""

    async def create_environment(self, name: str) -> str:
        self.environments.setdefault(name, "77")
        return await super().create_environment(name)


async def test_D10_an_environment_that_another_consumer_made_first_is_taken():
    registry = OvertakenRegistry()
    with pytest.raises(ConflictError):
        await OvertakenRegistry().create_environment("team-a")
    assert await Environments(registry).get_or_create("team-a") == "77"


async def test_D17_a_token_is_read_again_when_its_file_changes(tmp_path):
    file = tmp_path / "token"
    file.write_text("first")
    source = TokenFile(file)
    assert await source.current() == "Bearer first"
    (tmp_path / "next").write_text("other")
    (tmp_path / "next").replace(file)  # as the kubelet does
    assert await source.current() == "Bearer other"


def test_D18_a_registry_that_never_answers_is_left_alone():
    circuit = Closed()
    for _ in range(FAILURES_MAX):
        assert admit(circuit, 0.0).wait_s == 0.0
        circuit = settle(circuit, Bearing.ILL, 0.0, is_probe=False)
    assert isinstance(circuit, Open)
    assert admit(circuit, 0.5).wait_s > 0.0


class SilentRegistry(FakeRegistry):
    """Accepts every question and never answers."""

    async def find_environment(self, _name: str) -> str | None:
        return await asyncio.get_running_loop().create_future()

    async def model_exists(self, _model_id: str) -> bool:
        return await asyncio.get_running_loop().create_future()


@pytest.mark.looptime
@pytest.mark.parametrize("question", ["environment", "model"])
async def test_D18_who_wants_to_know_the_same_is_sent_away_soon_where_no_answer_comes(question):
    """As many objects as the worker can hold may want to know it: they must not occupy it until the time-out."""
    registry = SilentRegistry()
    environments = Environments(registry)
    lookup = Lookup(Place("mr", registry, environments), SETTINGS, lambda: 0.0)

    async def ask() -> None:
        if question == "environment":
            await environments.get_or_create("team-a")
        else:
            await lookup.facts(Questions(models=frozenset({"1"})))

    first, *others = [asyncio.create_task(ask()) for _ in range(64)]
    done, _ = await asyncio.wait(others, timeout=1.5)
    assert len(done) == len(others)
    assert {type(task.exception()) for task in done} == {NotSentError}
    assert not first.done(), "its own time-out is the request's"
    first.cancel()
    await asyncio.wait([first])


def test_D26_a_delete_whose_registry_is_gone_waits_for_it_and_holds_nothing():
    found = resolve("team-a", Asked(name="mr"), [], DISCOVERY)
    assert isinstance(found, Unsettled)
    assert isinstance(verdict(TransientError(found.reason), 1, 0.5), Retry)
    assert finalizers_written() == []


# --- where a registry is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "services"),
    [
        pytest.param(Asked(url="http://collector.example"), [TOKEN_SERVER], id="annotation"),
        pytest.param(Asked(url="http://mr.kubeflow.svc.cluster.local:9"), [TOKEN_SERVER], id="another port"),
        pytest.param(Asked(url="http://mr.kubeflow.svc.cluster.local:8443"), [TOKEN_SERVER], id="without TLS"),
        pytest.param(Asked(namespace="mallory"), [TOKEN_SERVER], id="a namespace of their own"),
        pytest.param(Asked(namespace="mallory", name="mr"), [TOKEN_SERVER], id="a Service of their own"),
    ],
)
def test_D16_an_object_cannot_send_our_token_elsewhere(asked, services):
    assert isinstance(resolve("team-a", asked, services, DISCOVERY), Refused)


def test_D20_a_service_with_nothing_but_https_api_is_used():
    found = resolve("team-a", Asked(), [TOKEN_SERVER], DISCOVERY)
    assert found == Located("kubeflow/mr", "https://mr.kubeflow.svc.cluster.local:8443")


def test_D21_the_clusters_domain_is_a_setting():
    found = resolve("team-a", Asked(), [TOKEN_SERVER], replace(DISCOVERY, cluster_domain="corp.internal"))
    assert found == Located("kubeflow/mr", "https://mr.kubeflow.svc.corp.internal:8443")


# --- what is written to objects, and what an event costs --------------------------------------------------------------


def test_D19_the_patch_touches_one_label_of_exactly_this_object():
    test, write = patch_operations(LINKED, SETTINGS.target, "8", test_resource_version=None)
    assert test == {"op": "test", "path": "/metadata/uid", "value": UID}
    assert (write["path"], write["value"]) == ("/metadata/labels/" + ID.replace("/", "~1"), "8")


def finalizers_written() -> list[str]:
    """Return what the patches of all situations say of finalizers."""
    objects = [situation.seen.obj for situations in SECTIONS.values() for situation in situations]
    operations = [
        each for obj in objects for each in patch_operations(obj, SETTINGS.target, "8", test_resource_version=None)
    ]
    assert len(operations) >= 2 * len(objects)
    return [each["path"] for each in operations if "finalizers" in each["path"] or each["path"] == "/metadata"]


def test_D24_no_object_ever_waits_for_us():
    """Neither do we write a finalizer, nor may we: a consumer that is switched off or uninstalled holds nothing."""
    assert finalizers_written() == []
    documents = yaml.safe_load_all((ROOT / "k8s/base/app/consumer-rights.yaml").read_text())
    rules = [rule for document in documents for rule in document.get("rules", [])]
    (ours,) = [rule for rule in rules if rule["apiGroups"] == ["serving.kserve.io"]]
    assert set(ours["verbs"]) == {"get", "patch"}
    assert set(ours["resources"]) == {"inferenceservices", "llminferenceservices"}, "not their finalizers"


async def test_D25_events_that_change_nothing_cost_no_call():
    registry, kubernetes = FakeRegistry(), FakeKubernetes()
    registry.environments["team-a"] = "3"
    actor = Actor(kubernetes, SETTINGS, lambda _: None, lambda _: None)
    reconciler = Reconciler(actor, FakeRegistries(SETTINGS, only=registry), SETTINGS, lambda *_: None)
    kubernetes.put(an_object())
    await reconciler.reconcile(seen(), How(creates_first=True))
    assert registry.writes == 1
    registry.calls.clear()
    kubernetes.calls.clear()
    for version in range(20, 120):
        linked = carrying(an_object(version=str(version)), "100")
        assert (await reconciler.reconcile(seen(linked), How())).word == "noop"
    assert (registry.calls.total(), kubernetes.calls.total()) == (0, 0)
