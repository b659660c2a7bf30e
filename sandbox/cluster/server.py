"""The sandbox's Kubernetes API as one thing to start, talk to, disturb and stop.

async with serve() as cluster:
    cluster.create({"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", ...})
    cluster.write_kubeconfig(path)      # then: KUBECONFIG=path kubectl get isvc -A -w
"""

import random
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import yaml
from aiohttp import web

from sandbox import web as loopback
from sandbox.cluster import admission, patch
from sandbox.cluster.api import REQUEST_BYTES_MAX, Api
from sandbox.cluster.auth import User
from sandbox.cluster.controller import Controller
from sandbox.cluster.housekeeping import Housekeeping
from sandbox.cluster.play import play, read
from sandbox.cluster.resources import CRDS, ISVC, KSERVE_CRDS, NAMESPACES, Kind
from sandbox.cluster.rules import Cluster, Deletion, Ids
from sandbox.cluster.status import Obj
from sandbox.cluster.store import History, Store
from sandbox.cluster.watch import WatchSettings
from sandbox.faults import Faults, RequestCounts, install

_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "kserve")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes: no vowels, so no words


@dataclass(frozen=True, slots=True)
class Settings:
    """How the cluster behaves; the defaults are a real server's, but for the played KServe, which is off."""

    tokens: dict[str, User] = field(default_factory=dict)
    """Bearer token to user; without any, everybody is admin."""
    history: History = field(default_factory=History)
    watching: WatchSettings = field(default_factory=WatchSettings)
    kserve: bool = False
    """Play KServe: its webhooks and its controller."""
    kserve_pace: float = 1.0
    """Multiplies the played controller's delays; 0 = as fast as possible."""
    controller_delay_s: float = 0.1
    """Until a new definition is served, and until the garbage collector lets an object go."""


@dataclass(slots=True)
class ClusterSandbox:
    """A running cluster. Objects are written through the same rules as by HTTP; errors are `ApiError`."""

    url: str
    cluster: Cluster
    api: Api
    controller: Controller
    faults: Faults
    requests: RequestCounts

    @property
    def store(self) -> Store:
        return self.cluster.store

    def kind(self, name: str) -> Kind:
        """Find a served kind by its name, such as `InferenceService`; raises KeyError."""
        return (
            next((kind for kind in self.cluster.kinds.values() if kind.kind == name), None) or self.cluster.kinds[name]
        )

    def create_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        if self.store.get(NAMESPACES, f"/{name}") is None:
            self.cluster.create(self.cluster.kinds[NAMESPACES], "", {"metadata": {"name": name}})

    def create(self, obj: Obj) -> Obj:
        """Create an object, and its namespace when that is missing."""
        kind = self.kind(obj["kind"])
        namespace = obj["metadata"].get("namespace", "default") if kind.namespaced else ""
        if namespace:
            self.create_namespace(namespace)
        return self.cluster.create(kind, namespace, obj).decode()

    def get(self, kind: str, namespace: str, name: str) -> Obj | None:
        entry = self.store.get(self.kind(kind).resource, f"{namespace}/{name}")
        return None if entry is None else entry.decode()

    def list(self, kind: str) -> list[Obj]:
        return [entry.decode() for entry in self.store.entries(self.kind(kind).resource)]

    def patch(self, kind: str, where: tuple[str, str], merge: Obj, *, part: str = "") -> Obj:
        """Apply a merge patch to the object at (namespace, name), or with `part="status"` to its status."""
        served = self.kind(kind)
        entry = self.store.get(served.resource, "/".join(where))
        if entry is None:
            raise KeyError(f"there is no {kind} {'/'.join(where)}")
        wanted = patch.merge_patch(entry.decode(), merge)
        return self.cluster.update(served, entry, wanted, part=part, patched=True).decode()

    def delete(self, kind: str, namespace: str, name: str, deletion: Deletion | None = None) -> None:
        """Delete an object; finalizers hold it as they do by HTTP. Raises KeyError when it does not exist."""
        served = self.kind(kind)
        entry = self.store.get(served.resource, f"{namespace}/{name}")
        if entry is None:
            raise KeyError(f"there is no {kind} {namespace}/{name}")
        self.cluster.delete(served, entry, deletion)

    def serve_only(self, kind: str, *versions: str) -> None:
        """Serve a custom kind under these of its versions, as an older or a newer KServe does; the rest become 404."""
        name = self.kind(kind).resource
        entry = self.store.get(CRDS, f"/{name}")
        if entry is None:
            raise KeyError(f"there is no definition {name}")
        known = entry.decode()["spec"]["versions"]
        spec = {"versions": [version | {"served": version["name"] in versions} for version in known]}
        self.patch("CustomResourceDefinition", ("", name), {"spec": spec})

    async def play(self, path: Path, pace: float = 0.0) -> int:
        """Play a capture; returns the number of writes. Not together with the played KServe, which would interfere."""
        return await play(self.cluster, read(path), pace)

    def restart(self) -> None:
        """Do what a restart of the API server does to clients: watches end, and the last resourceVersion gets 410."""
        self.store.forget_history()

    def expire_history(self) -> None:
        """Forget all events so far: the next watch or page from before gets 410, while open watches go on."""
        for resource in self.cluster.kinds:
            log = self.store.log(resource)
            log.forget(log.end - log.begin)

    def write_kubeconfig(self, path: Path, token: str = "") -> Path:
        """Write a kubeconfig for kubectl and for client libraries; returns its path."""
        user = {"token": token} if token else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
            "users": [{"name": "sandbox", "user": user}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path


@asynccontextmanager
async def serve(
    settings: Settings | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[ClusterSandbox]:
    """Start a cluster and yield it; `port=0` lets the system choose. Raises OSError when the port is taken."""
    settings = settings or Settings()
    cluster = new_cluster(settings)
    api = Api(cluster, settings.tokens, settings.watching)
    faults, requests = Faults(), RequestCounts()
    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    install(app, faults, requests, partial(_route, api))
    app.router.add_route("*", "/{path:.*}", api.handle)
    controller = Controller(cluster, pace=settings.kserve_pace)
    housekeeping = Housekeeping(cluster, settings.controller_delay_s)
    housekeeping.start()
    if settings.kserve:
        controller.start()
    try:
        async with loopback.serve(app, host=host, port=port) as url:
            yield ClusterSandbox(url, cluster, api, controller, faults, requests)
    finally:
        housekeeping.stop()
        if settings.kserve:
            controller.stop()


def new_cluster(settings: Settings) -> Cluster:
    """Build a cluster with KServe's definitions and the namespaces that every cluster has."""
    ids = Ids(
        lambda: datetime.now(UTC), lambda: str(uuid.uuid4()), lambda: "".join(random.choices(_SUFFIX_ALPHABET, k=5))
    )
    cluster = Cluster(Store(settings.history, time.monotonic), ids)
    for name in _FIRST_NAMESPACES:
        cluster.create(cluster.kinds[NAMESPACES], "", {"metadata": {"name": name}})
    for definition in KSERVE_CRDS:
        cluster.create(cluster.kinds[CRDS], "", definition)
        cluster.establish(definition["metadata"]["name"])
    if settings.kserve:
        cluster.admission[ISVC] = admission.admit
    return cluster


def _route(api: Api, request: web.Request) -> str:
    """Name what a request is counted under, such as `inferenceservices.serving.kserve.io/{name}/status`."""
    place = api.place(request.path)
    if place is None:
        return request.path
    name = "/{name}" if place.name else ""
    watch = "?watch" if "watch" in request.query else ""
    return place.kind.resource + name + (f"/{place.part}" if place.part else "") + watch
