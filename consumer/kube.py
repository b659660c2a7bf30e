"""The Kubernetes API as the consumer uses it: read one object, patch one object, read KServe's lists.

The watch is the producer's; here every request is short, has a deadline, and names the object that it is about.
"""

import logging
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from consumer.requests.exchange import Budget, Outgoing
from consumer.requests.kube_circuit import Sender
from consumer.writeback import KServeLists
from shared.decoding import UNDECODABLE
from shared.errors import ConflictError, IsvcSyncError, NotFoundError, TransientError, UnreachableError
from shared.kubernetes_errors import Answer, raise_for
from shared.objects import Kind, ObjectKey

logger = logging.getLogger(__name__)

_KSERVE_CONFIG: Final = "inferenceservice-config"


class _KServeConfig(msgspec.Struct, rename="camel"):
    """The part of `inferenceService` in KServe's ConfigMap that says which keys never reach pods."""

    service_annotation_disallowed_list: frozenset[str] = frozenset()
    service_label_disallowed_list: frozenset[str] = frozenset()


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class KubernetesApi:
    """One cluster, for as long as `budget` grants; implements the port `Kubernetes`.

    `api_version` says under which group and version a kind is read and patched.
    """

    def __init__(self, sender: Sender, budget: Budget, api_version: Callable[[Kind], str]) -> None:
        self._sender = sender
        self._budget = budget
        self._api_version = api_version

    async def get(self, key: ObjectKey) -> Any | None:
        request = Outgoing(method="GET", path=self._path(key), route=self._route(key))
        response = await self._sender.send(request, self._budget)
        what = f"reading {key}"
        if response.status_code == 404 and Answer.of(response).reason == "NotFound":
            return None
        try:
            raise_for(response, what)
        except NotFoundError as error:
            raise TransientError(
                f"{what}: the cluster does not serve {key.kind.plural} as {self._api_version(key.kind)}: is KServe "
                "installed, and LLMISVC_API_VERSION a version that it serves?"
            ) from error
        return _decoded(response.content, Any, what)

    async def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        request = Outgoing(
            method="PATCH",
            path=self._path(key),
            route=self._route(key),
            body=msgspec.json.encode(operations),
            content_type="application/json-patch+json",
        )
        response = await self._sender.send(request, self._budget)
        try:
            raise_for(response, f"patching {key}")
        except NotFoundError as error:
            raise ConflictError(str(error)) from error

    async def kserve_lists(self, namespace: str) -> KServeLists:
        """Return the keys that KServe keeps from pods; empty lists, and a warning, when its ConfigMap is unreadable.

        Empty lists are the careful answer: a write-back then counts as more costly than it is.
        """
        collection = "/api/v1/namespaces/{}/configmaps/" + _KSERVE_CONFIG
        path = collection.format(quote(namespace, safe=""))
        what = f"reading ConfigMap {namespace}/{_KSERVE_CONFIG}"
        try:
            request = Outgoing(method="GET", path=path, route=collection.format("{namespace}"))
            response = await self._sender.send(request, self._budget)
            raise_for(response, what)
            text = _decoded(response.content, _ConfigMap, what).data.get("inferenceService", "{}")
            config = _decoded(text.encode(), _KServeConfig, f"{what}, key inferenceService")
        except IsvcSyncError as error:
            logger.warning("KServe's lists of keys cannot be read, none is assumed", extra={"error": str(error)})
            return KServeLists()
        return KServeLists(config.service_annotation_disallowed_list, config.service_label_disallowed_list)

    def _path(self, key: ObjectKey) -> str:
        return f"{self._collection(key.kind, quote(key.namespace, safe=''))}/{quote(key.name, safe='')}"

    def _route(self, key: ObjectKey) -> str:
        return f"{self._collection(key.kind, '{namespace}')}/{{name}}"

    def _collection(self, kind: Kind, namespace: str) -> str:
        return f"/apis/{self._api_version(kind)}/namespaces/{namespace}/{kind.plural}"


def _decoded(content: bytes, shape: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(content, type=shape)
    except UNDECODABLE as error:
        raise UnreachableError(f"{what}: the answer does not decode ({error})") from error
