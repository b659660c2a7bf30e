"""`isvc-sync adopt` as a process, against what a predecessor has left. Each test has a namespace of its own."""

import json
import re
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.faults import Fault
from sandbox.world import NAME
from tests.e2e.commands import Done, command, typed
from tests.e2e.pipeline import STANDARD, Pipeline, isvc
from tests.e2e.predecessor import KUBEFLOW, ODH, controller, orphan, records_in, turn_back
from tests.e2e.sweeps import deployed, looks
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

KSERVE = "inferenceservice.finalizers"
DEPLOYMENTS = "/apis/apps/v1/deployments"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(tmp_path_factory, guard):
    async with Pipeline(tmp_path_factory.mktemp("adopt"), guard) as running:
        yield running


async def adopt(pipeline: Pipeline, namespace: str, *arguments: str, **environ: str) -> Done:
    return await command(pipeline, "adopt", "-n", namespace, *arguments, **environ)


def states(pipeline: Pipeline, namespace: str) -> list[str]:
    return [each["desiredState"] for each in records_in(pipeline, namespace)]


def claimed(pipeline: Pipeline, namespace: str) -> list[bool]:
    records = records_in(pipeline, namespace)
    return [
        each.get("externalId", "").startswith("kserve:") and "isvc-sync" in each["customProperties"] for each in records
    ]


async def test_where_no_predecessor_was_there_is_nothing_to_adopt(pipeline):
    await deployed(pipeline, 1, "nothing")
    done = await adopt(pipeline, "nothing", "--yes")
    assert (done.code, "nothing of a predecessor left" in done.out) == (0, True)


async def test_its_records_are_adopted_by_their_owners_and_keep_their_ids(pipeline):
    await deployed(pipeline, 3, "records")
    turn_back(pipeline, "records")
    before, patches = [each["id"] for each in records_in(pipeline, "records")], pipeline.patches()
    done = await adopt(pipeline, "records", "--yes")
    assert (done.code, claimed(pipeline, "records")) == (0, [True] * 3)
    assert ([each["id"] for each in records_in(pipeline, "records")], pipeline.patches()) == (before, patches)


async def test_a_dry_run_shows_what_would_be_done_and_does_nothing(pipeline):
    [name] = await deployed(pipeline, 1, "dry")
    turn_back(pipeline, "dry")
    asked = await looks(pipeline)
    done = await adopt(pipeline, "dry", "--dry-run")
    [row] = [line for line in done.out.splitlines() if name in line]
    assert (done.code, row.split()[2], "change the record: the record says otherwise in externalId" in row) == (
        1,
        "adopt",
        True,
    )
    assert (await looks(pipeline), claimed(pipeline, "dry")) == (asked, [False])


async def test_it_shows_the_plan_asks_and_is_told_no(pipeline):
    [name] = await deployed(pipeline, 1, "asked")
    turn_back(pipeline, "asked")
    done = await typed(pipeline, "n", "adopt", "-n", "asked")
    plan, question, _ = done.out.partition("Adopt 1 record? [y/N]:")
    assert (done.code, name in plan, bool(question), "nothing was done" in done.out) == (1, True, True, True)
    assert claimed(pipeline, "asked") == [False]
    refused = await adopt(pipeline, "asked")
    assert (refused.code, "add --yes" in refused.err) == (2, True)


async def test_orphans_are_shown_and_undeployed_only_when_asked_for(pipeline):
    await deployed(pipeline, 1, "orphans")
    orphan(pipeline, "orphans", "rose")
    orphan(pipeline, "orphans", "iris-000")
    shown = await adopt(pipeline, "orphans", "--yes")
    assert (shown.code, states(pipeline, "orphans")) == (1, ["DEPLOYED"] * 3)
    assert "another cluster's predecessor" in shown.out
    done = await adopt(pipeline, "orphans", "--undeploy-orphans", "--yes")
    assert (done.code, states(pipeline, "orphans")) == (0, ["DEPLOYED", "UNDEPLOYED", "UNDEPLOYED"])
    assert claimed(pipeline, "orphans") == [True] * 3


