"""The routes: from an HTTP request to a read, a write or a watch, and back. One handler for all resources.

Path, then token, then right, then verb: as on the real server an unknown path is a plain 404 for everybody, an unknown
token is 401, and a missing right is 403 before anything is looked up.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import yaml
from aiohttp import web

from sandbox.cluster import auth, discovery, listing, patch, protobuf, status
from sandbox.cluster.render import Renderer, event_line, negotiate
from sandbox.cluster.resources import Kind
from sandbox.cluster.rules import Cluster, Deletion
from sandbox.cluster.status import ApiError, Obj
from sandbox.cluster.store import Entry, encode
from sandbox.cluster.watch import Stream, Watch, WatchSettings

REQUEST_BYTES_MAX = 3 * 1024 * 1024

_VERB = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_PATCH_TYPES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"

WatchListSupport = Literal["on", "gate-off", "old-etcd"]
"""Whether watches with sendInitialEvents work; else how they are refused: 422, or an ERROR event as with etcd 3.5."""


@dataclass(slots=True)
class Place:
    """What a path names."""

    kind: Kind
    version: str
    namespace: str = ""
    name: str = ""
    part: str = ""


class Api:
    """All routes of one server. `watches` are the open ones, for those who want to end or disturb them."""

    def __init__(self, cluster: Cluster, tokens: dict[str, auth.User], watching: WatchSettings) -> None:
        self.watches: set[Watch] = set()
        self.watch_list: WatchListSupport = "on"
        self._cluster = cluster
        self._tokens = tokens
        self._watching = watching

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        try:
            return await self._answer(request)
        except ApiError as error:
            headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else None
            return _json(encode(error.status()), error.code, headers)
        except web.HTTPRequestEntityTooLarge:
            return _json(encode(status.too_large(REQUEST_BYTES_MAX).status()), 413)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in {"/healthz", "/livez", "/readyz"}:
            return web.Response(text="ok")
        user = auth.authenticate(request.headers.get("Authorization"), self._tokens)
        place = self.place(request.path)
        if place is None:
            document = discovery.document(request.path, self._cluster.kinds.values())
            if document is None:
                return web.Response(status=404, text="404 page not found\n")
            negotiate(request.headers.get("Accept", ""))
            return _json(encode(document))
        if "dryRun" in request.query:
            raise status.bad_request("the sandbox has no dry run")
        verb = _verb(request, place)
        resource = place.kind.resource + (f"/{place.part}" if place.part else "")
        auth.authorize(user, auth.Action(verb, resource, place.namespace, place.name))
        if verb in {"list", "watch"}:
            return await self._list_or_watch(request, place)
        if verb == "get":
            return self._entry_answer(request, place, self._get(place))
        return await self._write(request, place, verb)

    def place(self, path: str) -> Place | None:
        """Find the resource that a path names; None when it names none that is served."""
        match path.strip("/").split("/"):
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                return None
        namespace = ""
        match rest:
            case ["namespaces", _, plural, *_] if group or plural not in {"status", "finalize"}:
                namespace, rest = rest[1], rest[2:]
        if not rest or len(rest) > 3:
            return None
        plural, name, part = (*rest, "", "")[:3]
        kind = self._cluster.kinds.get(status.qualified(plural, group))
        if kind is None or version not in kind.versions or (part and not (part == "status" and kind.status)):
            return None
        if (namespace and not kind.namespaced) or (name and kind.namespaced and not namespace):
            return None
        return Place(kind, version, namespace, name, part)

    def _get(self, place: Place) -> Entry:
        entry = self._cluster.store.get(place.kind.resource, f"{place.namespace}/{place.name}")
        if entry is None:
            raise status.not_found(place.kind.plural, place.kind.group, place.name)
        return entry

    def _renderer(self, request: web.Request, place: Place) -> Renderer:
        whole = request.query.get("includeObject") == "Object"
        form = negotiate(request.headers.get("Accept", ""))
        return Renderer(place.kind, place.version, form, self._cluster.ids.now, whole_rows=whole)

    def _entry_answer(self, request: web.Request, place: Place, entry: Entry, code: int = 200) -> web.Response:
        return _json(self._renderer(request, place).one(entry), code)

    async def _list_or_watch(self, request: web.Request, place: Place) -> web.StreamResponse:
        options = listing.parse(request.query, place.kind, place.namespace)
        renderer = self._renderer(request, place)
        if place.name:  # a watch of one object
            options = replace(options, selector=options.selector.also(lambda entry: entry.name == place.name))
        if not options.watch:
            return _json(renderer.page(listing.list_page(self._cluster.store, place.kind, options)))
        if options.initial_events is not None and self.watch_list != "on":
            return _refused_watch_list(self.watch_list)
        stream = Stream(self._cluster.store, renderer, options, self._watching, self.watches)
        return await stream.answer(request)

    async def _write(self, request: web.Request, place: Place, verb: str) -> web.Response:
        match verb:
            case "create":
                body = _object(await _body(request), place)
                return self._entry_answer(request, place, self._cluster.create(place.kind, place.namespace, body), 201)
            case "update":
                body = _object(await _body(request), place)
                entry = self._cluster.update(place.kind, self._get(place), body, part=place.part)
                return self._entry_answer(request, place, entry)
            case "patch":
                return await self._patch(request, place)
            case _:
                return await self._delete(request, place, verb)

    async def _delete(self, request: web.Request, place: Place, verb: str) -> web.Response:
        deletion = _deletion(await _body(request, optional=True))
        if verb == "deletecollection":
            return self._delete_collection(request, place, deletion)
        current = self._get(place)
        held = self._cluster.delete(place.kind, current, deletion)
        return _json(_deleted(place, current)) if held is None else self._entry_answer(request, place, held)

    def _delete_collection(self, request: web.Request, place: Place, deletion: Deletion) -> web.Response:
        options = listing.parse(request.query, place.kind, place.namespace)
        page = listing.list_page(self._cluster.store, place.kind, options)
        answer = self._renderer(request, place).page(page)
        for entry in page.entries:
            self._cluster.delete(place.kind, entry, deletion)
        return _json(answer)

    async def _patch(self, request: web.Request, place: Place) -> web.Response:
        media = request.content_type
        body = await _body(request)
        if media == "application/apply-patch+yaml":
            return self._apply(request, place, body)
        current = self._get(place)
        shown: Obj = msgspec.json.decode(
            Renderer(place.kind, place.version, "object", self._cluster.ids.now).one(current)
        )
        if media == "application/json-patch+json":
            wanted = patch.json_patch(shown, body)
        elif media == "application/merge-patch+json":
            wanted = patch.merge_patch(shown, _mapping(body))
        elif media == "application/strategic-merge-patch+json" and not place.kind.custom:
            wanted = patch.strategic_merge(shown, _mapping(body))
        else:
            raise status.unsupported_media_type(_PATCH_TYPES)
        entry = self._cluster.update(place.kind, current, wanted, part=place.part, patched=True)
        return self._entry_answer(request, place, entry)

    def _apply(self, request: web.Request, place: Place, body: Any) -> web.Response:
        """Server-side apply without field ownership: a merge; what the applier no longer names stays."""
        if not request.query.get("fieldManager"):
            cause = ("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
            raise status.invalid("PatchOptions", "meta.k8s.io", "", cause)
        wanted = _object(body, place)
        current = self._cluster.store.get(place.kind.resource, f"{place.namespace}/{place.name}")
        if current is None:
            wanted = wanted | {"metadata": {"name": place.name} | (wanted.get("metadata") or {})}
            return self._entry_answer(request, place, self._cluster.create(place.kind, place.namespace, wanted), 201)
        merged = patch.merge_patch(current.decode(), wanted)
        entry = self._cluster.update(place.kind, current, merged, part=place.part, patched=True)
        return self._entry_answer(request, place, entry)


def _verb(request: web.Request, place: Place) -> str:
    match request.method:
        case "GET" | "HEAD":
            watch = request.query.get("watch", "").lower() in {"1", "t", "true"}
            return "watch" if watch else "get" if place.name else "list"
        case "DELETE" if not place.part:
            return "delete" if place.name else "deletecollection"
        case method if method in _VERB and bool(place.name) == (method != "POST"):
            return _VERB[method]
    raise status.method_not_allowed("the server does not allow this method on the requested resource")


async def _body(request: web.Request, *, optional: bool = False) -> Any:
    """Decode a body, JSON or YAML; raises ApiError 400 when it is neither, 415 for other types."""
    raw = await request.read()
    if not raw and optional:
        return {}
    media = request.content_type
    try:
        if media == protobuf.MEDIA_TYPE:
            return protobuf.decode(raw)
        if media.endswith("yaml"):
            return yaml.safe_load(raw)
        if media.endswith("json") or optional or "Content-Type" not in request.headers:
            return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError, KeyError) as error:
        raise status.bad_request(f"the body cannot be decoded: {error}") from error
    raise status.unsupported_media_type("application/json, application/yaml")


def _mapping(body: Any) -> Obj:
    if not isinstance(body, dict):
        raise status.bad_request("the body of the request is no object")
    return body


def _object(body: Any, place: Place) -> Obj:
    """Check that a body is an object of this resource; raises ApiError 400 otherwise."""
    obj = _mapping(body)
    if not isinstance(obj.get("metadata") or {}, dict):
        raise status.bad_request("metadata is no object")
    for key, expected in (("kind", place.kind.kind), ("apiVersion", place.kind.api_version(place.version))):
        given = obj.get(key)
        if given is None and place.kind.custom:
            raise status.bad_request(f"Object '{key}' is missing in '{json.dumps(obj)[:200]}'")
        if given not in (None, expected):
            what = "API version" if key == "apiVersion" else "kind"
            message = f"the {what} in the data ({given}) does not match the expected {what} ({expected})"
            raise status.bad_request(message)
    return obj


def _deletion(body: Any) -> Deletion:
    options = _mapping(body)
    preconditions = options.get("preconditions") or {}
    finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(options.get("propagationPolicy") or "")
    return Deletion(preconditions.get("uid"), preconditions.get("resourceVersion"), finalizer)


def _deleted(place: Place, entry: Entry) -> bytes:
    details = {"name": entry.name, "group": place.kind.group, "kind": place.kind.plural, "uid": entry.uid}
    if not place.kind.group:
        del details["group"]
    return encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _refused_watch_list(support: WatchListSupport) -> web.Response:
    if support == "gate-off":
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise listing.forbidden_option("sendInitialEvents", why)
    error = status.internal("Internal error occurred: the required storage feature RequestWatchProgress is disabled")
    return _json(event_line("ERROR", encode(error.status())))


def _json(body: bytes, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=code, content_type="application/json", headers=headers)
