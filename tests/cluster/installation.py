"""isvc-sync on a real API server as `k8s/base` installs it, except that no container runs: producer and consumer are
processes of this machine. They get the settings of their Deployment's ConfigMaps, less the addresses, and a bound token
of its ServiceAccount.

    async with Installation(control_plane, tmp_path, ("team-a",)) as world:
        await world.start("producer")
        await world.start("consumer")
        ...  # world.kubernetes, world.registry
"""

import asyncio
import itertools
import json
from collections.abc import Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx

from cli.demo import clients
from cli.demo.processes import Child, free_port
from sandbox import registry
from sandbox.broker import NatsServer
from shared.objects import Kind, ObjectKey
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import Guard
from tests.cluster.remote_kserve import API_VERSIONS, playing
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
NAMESPACE = "isvc-sync"
ROLES = ("producer", "consumer")
_READY_S = 30.0
_LOG_LINES = 30
_FREE_OF_FINALIZERS = {"metadata": {"finalizers": None}}


def administrator(plane: ControlPlane) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {plane.admin_token}"}
    return httpx.AsyncClient(
        base_url=plane.url, headers=headers, verify=plane.ssl_context(), timeout=10, trust_env=False
    )


def service_account(plane: ControlPlane, role: str) -> str:
    return str(_pod_spec(plane, role)["serviceAccountName"])


def environ(plane: ControlPlane, role: str) -> dict[str, str]:
    """The variables that the Deployment of a role gives to its container by ConfigMaps."""
    found: dict[str, str] = {}
    for source in _pod_spec(plane, role)["containers"][0]["envFrom"]:
        found |= _read(plane, "configmap", source["configMapRef"]["name"])["data"]
    return found


def _pod_spec(plane: ControlPlane, role: str) -> dict[str, Any]:
    spec: dict[str, Any] = _read(plane, "deployment", f"isvc-sync-{role}")["spec"]["template"]["spec"]
    return spec


def _read(plane: ControlPlane, kind: str, name: str) -> Any:
    return json.loads(plane.kubectl("get", kind, name, "--namespace", NAMESPACE, "--output", "json"))


class Installation:
    """A broker, a registry, a KServe that is played in the given namespaces, and what was started of ours.

    It begins and ends without objects of KServe's kinds, for the producer follows all namespaces, and other tests may
    have left some.
    """

    def __init__(self, plane: ControlPlane, directory: Path, namespaces: Collection[str], pace: float = 0.2) -> None:
        self.plane = plane
        self.kubernetes: clients.Kubernetes
        self.models: clients.Models
        self.registry: registry.RegistryServer
        self.broker: NatsServer
        self.children: dict[str, Child] = {}
        self._directory = directory
        self._namespaces = namespaces
        self._pace = pace
        self._stack = AsyncExitStack()
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._guard = Guard()
            stack.callback(self._guard.close)
            self.broker = await stack.enter_async_context(NatsServer(self._directory / "nats"))
            self._guard.started(self.broker.pid)
            self.registry = await stack.enter_async_context(registry.serve())
            self._admin = await stack.enter_async_context(administrator(self.plane))
            self.kubernetes = clients.Kubernetes(self._admin)
            self.models = clients.Models(clients.plain(self.registry.url))
            stack.push_async_callback(self.models.close)
            await self._clear()
            stack.push_async_callback(self._clear)
            certificates = self.plane.directory / "certificates"
            await stack.enter_async_context(playing(self._admin, certificates, self._namespaces, self._pace))
            stack.push_async_callback(self.end)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    # --- our processes ---

    async def start(self, role: str, health_port: int | None = None) -> Child:
        """Start a role as its Deployment would; on a port of ours, wait until it is ready."""
        port = health_port or free_port()
        settings = await asyncio.to_thread(self._settings, role)
        child = await Child.start(role, [role], settings | {"HEALTH_PORT": str(port)}, self._directory / f"{role}.log")
        self._guard.started(child._process.pid)
        self.children[role] = child
        if health_port is None:
            await eventually(lambda: _is_ready(child, port), f"the {role} is ready", _READY_S)
        return child

    def _settings(self, role: str) -> dict[str, str]:
        token = self.plane.service_account_token(NAMESPACE, service_account(self.plane, role))
        kubeconfig = self._directory / f"{role}-{next(self._numbers)}.kubeconfig"
        return environ(self.plane, role) | {
            "KUBECONFIG": str(self.plane.write_kubeconfig(kubeconfig, token)),
            "NATS_URL": self.broker.url,
            "REGISTRY_URL": self.registry.url,
            "HEALTH_HOST": "127.0.0.1",
        }

    async def end(self) -> dict[str, int]:
        """End what was started; return the exit codes."""
        return {role: await child.end() for role, child in self.children.items()}

    @property
    def logs(self) -> tuple[Path, ...]:
        return tuple(self._directory / f"{role}.log" for role in ROLES)

    def log_tails(self) -> str:
        tails = {log.name: log.read_text(errors="replace").splitlines() for log in self.logs if log.exists()}
        return "\n".join(f"== {name}\n" + "\n".join(lines[-_LOG_LINES:]) for name, lines in tails.items())

    # --- what is there ---

    async def create(self, namespace: str, name: str, **labels: str) -> str:
        """Create an InferenceService, labelled by what is behind our prefix with `_` for `-`; return its uid."""
        obj = await self.kubernetes.create(isvc(namespace, name, **labels))
        return str(obj["metadata"]["uid"])

    async def is_serving(self, namespace: str, name: str) -> bool:
        objects = (await self.kubernetes.objects()).values()
        urls = {
            (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj.get("status", {}).get("url") for obj in objects
        }
        return bool(urls[namespace, name])

    def record(self, uid: str) -> dict[str, Any]:
        """The one record of an object, empty while there is none."""
        records = self.registry.records("inference_services")
        own = [record for record in records if record["externalId"].startswith(f"kserve:{uid}/")]
        assert len(own) <= 1, own
        return own[0] if own else {}

    async def _clear(self) -> None:
        """Take away all objects, whatever holds them. Namespaces stay: nobody here can end one."""
        for obj in (await self.kubernetes.objects()).values():
            metadata = obj["metadata"]
            kind = next(each for each in Kind if each.kubernetes_kind == obj["kind"])
            key = ObjectKey(kind, metadata["namespace"], metadata["name"])
            await self.kubernetes.patch(key, _FREE_OF_FINALIZERS)
            if "deletionTimestamp" not in metadata:
                await self.kubernetes.delete(key)


def isvc(namespace: str, name: str, **labels: str) -> dict[str, Any]:
    prefixed = {f"modelregistry.kubeflow.org/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "apiVersion": API_VERSIONS[Kind.ISVC],
        "kind": Kind.ISVC.kubernetes_kind,
        "metadata": {"namespace": namespace, "name": name, "labels": prefixed},
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/iris"}}},
    }


async def _is_ready(child: Child, port: int) -> bool:
    assert child.exit_code is None, f"the {child.name} has ended:\n" + "\n".join(child.last_lines())
    return not await clients.ready(port)
