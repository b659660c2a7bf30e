"""The adapter against the sandbox's Kubernetes API, through the client that a pod would use."""

import msgspec
import pytest
from opentelemetry.trace import NoOpTracer

import sandbox.cluster
from consumer.kube import KubernetesApi
from consumer.requests.exchange import Exchanger, Instruments
from consumer.writeback import KServeLists, Target, WriteBackForm, patch_operations
from sandbox.cluster import admission
from sandbox.cluster.auth import ADMIN, Rule, User
from sandbox.cluster.resources import ISVC
from sandbox.faults import Fault
from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import ConflictError, PermanentError, TransientError, UnauthorizedError, UnreachableError
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey, ReducedObject
from shared.reduce import reduce_object

KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
ID_KEY = "modelregistry.kubeflow.org/inference-service-id"
LABEL = Target(ID_KEY, WriteBackForm.LABEL)
ANNOTATION = Target(ID_KEY, WriteBackForm.ANNOTATION)
READER = User("reader", (Rule(("get",), ("*",)),))


@pytest.fixture
async def cluster():
    settings = sandbox.cluster.Settings(tokens={"admin": ADMIN, "reader": READER})
    async with sandbox.cluster.serve(settings) as served:
        served.create(isvc())
        yield served


@pytest.fixture
async def connect(cluster, tmp_path):
    opened = []

    def connected(token: str = "admin", budget=lambda: 60.0, **naming: str) -> KubernetesApi:
        path = cluster.write_kubeconfig(tmp_path / f"{token}.yaml", token)
        http = client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="consumer")
        opened.append(http)
        versions = NamingSettings(cluster_name="c", **naming).api_version
        return KubernetesApi(Exchanger(http, Instruments(NoOpTracer(), lambda *_: None)), budget, versions)

    yield connected
    for http in opened:
        await http.aclose()


@pytest.fixture
def api(connect):
    return connect()


def isvc(**metadata):
    labels = {"modelregistry.kubeflow.org/registered-model-id": "1", "team": "blue"}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"namespace": "team-a", "name": "iris", "labels": labels} | metadata,
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://b/iris"}}},
    }


def reduced(raw) -> ReducedObject:
    return msgspec.convert(reduce_object(raw), ReducedObject)


async def test_label_is_written_beside_the_others(api, cluster):
    obj = reduced(await api.get(KEY))
    await api.patch(KEY, patch_operations(obj, LABEL, "17", test_resource_version=obj.metadata.resource_version))
    labels = cluster.get("InferenceService", "team-a", "iris")["metadata"]["labels"]
    assert labels[ID_KEY] == "17"
    assert labels["team"] == "blue"


async def test_repeated_write_changes_nothing(api, cluster):
    obj = reduced(await api.get(KEY))
    operations = patch_operations(obj, LABEL, "17", test_resource_version=None)
    await api.patch(KEY, operations)
    before = cluster.get("InferenceService", "team-a", "iris")["metadata"]["resourceVersion"]
    await api.patch(KEY, operations)
    assert cluster.get("InferenceService", "team-a", "iris")["metadata"]["resourceVersion"] == before


async def test_write_of_an_object_that_moved_on_is_a_conflict(api, cluster):
    obj = reduced(await api.get(KEY))
    cluster.patch("InferenceService", ("team-a", "iris"), {"metadata": {"labels": {"x": "y"}}})
    with pytest.raises(ConflictError):
        await api.patch(KEY, patch_operations(obj, LABEL, "17", test_resource_version=obj.metadata.resource_version))
    await api.patch(KEY, patch_operations(obj, LABEL, "17", test_resource_version=None))


async def test_namesake_of_another_uid_is_not_touched(api, cluster):
    obj = reduced(await api.get(KEY))
    cluster.delete("InferenceService", "team-a", "iris")
    cluster.create(isvc())
    with pytest.raises(ConflictError):
        await api.patch(KEY, patch_operations(obj, LABEL, "17", test_resource_version=None))
    assert ID_KEY not in cluster.get("InferenceService", "team-a", "iris")["metadata"]["labels"]


async def test_object_that_is_gone_is_none_and_its_patch_a_conflict(api, cluster):
    obj = reduced(await api.get(KEY))
    cluster.delete("InferenceService", "team-a", "iris")
    assert await api.get(KEY) is None
    with pytest.raises(ConflictError):
        await api.patch(KEY, patch_operations(obj, LABEL, "17", test_resource_version=None))


async def test_first_annotation_of_an_object_needs_a_whole_map(api, cluster):
    obj = reduced(await api.get(KEY))
    await api.patch(KEY, patch_operations(obj, ANNOTATION, "17", test_resource_version=None))
    assert cluster.get("InferenceService", "team-a", "iris")["metadata"]["annotations"] == {ID_KEY: "17"}


