"""Plays KServe on a real API server: its webhook, which the server calls, and its controller, which watches and writes.

What is written, and when, is the sandbox's (`sandbox.cluster.kserve`, `sandbox.cluster.admission`); here is only the
way there. The webhook is registered like KServe's own, so that kubectl, the demo and the consumer's patches all pass
through it. Both act in the given namespaces only: the API server is shared with other tests.
"""

import asyncio
import base64
import copy
import json
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
from aiohttp import web

from sandbox.cluster.admission import admit
from sandbox.cluster.kserve import Deployed, Step, World, apply_step, next_step
from sandbox.cluster.status import ApiError
from shared.objects import Kind, compare_resource_versions

Obj = dict[str, Any]

API_VERSIONS: Final = {Kind.ISVC: "serving.kserve.io/v1beta1", Kind.LLMISVC: "serving.kserve.io/v1alpha2"}

_RETRY_S: Final = 0.1
_WATCH_S: Final = 300
_WEBHOOK: Final = "inferenceservice.kserve-webhook-server.defaulter"
_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_PROBE: Final = {
    "apiVersion": API_VERSIONS[Kind.ISVC],
    "kind": Kind.ISVC.kubernetes_kind,
    "metadata": {"name": "probe"},
    "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}}}},
}


class _UnavailableError(Exception):
    """No answer, or one that will be better in a moment: the API server starts or is gone."""


class RemoteKServe:
    """The controller. `client` is an administrator's; `pace` multiplies all delays."""

    def __init__(self, client: httpx.AsyncClient, namespaces: Collection[str], pace: float = 1.0) -> None:
        self._client = client
        self._namespaces = namespaces
        self._pace = pace
        self._objects: dict[str, Obj] = {}  # by uid, as last seen
        self._deployed: dict[str, Deployed] = {}
        self._reconciles: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Play until cancelled, also over restarts of the API server. Raises what the server refuses."""
        async with asyncio.TaskGroup() as group:
            for kind in Kind:
                group.create_task(self._follow(kind, group))

    # --- what is seen ---

    async def _follow(self, kind: Kind, group: asyncio.TaskGroup) -> None:
        """List and watch one kind, again and again."""
        while True:
            try:
                version = await self._list(kind, group)
                await self._watch(kind, version, group)
            except (httpx.TransportError, _UnavailableError):
                await asyncio.sleep(_RETRY_S)

    async def _list(self, kind: Kind, group: asyncio.TaskGroup) -> str:
        listed = _answered(await self._client.get(_collection(kind))).json()
        living = {item["metadata"]["uid"] for item in listed["items"]}
        known = [uid for uid, obj in self._objects.items() if obj["kind"] == kind.kubernetes_kind]
        for uid in known:
            if uid not in living:
                self._forget(uid)
        for item in listed["items"]:
            self._see(item, group)
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, kind: Kind, version: str, group: asyncio.TaskGroup) -> None:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_S)}
        timeout = httpx.Timeout(_WATCH_S + 30.0)
        async with self._client.stream("GET", _collection(kind), params=query, timeout=timeout) as response:
            _answered(response)
            async for line in response.aiter_lines():
                event = json.loads(line)
                match event["type"]:
                    case "ERROR":
                        return  # most likely too old a version: list again
                    case "DELETED":
                        self._forget(event["object"]["metadata"]["uid"])
                    case _:
                        self._see(event["object"], group)

    def _see(self, obj: Obj, group: asyncio.TaskGroup) -> None:
        """Take up an object, unless a newer state of it was seen, and see to it that somebody works on it."""
        uid = obj["metadata"]["uid"]
        if obj["metadata"]["namespace"] not in self._namespaces or not self._keep(obj):
            return
        working = self._reconciles.get(uid)
        if working is None or working.done():
            self._reconciles[uid] = group.create_task(self._reconcile(uid))

    def _keep(self, obj: Obj) -> bool:
        known = self._objects.get(obj["metadata"]["uid"])
        if known is not None and compare_resource_versions(_version(obj), _version(known)) <= 0:
            return False
        self._objects[obj["metadata"]["uid"]] = obj
        return True

    def _forget(self, uid: str) -> None:
        self._objects.pop(uid, None)
        self._deployed.pop(uid, None)

    # --- what is written ---

    async def _reconcile(self, uid: str) -> None:
        """Write step after step until nothing is to do; if another step is due after the wait, wait for that one."""
        while (step := self._next(uid)) is not None:
            await asyncio.sleep(step.delay_s * self._pace)
            if self._next(uid) == step:
                await self._write(uid, step)

    def _next(self, uid: str) -> Step | None:
        obj = self._objects.get(uid)
        return None if obj is None else next_step(obj, self._deployed.get(uid, Deployed()), _world())

    async def _write(self, uid: str, step: Step) -> None:
        obj = self._objects[uid]
        part, wanted = apply_step(obj, step, _world())
        path = _path(obj) + (f"/{part}" if part else "")
        try:
            answer = await self._client.put(path, json=wanted)
            if answer.status_code in {404, 409}:
                await self._read_again(uid, obj)
                return
            written = _answered(answer).json()
        except (httpx.TransportError, _UnavailableError):
            await asyncio.sleep(_RETRY_S)
            return  # if it was written after all, the next try conflicts
        if step.write == "release":
            self._forget(uid)  # if others hold it, the watch says so
        elif uid in self._objects:
            self._deployed[uid] = step.after
            self._keep(written)

    async def _read_again(self, uid: str, obj: Obj) -> None:
        answer = await self._client.get(_path(obj))
        if answer.status_code == 404 or _answered(answer).json()["metadata"]["uid"] != uid:
            self._forget(uid)
        else:
            self._keep(answer.json())


def _answered(response: httpx.Response) -> httpx.Response:
    if response.status_code == 429 or response.is_server_error:
        raise _UnavailableError(f"{response.request.url}: {response.status_code}")
    return response.raise_for_status()


def _version(obj: Obj) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _world() -> World:
    return World(now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


def _collection(kind: Kind, namespace: str = "") -> str:
    return f"/apis/{API_VERSIONS[kind]}/" + (f"namespaces/{namespace}/" if namespace else "") + kind.plural


def _path(obj: Obj) -> str:
    kind = next(each for each in Kind if each.kubernetes_kind == obj["kind"])
    return f"{_collection(kind, obj['metadata']['namespace'])}/{obj['metadata']['name']}"


# --- the webhook ---


async def _review(request: web.Request) -> web.Response:
    """Answer an AdmissionReview with KServe's defaults as a JSON patch, or with its refusal."""
    review = await request.json()
    asked = review["request"]
    response: Obj = {"uid": asked["uid"], "allowed": True}
    try:
        admitted = admit(copy.deepcopy(asked["object"]), asked.get("oldObject"))
    except ApiError as error:
        reason = error.message.partition("denied the request: ")[2]  # the server itself says whose webhook it was
        response |= {"allowed": False, "status": {"code": error.code, "message": reason}}
    else:
        operations = [
            {"op": "replace", "path": "/spec", "value": admitted["spec"]},
            {"op": "add", "path": "/metadata/annotations", "value": admitted["metadata"]["annotations"]},
        ]
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}
    return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})


