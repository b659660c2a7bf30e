"""Which path and method does what: the table between HTTP (`api`) and the registry's operations (`core`)."""

from collections.abc import Callable
from typing import Any

import msgspec

from sandbox.registry.core import Body, Core
from sandbox.registry.decode import Form, decode_body, shape
from sandbox.registry.errors import ApiError
from sandbox.registry.kinds import (
    INFERENCE_SERVICE,
    MODEL_ARTIFACT,
    MODEL_VERSION,
    REGISTERED_MODEL,
    SERVE_MODEL,
    SERVING_ENVIRONMENT,
    Kind,
)
from sandbox.registry.query import parse_query
from sandbox.registry.records import view

PREFIX = "/api/model_registry/"


class Call(msgspec.Struct, frozen=True):
    """What a request brings: the id in its path (as it was sent), query and body not decoded yet."""

    id: str
    raw_query: str
    body: bytes
    choose: Callable[[list[str]], str]

    @property
    def query(self) -> dict[str, str]:
        return parse_query(self.raw_query)

    def read(self, kind: Kind, form: Form) -> Body:
        return decode_body(self.body, shape(kind, form), self.choose)


Answer = tuple[int, dict[str, Any]]
Operation = Callable[[Core, Call], Answer]


class Route(msgspec.Struct, frozen=True):
    """A path's operations. `patches` is the kind that PATCH changes, which happens in two steps (see `api`)."""

    pattern: str
    operations: dict[str, Operation]
    patches: Kind | None = None

    @property
    def methods(self) -> list[str]:
        return [*self.operations, *(["PATCH"] if self.patches else [])]


class Location(msgspec.Struct, frozen=True):
    """A path taken apart. `route` is None for one that does not exist in its version."""

    version: str
    id: str
    route: Route | None


def locate(path: str) -> Location | None:
    """Find the route of a path as it was sent: a percent-encoded slash or digit stays one. None: not below the API."""
    if not path.startswith(PREFIX):
        return None
    version, *segments = path[len(PREFIX) :].split("/")
    record_id = segments[1] if len(segments) > 1 else ""
    if len(segments) > 1 and record_id:
        segments[1] = "{id}"
    return Location(version, record_id, _ROUTES.get(tuple(segments)))


def _list(kind: Kind, parent: Kind | None = None) -> Operation:
    def operation(core: Core, call: Call) -> Answer:
        if parent is None:
            return 200, core.list(kind, call.query)
        return 200, core.list(kind, call.query, call.id, parent.label)

    return operation


def _find(kind: Kind) -> Operation:
    return lambda core, call: (200, view(core.find(kind, call.query)))


def _get(kind: Kind) -> Operation:
    return lambda core, call: (200, view(core.get(kind, call.id)))


def _create(kind: Kind) -> Operation:
    return lambda core, call: (201, view(core.create(kind, call.read(kind, "Create"))))


def _create_in_environment(core: Core, call: Call) -> Answer:
    """Create with the path's environment; the body must name one all the same."""
    body = call.read(INFERENCE_SERVICE, "Create")
    return 201, view(core.create(INFERENCE_SERVICE, {**body, "servingEnvironmentId": call.id}))


def _create_in_model(core: Core, call: Call) -> Answer:
    """Create a version of the path's model. The body is a full record: with an id this is an update, answered 201."""
    body = call.read(MODEL_VERSION, "")
    if body.get("id") is not None:
        return 201, view(core.write(core.get(MODEL_VERSION, body["id"]), body))
    return 201, view(core.create(MODEL_VERSION, {**body, "registeredModelId": call.id}))


def _create_serve(core: Core, call: Call) -> Answer:
    return 201, view(core.create_under(SERVE_MODEL, call.id, call.read(SERVE_MODEL, "Create")))


def _create_artifact(core: Core, call: Call) -> Answer:
    """Create a version's artifact, or update the one whose id the body names."""
    body = call.read(MODEL_ARTIFACT, "union")
    if body.get("artifactType") != "model-artifact":
        raise ApiError(400, f"artifactType {body.get('artifactType')!r} is not served here, only model-artifact")
    if body.get("id") is not None:
        return 201, view(core.write(core.get(MODEL_ARTIFACT, body["id"]), body))
    return 201, view(core.create_under(MODEL_ARTIFACT, call.id, body))


def _routes() -> dict[tuple[str, ...], Route]:
    routes = {}

    def add(pattern: str, patches: Kind | None = None, **operations: Operation) -> None:
        routes[tuple(pattern.split("/"))] = Route("/" + pattern, operations, patches)

    for kind in (REGISTERED_MODEL, MODEL_VERSION, SERVING_ENVIRONMENT, INFERENCE_SERVICE, MODEL_ARTIFACT):
        add(kind.collection, GET=_list(kind), POST=_create(kind))
        add(kind.collection + "/{id}", patches=kind, GET=_get(kind))
        add(kind.collection.removesuffix("s"), GET=_find(kind))
    add("registered_models/{id}/versions", GET=_list(MODEL_VERSION, REGISTERED_MODEL), POST=_create_in_model)
    add(
        "serving_environments/{id}/inference_services",
        GET=_list(INFERENCE_SERVICE, SERVING_ENVIRONMENT),
        POST=_create_in_environment,
    )
    add("inference_services/{id}/model", GET=lambda core, call: (200, view(core.model_of(call.id))))
    add("inference_services/{id}/version", GET=lambda core, call: (200, view(core.version_of(call.id))))
    add("inference_services/{id}/serves", GET=_list(SERVE_MODEL, INFERENCE_SERVICE), POST=_create_serve)
    add("model_versions/{id}/artifacts", GET=_list(MODEL_ARTIFACT, MODEL_VERSION), POST=_create_artifact)
    return routes


_ROUTES = _routes()