async def test_what_may_be_another_clusters_is_left_alone(pipeline):
    """One says that it is; one was made in an environment that is no namespace of this cluster."""
    await deployed(pipeline, 1, "others")
    stamp = json.loads(records_in(pipeline, "others")[0]["customProperties"]["isvc-sync"]["string_value"])
    other = {"metadataType": "MetadataStringValue", "string_value": json.dumps(stamp | {"clusterId": "c-9"})}
    orphan(pipeline, "others", "rose", customProperties={"isvc-sync": other})
    pipeline.registry.seed(serving_environments=[{"id": "9000", "name": "not-here"}])
    orphan(pipeline, "others", "iris", servingEnvironmentId="9000")
    done = await adopt(pipeline, "others", "--undeploy-orphans", "--yes")
    assert (done.code, "1 record in environments that are no namespace here" in done.out) == (0, True)
    assert (states(pipeline, "others"), states(pipeline, "not-here")) == (["DEPLOYED"] * 2, ["DEPLOYED"])


async def test_too_many_orphans_are_held_until_their_number_is_said(pipeline):
    await deployed(pipeline, 1, "many")
    for number in range(9):
        orphan(pipeline, "many", f"rose-{number}")
    held = await adopt(pipeline, "many", "--undeploy-orphans", "--yes")
    assert (held.code, states(pipeline, "many").count("DEPLOYED"), "--max-orphans 9" in held.out) == (1, 10, True)
    done = await adopt(pipeline, "many", "--undeploy-orphans", "--max-orphans", "9", "--yes")
    assert (done.code, states(pipeline, "many").count("DEPLOYED")) == (0, 1)


async def test_its_finalizers_are_taken_off_and_nobody_elses(pipeline):
    held = [KSERVE, KUBEFLOW, ODH]
    pipeline.cluster.create(isvc("held/iris", model="1", annotations=STANDARD, finalizers=held))
    pipeline.cluster.create(isvc("held/going", model="1", annotations=STANDARD, finalizers=[ODH]))
    await pipeline.settled()
    pipeline.cluster.delete("InferenceService", "held", "going")
    shown = await adopt(pipeline, "held", "--yes")
    assert (shown.code, pipeline.object("held/iris")["metadata"]["finalizers"]) == (1, held)
    done = await adopt(pipeline, "held", "--strip-finalizers", "--yes")
    assert (done.code, pipeline.object("held/iris")["metadata"]["finalizers"]) == (0, [KSERVE])
    assert pipeline.cluster.get("InferenceService", "held", "going") is None
    await eventually(lambda: sorted(states(pipeline, "held")) == ["DEPLOYED", "UNDEPLOYED"])


async def test_one_object_is_told_as_one(pipeline):
    pipeline.cluster.create(isvc("one/iris", model="1", annotations=STANDARD, finalizers=[ODH]))
    await pipeline.settled()
    done = await adopt(pipeline, "one", "--strip-finalizers", "--yes")
    assert (done.code, "stripping the finalizers of 1 object ..." in done.err) == (0, True)


async def test_while_its_deployment_runs_nothing_is_done(pipeline):
    await deployed(pipeline, 1, "running")
    turn_back(pipeline, "running")
    await controller(pipeline, "kubeflow", "controller-manager", INFERENCE_SERVICE_CONTROLLER="managed")
    try:
        done = await adopt(pipeline, "running", "--yes")
        shown = await adopt(pipeline, "running", "--dry-run")
        elsewhere = await adopt(pipeline, "running", "--dry-run", "--controller-namespace", "kserve")
    finally:
        pipeline.cluster.delete("Deployment", "kubeflow", "controller-manager")
    assert (done.code, claimed(pipeline, "running")) == (2, [False])
    assert "kubeflow/controller-manager" in done.err
    assert "kubectl -n kubeflow scale deployment controller-manager --replicas=0" in done.err
    assert (shown.code, "RUNNING: kubeflow/controller-manager" in shown.out) == (1, True)
    assert "RUNNING" not in elsewhere.out


async def test_where_deployments_may_not_be_listed_a_person_must_say_that_it_is_stopped(pipeline):
    await deployed(pipeline, 1, "unknown")
    turn_back(pipeline, "unknown")
    message = 'deployments.apps is forbidden: User "jo" cannot list resource "deployments" in API group "apps"'
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "code": 403, "message": message})
    answer = {"error_rate": 1.0, "error_status": 403, "error_headers": {"Content-Type": "application/json"}}
    pipeline.cluster.faults.set(Fault(path=DEPLOYMENTS, error_body=body, **answer))
    try:
        refused = await adopt(pipeline, "unknown", "--yes")
        done = await adopt(pipeline, "unknown", "--yes", "--controller-stopped")
    finally:
        pipeline.cluster.faults.clear()
    assert (refused.code, "no right to list deployments" in refused.err) == (2, True)
    assert "--controller-stopped" in refused.err
    assert (done.code, claimed(pipeline, "unknown")) == (0, [True])