@asynccontextmanager
async def _webhook(client: httpx.AsyncClient, certificates: Path, namespaces: Collection[str]) -> AsyncIterator[None]:
    """Serve the webhook with the API server's own certificate, and register it for as long as this lasts."""
    app = web.Application()
    app.router.add_post("/mutate", _review)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/mutate"
    body = _registration(url, (certificates / "apiserver.crt").read_bytes(), namespaces)
    created = (await client.post(_WEBHOOKS, json=body)).raise_for_status().json()["metadata"]["name"]
    try:
        await _until_called(client, min(namespaces))
        yield
    finally:
        (await client.delete(f"{_WEBHOOKS}/{created}")).raise_for_status()
        await runner.cleanup()


def _registration(url: str, ca_bundle: bytes, namespaces: Collection[str]) -> Obj:
    group, version = API_VERSIONS[Kind.ISVC].split("/")
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(namespaces)}
    return {
        "metadata": {"generateName": "inferenceservice.serving.kserve.io-"},
        "webhooks": [
            {
                "name": _WEBHOOK,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": base64.b64encode(ca_bundle).decode()},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "namespaceSelector": {"matchExpressions": [named]},
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [Kind.ISVC.plural],
                    }
                ],
            }
        ],
    }


async def _until_called(client: httpx.AsyncClient, namespace: str) -> None:
    """Wait until the API server knows of the webhook, which takes it a moment."""
    async with asyncio.timeout(20):
        while True:
            answer = await client.post(_collection(Kind.ISVC, namespace), params={"dryRun": "All"}, json=_PROBE)
            if "annotations" in answer.raise_for_status().json()["metadata"]:
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def playing(
    client: httpx.AsyncClient, certificates: Path, namespaces: Collection[str], pace: float = 1.0
) -> AsyncIterator[None]:
    """Have KServe in these namespaces, of which the first by name must exist. `client` is an administrator's."""
    async with _webhook(client, certificates, namespaces):
        controller = asyncio.create_task(RemoteKServe(client, namespaces, pace).run())
        try:
            yield
        finally:
            failed = controller.done()
            controller.cancel()
            await asyncio.wait([controller])
            if failed:
                await controller
