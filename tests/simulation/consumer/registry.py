"""The Model Registry: the sandbox's database and its answers, reached by requests of the real adapter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from consumer.records import PROPERTY, Stamp
from consumer.requests.registry_errors import Answer, Request, RequestKind
from sandbox.registry.core import Core
from sandbox.registry.errors import ApiError
from sandbox.registry.kinds import (
    INFERENCE_SERVICE,
    MODEL_VERSION,
    REGISTERED_MODEL,
    SERVING_ENVIRONMENT,
    Kind,
)
from sandbox.registry.records import Registry as Content
from sandbox.registry.records import view
from sandbox.registry.store import Draft, Row, Store
from tests.simulation.consumer.cluster import VERSIONS_OF

STOPPED = "failed to connect to `user=mr database=mr`: dial error: connection refused"
REFUSING = "server error: FATAL: the database system is shutting down (SQLSTATE 57P03)"
_KINDS: dict[str, Kind] = {
    "serving_environment": SERVING_ENVIRONMENT,
    "serving_environments": SERVING_ENVIRONMENT,
    "inference_service": INFERENCE_SERVICE,
    "inference_services": INFERENCE_SERVICE,
    "registered_models": REGISTERED_MODEL,
    "model_versions": MODEL_VERSION,
}
OnWrite = Callable[[Row | None, Row, bool], None]


@dataclass(frozen=True)
class Said:
    """What a row says, in the words of the claims. `stamp` is our property, None where there is none."""

    row: Row

    @property
    def stamp(self) -> Stamp | None:
        value = self.row.properties.get(PROPERTY)
        return msgspec.json.decode(value["string_value"], type=Stamp) if value else None

    @property
    def deployed(self) -> bool:
        return bool(self.row.fields.get("desiredState") == "DEPLOYED")

    def field(self, name: str) -> str:
        return str(self.row.fields.get(name, ""))

    @property
    def url(self) -> str:
        return str(self.row.properties.get("url", {}).get("string_value", ""))


class Registry:
    """`fault` is what its database answers to everything, None when it is well. `on_write` is told of each write."""

    def __init__(self, now_ms: Callable[[], int], on_write: OnWrite) -> None:
        self.store = Store(now_ms)
        self.fault: str | None = None
        self._on_write = on_write
        models = [{"id": model, "name": f"model {model}"} for model in VERSIONS_OF]
        versions = [
            {"id": version, "name": version, "registeredModelId": model}
            for model, own in VERSIONS_OF.items()
            for version in own
        ]
        Content(self.store).seed(0, {"registered_models": models, "model_versions": versions})

    def rows(self) -> list[Said]:
        return [Said(row) for row in self.store.all(INFERENCE_SERVICE)]

    def row(self, record_id: str) -> Said | None:
        row = self.store.get(INFERENCE_SERVICE, int(record_id))
        return None if row is None else Said(row)

    def environments(self) -> list[str]:
        return [row.public_name for row in self.store.all(SERVING_ENVIRONMENT)]

    def environment(self, name: str) -> int:
        """Return the id of an environment that somebody else finds or makes."""
        found = next((row for row in self.store.all(SERVING_ENVIRONMENT) if row.name == name), None)
        return (found or self.store.insert(Draft(kind=SERVING_ENVIRONMENT, name=name))).id

    def create_as_a_predecessor(self, body: dict[str, Any]) -> None:
        """Create what an earlier controller makes of the same object: our first name, nothing else of ours."""
        environment_id = int(body["servingEnvironmentId"])
        name = f"{environment_id}:{body['name']}"
        taken = any(row.name == name for row in self.store.all(INFERENCE_SERVICE))
        if body["name"].count("/") > 1 or taken or self.store.get(SERVING_ENVIRONMENT, environment_id) is None:
            return
        fields = {name: body[name] for name in ("registeredModelId", "servingEnvironmentId")}
        self.put(name, None, environment_id, fields, {"owner": text("ann")})

    def put(
        self,
        name: str,
        external_id: str | None,
        environment_id: int,
        fields: dict[str, Any],
        properties: dict[str, Any],
    ) -> Row:
        """Create a row as somebody else would."""
        draft = Draft(
            kind=INFERENCE_SERVICE,
            name=name,
            external_id=external_id,
            parent=environment_id,
            fields={"desiredState": "DEPLOYED", **fields},
            properties=properties,
        )
        return self.store.insert(draft)

    def serve(self, request: Request, *, late: bool) -> Answer:
        """Do what a request asks for. `late`: nobody waits for its answer."""
        core = Core(self.store, self.fault)
        try:
            return Answer(200, "application/json", msgspec.json.encode(self._served(core, request, late)))
        except ApiError as error:
            body = {"code": error.code, "message": error.message}
            return Answer(error.status, "application/json", msgspec.json.encode(body))

    def _served(self, core: Core, request: Request, late: bool) -> Any:
        collection, *rest = request.path.strip("/").split("/")
        kind = _KINDS[collection]
        match request.method, rest:
            case "GET", []:
                return (
                    view(core.find(kind, request.params))
                    if request.kind is RequestKind.FIND
                    else core.list(kind, request.params)
                )
            case "GET", [number]:
                return view(core.get(kind, unquote(number)))
            case "GET", [number, nested]:
                return core.list(_KINDS[nested], request.params, unquote(number), kind.label)
            case "POST", []:
                row = core.create(kind, msgspec.json.decode(request.body))
                if kind is INFERENCE_SERVICE:
                    self._on_write(None, row, late)
                return view(row)
            case "PATCH", [number]:
                before = core.get(kind, unquote(number))
                row = core.write(before, msgspec.json.decode(request.body))
                self._on_write(before, row, late)
                return view(row)
        raise AssertionError(f"{request} is nothing that the consumer asks for")


def text(value: str) -> dict[str, str]:
    return {"metadataType": "MetadataStringValue", "string_value": value}