@pytest.mark.parametrize("option", ["--namespace", "--controller-namespace"])
async def test_a_namespace_that_does_not_exist_is_no_place_where_all_is_done(pipeline, option):
    done = await command(pipeline, "adopt", "--dry-run", option, "tpyo")
    assert (done.code, done.out, "there is no namespace 'tpyo'" in done.err) == (2, "", True)


async def test_programs_get_each_finding(pipeline):
    await deployed(pipeline, 1, "programs")
    turn_back(pipeline, "programs")
    number = orphan(pipeline, "programs", "rose")
    done = await adopt(pipeline, "programs", "--dry-run", "-o", "json")
    found = json.loads(done.out)
    assert [(each["name"], each["fate"]) for each in found["findings"]] == [("iris-000", "adopt"), ("rose", "orphan")]
    assert (found["findings"][1]["record"], found["findings"][1]["registry"]) == (number, pipeline.registry.url)
    assert (found["controllers"], found["controllersUnchecked"]) == ([], None)


async def test_a_registry_that_cannot_be_read_is_exit_code_3_and_nothing_is_said_of_what_it_holds(pipeline):
    pipeline.registry.switch(database="stopped")
    try:
        done = await adopt(pipeline, "default", "--dry-run")
    finally:
        pipeline.registry.switch(database="well")
    assert (done.code, "Not read: " in done.out) == (3, True)
    assert "0 records in 0 registries" in done.out
    assert ("nothing could be compared" in done.out, "predecessor left" in done.out) == (True, False)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (None, "no answer (All connection attempts failed)"),
        (Fault(path="/api/.*", error_rate=1.0, error_status=401, error_body="who are you"), "401"),
        (Fault(path="/api/.*", hang=True), "no answer within 5.0 s"),
    ],
    ids=["refused", "401", "hangs"],
)
async def test_why_a_registry_is_unread_is_told_and_not_that_nothing_is_sent_to_it_since(pipeline, fault, why):
    environ = {"REGISTRY_URL": "http://127.0.0.1:1"} if fault is None else {}
    pipeline.registry.faults.set(*([fault] if fault else []))
    try:
        done = await adopt(pipeline, "default", "--dry-run", **environ)
    finally:
        pipeline.registry.faults.clear()
    [said] = [line for line in done.out.splitlines() if line.startswith("Not read: ")]
    assert (done.code, why in said, "is away" in said) == (3, True, False)


async def test_records_that_call_this_cluster_otherwise_are_told(pipeline):
    await deployed(pipeline, 1, "named")
    done = await adopt(pipeline, "named", "--dry-run", CLUSTER_NAME="typo")
    assert f"records of this cluster's id say '{NAME}', CLUSTER_NAME is 'typo'." in done.out
    assert "CLUSTER_NAME" not in (await adopt(pipeline, "named", "--dry-run")).out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dry-run", "--yes"], "give --dry-run or --yes, not both."),
        (["--max-orphans", "3"], "--max-orphans says nothing without --undeploy-orphans."),
    ],
)
async def test_options_that_contradict_are_one_sentence(pipeline, arguments, sentence):
    done = await adopt(pipeline, "nothing", *arguments)
    assert (done.code, done.out, done.err) == (2, "", f"isvc-sync adopt: {sentence}\n")


async def test_the_commands_of_the_page_do_what_it_says(pipeline):
    """In its order; with `--yes`, as nobody can be asked here, and in a namespace of this test."""
    page = (Path(__file__).parents[2] / "docs" / "adoption.md").read_text()
    shown = [line.strip() for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    commands = [line.split()[1:] for line in shown if line.startswith("isvc-sync adopt")]
    [name] = await deployed(pipeline, 1, "page")
    turn_back(pipeline, "page")
    orphan(pipeline, "page", "rose")
    pipeline.patch(name, {"metadata": {"finalizers": [KUBEFLOW]}})
    given = [[*words, "-n", "page", *([] if "--dry-run" in words else ["--yes"])] for words in commands]
    codes = [(await command(pipeline, *words)).code for words in given]
    assert codes == [1, 1, 1, 0]
    assert (states(pipeline, "page"), claimed(pipeline, "page")) == (["DEPLOYED", "UNDEPLOYED"], [True, True])
