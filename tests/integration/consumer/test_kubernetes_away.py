"""An API server that accepts and never answers delays ids, and no records. Through the whole loop."""

import pytest
import pytest_asyncio

from consumer.worker import AT_HAND_MAX
from sandbox.faults import Fault
from tests.cluster.processes import Guard
from tests.e2e.pipeline import PREFIX, STANDARD, Pipeline, isvc
from tests.eventually import eventually
from tests.integration.consumer.defects import by_model, create, delete

pytestmark = pytest.mark.asyncio(loop_scope="module")

MORE_THAN_FIT = 2 * AT_HAND_MAX


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory):
    guard = Guard()
    directory = tmp_path_factory.mktemp("away") / "pipeline"
    async with Pipeline(directory, guard, environ={"REGISTRY_NAMESPACES": "kubeflow"}) as pipeline:
        yield pipeline
    guard.close()


@pytest_asyncio.fixture(loop_scope="module")
async def pipeline(world):
    yield world
    world.cluster.faults.clear()
    await eventually(lambda: lines(world, "back") == lines(world, "away"), "the API server is known to be back", 30.0)


def all_recorded(pipeline: Pipeline, uids: list[str]) -> bool:
    return {f"kserve:{uid}/1" for uid in uids} <= {record["externalId"] for record in pipeline.records()}


def lines(pipeline: Pipeline, state: str) -> int:
    """Return how many lines of the consumer's log say that the API server is away, or back."""
    return sum(each["message"].startswith(f"the Kubernetes API is {state}") for each in pipeline.consumer.entries())


@pytest.mark.parametrize(("namespace", "ending"), [("hung", "hang"), ("down", "outage")])
async def test_records_are_written_while_ids_cannot_be_and_ids_soon_after_the_return(pipeline, namespace, ending):
    opened, closed = lines(pipeline, "away"), lines(pipeline, "back")
    struck = pipeline.cluster.faults.injected[ending]
    pipeline.cluster.faults.set(Fault(method="PATCH", path=".*/inferenceservices/.*", **{ending: True}))
    names = [f"{namespace}/iris-{number}" for number in range(MORE_THAN_FIT)]
    uids = [create(pipeline, name) for name in names]
    await eventually(lambda: all_recorded(pipeline, uids), "those that wait for an id are recorded")
    await eventually(lambda: lines(pipeline, "away") > opened, "the API server is known to be away")
    last = create(pipeline, f"{namespace}/last")
    await eventually(lambda: all_recorded(pipeline, [last]), "and so is a new one")
    assert pipeline.cluster.faults.injected[ending] - struck < AT_HAND_MAX, "most of them have not even asked"
    assert pipeline.id_label(f"{namespace}/last") is None
    pipeline.cluster.faults.clear()
    await eventually(lambda: all(map(pipeline.id_label, [*names, f"{namespace}/last"])), "the ids are written", 30.0)
    assert (lines(pipeline, "away"), lines(pipeline, "back")) == (opened + 1, closed + 1)
    assert not await pipeline.dead_letters()


async def test_registries_are_found_while_the_list_of_services_hangs(pipeline):
    """One object asks for a Service that nobody knows, so that the list is read anew; the others go on."""
    before = create(pipeline, "services/before")
    await eventually(lambda: all_recorded(pipeline, [before]), "the list was read once")
    hung = pipeline.cluster.faults.injected["hang"]
    pipeline.cluster.faults.set(Fault(path=".*/services", hang=True))
    lost = isvc("services/lost", model="1", annotations=STANDARD)
    lost["metadata"]["labels"] |= {PREFIX + "name": "nowhere"}
    pipeline.cluster.create(lost)
    await eventually(lambda: pipeline.cluster.faults.injected["hang"] > hung, "the list hangs")
    uids = [create(pipeline, f"services/iris-{number}") for number in range(12)]
    await eventually(
        lambda: all_recorded(pipeline, uids), "they are recorded", 20.0
    )  # one each 5 s, when each waits for a list of its own


FORBIDDEN = '{"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "cannot patch", "code": 403}'
REFUSAL = {"error_status": 403, "error_body": FORBIDDEN, "error_headers": {"Content-Type": "application/json"}}


@pytest.mark.parametrize(
    ("namespace", "ending", "how"),
    [("forbidden", "error", {"error_rate": 1.0, **REFUSAL}), ("mute", "hang", {"hang": True})],
)
async def test_records_follow_the_model_label_while_ids_cannot_be_written(pipeline, namespace, ending, how):
    struck = pipeline.cluster.faults.injected[ending]
    pipeline.cluster.faults.set(Fault(method="PATCH", path=".*/inferenceservices/.*", **how))
    changed, bare, gone = (f"{namespace}/{name}" for name in ("changed", "bare", "gone"))
    uids = [create(pipeline, name) for name in (changed, bare, gone)]
    await eventually(lambda: all_recorded(pipeline, uids), "they are recorded")
    await eventually(lambda: pipeline.cluster.faults.injected[ending] > struck, "an id cannot be written")
    pipeline.set_labels(changed, registered_model_id="2")
    for name in (bare, gone):
        pipeline.set_labels(name, registered_model_id=None)
    delete(pipeline, gone)
    wanted = [{"1": "UNDEPLOYED", "2": "DEPLOYED"}, {"1": "UNDEPLOYED"}, {"1": "UNDEPLOYED"}]
    await eventually(
        lambda: [by_model(pipeline, uid) for uid in uids] == wanted, "only the present model is deployed", 30.0
    )
    pipeline.cluster.faults.clear()
    await eventually(lambda: pipeline.id_label(changed), "the id is written after all", 30.0)
