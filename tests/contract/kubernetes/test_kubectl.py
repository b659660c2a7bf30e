"""A real kubectl against the sandbox: what people type. The same lines work on a cluster."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.cluster import ClusterSandbox, Settings, serve
from tests.cluster.control_plane import assets_directory

pytestmark = pytest.mark.cluster

MANIFEST = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: scorer
  namespace: credit
  labels: {modelregistry.kubeflow.org/registered-model-id: "1"}
spec:
  predictor:
    sklearn: {storageUri: s3://models/scorer/v1}
"""


class Kubectl:
    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._program = assets_directory() / "kubectl"
        self._environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    async def __call__(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Run to the end; what it wrote."""
        process = await self.start(*arguments)
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
        assert (process.returncode != 0) == fails, output.decode()
        return output.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self._program, *arguments, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=self._environment
        )


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterSandbox]:
    async with serve(Settings(kserve=True, kserve_pace=0.05)) as cluster:
        yield cluster


@pytest.fixture
async def kubectl(cluster: ClusterSandbox, tmp_path: Path) -> Kubectl:
    kubectl = Kubectl(cluster.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path)
    assert "created" in await kubectl("create", "namespace", "credit")
    assert "created" in await kubectl("apply", "-f", "-", stdin=MANIFEST)
    return kubectl


async def _object(kubectl: Kubectl) -> dict:
    return json.loads(await kubectl("get", "isvc", "-n", "credit", "scorer", "-o", "json"))


async def test_apply_again_says_what_changed(kubectl: Kubectl):
    assert "configured" in await kubectl("apply", "-f", "-", stdin=MANIFEST.replace("/v1}", "/v2}"))
    assert (await _object(kubectl))["spec"]["predictor"]["model"]["storageUri"] == "s3://models/scorer/v2"


async def test_server_side_apply_works(kubectl: Kubectl):
    text = await kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST.replace("/v1}", "/v3}"))
    assert "serverside-applied" in text
    assert (await _object(kubectl))["spec"]["predictor"]["model"]["storageUri"] == "s3://models/scorer/v3"


async def test_wait_and_get_show_the_columns_of_kserve(kubectl: Kubectl):
    await kubectl("wait", "--for=condition=Ready", "isvc/scorer", "-n", "credit", "--timeout=20s")
    head, row = (await kubectl("get", "isvc", "-A")).splitlines()
    assert head.split()[:5] == ["NAMESPACE", "NAME", "URL", "READY", "PREV"]
    assert row.split()[:4] == ["credit", "scorer", "http://scorer-credit.example.com", "True"]


async def test_get_watch_prints_a_line_for_each_change(kubectl: Kubectl):
    process = await kubectl.start("get", "isvc", "-n", "credit", "-w", "--no-headers")
    assert process.stdout is not None
    lines = [await asyncio.wait_for(process.stdout.readline(), 20)]
    await kubectl("label", "isvc", "-n", "credit", "scorer", "a=b")
    lines.append(await asyncio.wait_for(process.stdout.readline(), 20))
    process.kill()
    await process.communicate()
    assert all(line.startswith(b"scorer ") for line in lines)


async def test_label_annotate_and_patch_change_the_object(kubectl: Kubectl):
    await kubectl("label", "isvc", "-n", "credit", "scorer", "team=blue")
    await kubectl("annotate", "isvc", "-n", "credit", "scorer", "example.com/note=hello")
    await kubectl("patch", "isvc", "-n", "credit", "scorer", "--type=merge", "-p", '{"metadata":{"labels":{"x":"1"}}}')
    patch = '[{"op":"add","path":"/metadata/labels/y","value":"2"}]'
    await kubectl("patch", "isvc", "-n", "credit", "scorer", "--type=json", "-p", patch)
    metadata = (await _object(kubectl))["metadata"]
    assert {"team": "blue", "x": "1", "y": "2"}.items() <= metadata["labels"].items()
    assert metadata["annotations"]["example.com/note"] == "hello"


async def test_describe_shows_status_and_events(kubectl: Kubectl, cluster: ClusterSandbox):
    uid = (await _object(kubectl))["metadata"]["uid"]
    involved = {"kind": "InferenceService", "namespace": "credit", "name": "scorer", "uid": uid}
    event = {"kind": "Event", "metadata": {"name": "e", "namespace": "credit"}, "involvedObject": involved}
    cluster.create(event | {"reason": "BadLabel", "message": "no such model", "type": "Warning"})
    text = await kubectl("describe", "isvc", "-n", "credit", "scorer")
    assert "Storage Uri:  s3://models/scorer/v1" in text
    assert "BadLabel" in text


async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl, cluster: ClusterSandbox):
    await kubectl("wait", "--for=condition=Ready", "isvc/scorer", "-n", "credit", "--timeout=20s")
    assert "deleted" in await kubectl("delete", "isvc", "-n", "credit", "scorer")
    assert cluster.get("InferenceService", "credit", "scorer") is None


async def test_deleting_a_namespace_takes_everything_in_it(kubectl: Kubectl, cluster: ClusterSandbox):
    await kubectl("delete", "namespace", "credit", "--timeout=20s")
    assert cluster.list("InferenceService") == []


async def test_built_in_kinds_are_applied_again_with_a_strategic_merge(kubectl: Kubectl):
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: registry, namespace: credit}\nspec: {ports: [%s]}\n"
    await kubectl("apply", "-f", "-", stdin=service % "{port: 8080, name: http}")
    await kubectl("apply", "-f", "-", stdin=service % "{port: 8081, name: http}")
    text = await kubectl("get", "svc", "-n", "credit", "registry", "-o", "jsonpath={.spec.ports}")
    assert json.loads(text) == [{"name": "http", "port": 8081}]


async def test_a_missing_object_is_named(kubectl: Kubectl):
    text = await kubectl("get", "isvc", "-n", "credit", "nothing", fails=True)
    assert 'inferenceservices.serving.kserve.io "nothing" not found' in text


async def test_a_configmap_is_created_from_literals(kubectl: Kubectl, cluster: ClusterSandbox):
    await kubectl("create", "configmap", "c", "-n", "credit", "--from-literal=a=1", "--from-literal=b=2")
    found = cluster.get("ConfigMap", "credit", "c")
    assert found is not None
    assert found["data"] == {"a": "1", "b": "2"}