async def test_whole_map_never_replaces_annotations_that_appeared(api, cluster):
    obj = reduced(await api.get(KEY))
    cluster.patch("InferenceService", ("team-a", "iris"), {"metadata": {"annotations": {"mine": "1"}}})
    with pytest.raises(ConflictError):
        await api.patch(KEY, patch_operations(obj, ANNOTATION, "17", test_resource_version=None))
    assert cluster.get("InferenceService", "team-a", "iris")["metadata"]["annotations"] == {"mine": "1"}


async def test_foreign_annotations_survive_although_the_reduced_form_shows_none(api, cluster):
    cluster.patch("InferenceService", ("team-a", "iris"), {"metadata": {"annotations": {"mine": "1"}}})
    obj = reduced(await api.get(KEY))
    assert obj.metadata.annotations == {}
    await api.patch(KEY, patch_operations(obj, ANNOTATION, "17", test_resource_version=None))
    annotations = cluster.get("InferenceService", "team-a", "iris")["metadata"]["annotations"]
    assert annotations == {"mine": "1", ID_KEY: "17"}


async def test_missing_right_is_transient_and_named(connect):
    reader = connect("reader")
    obj = reduced(await reader.get(KEY))
    with pytest.raises(TransientError, match="patch inferenceservices"):
        await reader.patch(KEY, patch_operations(obj, LABEL, "17", test_resource_version=None))


async def test_unknown_token_is_unauthorized(connect):
    with pytest.raises(UnauthorizedError):
        await connect("stranger").get(KEY)


async def test_kind_that_is_not_served_is_no_absence(api, cluster):
    cluster.delete("InferenceService", "team-a", "iris")
    cluster.delete("CustomResourceDefinition", "", "inferenceservices.serving.kserve.io")
    with pytest.raises(TransientError, match="is KServe installed"):
        await api.get(KEY)


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
async def test_an_llm_object_is_read_and_patched_where_only_its_version_is_served(connect, cluster, version):
    cluster.create(isvc() | {"kind": "LLMInferenceService", "spec": {"model": {"uri": "hf://a/b"}}})
    cluster.serve_only("LLMInferenceService", version)
    api, key = connect(llmisvc_api_version=version), ObjectKey(Kind.LLMISVC, "team-a", "iris")
    raw = await api.get(key)
    assert raw["apiVersion"] == f"serving.kserve.io/{version}"
    await api.patch(key, patch_operations(reduced(raw), LABEL, "17", test_resource_version=None))
    assert cluster.get("LLMInferenceService", "team-a", "iris")["metadata"]["labels"][ID_KEY] == "17"
    assert ID_KEY not in cluster.get("InferenceService", "team-a", "iris")["metadata"]["labels"]


async def test_a_version_that_is_not_served_is_no_absence_and_the_setting_is_named(connect, cluster):
    cluster.create(isvc() | {"kind": "LLMInferenceService", "spec": {"model": {"uri": "hf://a/b"}}})
    cluster.serve_only("LLMInferenceService", "v1alpha1")
    with pytest.raises(TransientError, match=r"as serving\.kserve\.io/v1alpha2: .*LLMISVC_API_VERSION"):
        await connect(llmisvc_api_version="v1alpha2").get(ObjectKey(Kind.LLMISVC, "team-a", "iris"))


async def test_refusal_by_a_webhook_is_permanent(api, cluster):
    cluster.cluster.admission[ISVC] = admission.admit
    broken = [{"op": "add", "path": "/spec/predictor", "value": {"minReplicas": 3}}]
    with pytest.raises(PermanentError, match="admission webhook"):
        await api.patch(KEY, broken)


async def test_api_server_that_hangs_is_cut_off_and_the_next_call_works(connect, cluster):
    left_s = 60.0
    api = connect(budget=lambda: left_s)
    assert await api.get(KEY) is not None
    cluster.faults.set(Fault(hang=True))
    left_s = 1.0
    with pytest.raises(UnreachableError, match=r"1\.0 s"):
        await api.get(KEY)
    assert cluster.faults.injected["hang"] == 1
    cluster.faults.clear()
    left_s = 60.0
    assert await api.get(KEY) is not None


async def test_lists_of_kserve_are_read(api, cluster):
    assert await api.kserve_lists("kserve") == KServeLists()
    text = f'{{"serviceAnnotationDisallowedList": ["{ID_KEY}"]}}'
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": "kserve", "name": "inferenceservice-config"},
            "data": {"inferenceService": text},
        }
    )
    assert await api.kserve_lists("kserve") == KServeLists(annotations=frozenset({ID_KEY}))
