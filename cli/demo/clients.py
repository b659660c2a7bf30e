"""What a user of cluster and registry does, over their ordinary HTTP APIs; and what the broker holds at the end."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import httpx
import msgspec
from nats.js.errors import NotFoundError

from cli.demo.processes import DemoError
from cli.demo.state import Named, Record
from shared.broker import Broker, BrokerSettings
from shared.broker_errors import translated
from shared.errors import IsvcSyncError
from shared.objects import Kind, ObjectKey
from shared.streams import stream_names
from shared.subjects import unescape

_TIMEOUT_S: Final = 5.0
_BROKER_TIMEOUT_S: Final = 15.0
_PAGE: Final = 1000
# Those that kubectl would choose; a manifest names its own.
_API_VERSIONS: Final = {Kind.ISVC: "serving.kserve.io/v1beta1", Kind.LLMISVC: "serving.kserve.io/v1alpha2"}
_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}


def plain(url: str) -> httpx.AsyncClient:
    """Return a client for a server that asks for no credentials, as the sandbox's."""
    return httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, trust_env=False)


class Http:
    """Requests to one server, the base URL of `client`; what fails is a DemoError with the server's own words."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def close(self) -> None:
        await self._client.aclose()

    async def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send a request and return the decoded answer. Raises DemoError."""
        try:
            answer = await self._client.request(method, path, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise DemoError(f"{method} {path}: no answer ({type(error).__name__}: {error})") from error
        if answer.is_error:
            raise DemoError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer.json()


class Kubernetes(Http):
    """What kubectl would do."""

    async def create_namespace(self, name: str) -> None:
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    async def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        kind = next(each for each in Kind if each.kubernetes_kind == obj["kind"])
        path = _collection(kind, obj["metadata"]["namespace"], obj["apiVersion"])
        created: dict[str, Any] = await self.call("POST", path, obj)
        return created

    async def patch(self, key: ObjectKey, change: Mapping[str, Any]) -> None:
        await self.call("PATCH", f"{_collection(key.kind, key.namespace)}/{key.name}", change, _MERGE_PATCH)

    async def delete(self, key: ObjectKey) -> None:
        await self.call("DELETE", f"{_collection(key.kind, key.namespace)}/{key.name}")

    async def objects(self) -> dict[str, dict[str, Any]]:
        """Return all objects of both kinds by uid."""
        lists = await asyncio.gather(*(self.call("GET", _collection(kind)) for kind in Kind))
        return {item["metadata"]["uid"]: item for each in lists for item in each["items"]}


def _collection(kind: Kind, namespace: str = "", api_version: str = "") -> str:
    scope = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{api_version or _API_VERSIONS[kind]}/{scope}{kind.plural}"


class Models(Http):
    """What the registry's users do: register models and versions, read records."""

    async def register(self, name: str) -> Named:
        return msgspec.convert(await self._post("registered_models", {"name": name}), Named)

    async def add_version(self, model: Named, name: str) -> Named:
        body = {"name": name, "registeredModelId": model.id}
        return msgspec.convert(await self._post("model_versions", body), Named)

    async def records(self) -> tuple[Record, ...]:
        return msgspec.convert(await self._items("inference_services"), tuple[Record, ...])

    async def environments(self) -> tuple[Named, ...]:
        return msgspec.convert(await self._items("serving_environments"), tuple[Named, ...])

    async def _items(self, collection: str) -> Any:
        answer = await self.call("GET", f"/api/model_registry/v1alpha3/{collection}?pageSize={_PAGE}")
        if answer["size"] >= _PAGE:
            raise DemoError(f"the registry has {_PAGE} {collection} or more: is it the demo's own?")
        return answer["items"]

    async def _post(self, collection: str, body: Mapping[str, str]) -> Any:
        return await self.call("POST", f"/api/model_registry/v1alpha3/{collection}", body)


class Heard(msgspec.Struct, frozen=True):
    """What the broker holds: every message of every stream as text, and the dead letters' reasons."""

    messages: tuple[str, ...]
    dead_letters: dict[ObjectKey, str]


async def heard(nats_url: str) -> Heard:
    """Read all streams from their first message to their last. Raises DemoError when the broker does not answer."""
    broker = Broker(BrokerSettings(nats_url=(nats_url,)), on_closed=lambda: None)
    names = stream_names("isvc")
    try:
        async with asyncio.timeout(_BROKER_TIMEOUT_S):
            await broker.connect()
            with translated("reading all messages"):
                read = [message for name in msgspec.structs.astuple(names) for message in await _messages(broker, name)]
    except IsvcSyncError as error:
        raise DemoError(str(error)) from error
    except TimeoutError as error:
        raise DemoError(f"the broker did not give its messages within {_BROKER_TIMEOUT_S:.0f} s") from error
    finally:
        await broker.close()
    return Heard(tuple(text for _, _, text in read), {_key(s): r for s, r, _ in read if s.split(".")[2] == "dlq"})


async def _messages(broker: Broker, stream: str) -> list[tuple[str, str, str]]:
    """Return subject, dead-letter reason and whole text of each message."""
    state = (await broker.jetstream.stream_info(stream)).state
    found = []
    sequences = range(state.first_seq, state.last_seq + 1) if state.messages else ()
    for sequence in sequences:
        try:
            message = await broker.jetstream.get_msg(stream, seq=sequence)
        except NotFoundError:
            continue  # a newer one of its subject took its place, or it was cleared
        headers = message.headers or {}
        text = f"{message.subject} {dict(headers)} {(message.data or b'').decode(errors='replace')}"
        found.append((message.subject or "", unquote(headers.get("isvc-reason", "")), unquote(text)))
    return found


def _key(subject: str) -> ObjectKey:
    kind, namespace, name = subject.split(".")[3:6]
    return ObjectKey(Kind(kind), unescape(namespace), unescape(name))


async def ready(port: int) -> str:
    """Return why a daemon is not ready; empty when it is."""
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/readyz")
    except httpx.HTTPError as error:
        return f"no answer yet ({type(error).__name__})"
    return "" if answer.is_success else answer.text.strip().replace("\n", "; ")


async def deferred(port: int) -> int | None:
    """Return how many ids the consumer says it has not written yet; None when it does not say."""
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
            lines = (await client.get(f"http://127.0.0.1:{port}/metrics")).text.splitlines()
    except httpx.HTTPError:
        return None
    counts = [line for line in lines if line.startswith("isvc_sync_objects") and "write-back-deferred" in line]
    return int(float(counts[0].rpartition(" ")[2])) if counts else None
