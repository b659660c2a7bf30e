"""What clients ask before they work: version, groups, resources, and as much OpenAPI as kubectl needs. Pure."""

from collections.abc import Iterable

from sandbox.cluster.resources import Kind
from sandbox.cluster.status import Obj, qualified

VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3+sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "sandbox",
}
CORE_VERSIONS: Obj = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_STATUS_VERBS = ["get", "patch", "update"]


def document(path: str, kinds: Iterable[Kind]) -> Obj | None:
    """Return the document that a path names, or None."""
    found: Obj | None = None
    match path.strip("/").split("/"):
        case ["version"]:
            found = VERSION
        case ["api"]:
            found = CORE_VERSIONS
        case ["api", version]:
            found = resource_list("", version, kinds)
        case ["apis"]:
            found = group_list(kinds)
        case ["apis", name]:
            found = group(name, kinds)
        case ["apis", name, version]:
            found = resource_list(name, version, kinds)
        case ["openapi", "v3"]:
            found = openapi_index(kinds)
        case ["openapi", "v3", *rest]:
            found = openapi_document("/".join(rest), kinds)
        case _:
            pass
    return found


def group_list(kinds: Iterable[Kind]) -> Obj:
    groups = dict.fromkeys(kind.group for kind in kinds if kind.group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name, kinds) for name in groups]}


def group(name: str, kinds: Iterable[Kind]) -> Obj | None:
    """Return the description of a group, or None when no served kind is in it."""
    if not name or all(kind.group != name for kind in kinds):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, kinds)


def _group(name: str, kinds: Iterable[Kind]) -> Obj:
    # The newest first, as the real server orders: a stored version is the preferred one here.
    members = [kind for kind in kinds if kind.group == name]
    versions = dict.fromkeys(version for kind in members for version in reversed(kind.versions))
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def resource_list(name: str, version: str, kinds: Iterable[Kind]) -> Obj | None:
    """Return the resources of a group version, or None when it is not served."""
    members = [kind for kind in kinds if kind.group == name and version in kind.versions]
    if not members:
        return None
    resources = [entry for kind in members for entry in _resource(kind)]
    group_version = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _resource(kind: Kind) -> list[Obj]:
    entry: Obj = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS,
        "shortNames": list(kind.short_names),
        "storageVersionHash": "",
    }
    if not kind.status:
        return [entry]
    status = {"name": f"{kind.plural}/status", "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind}
    return [entry, status | {"verbs": _STATUS_VERBS}]


def openapi_index(kinds: Iterable[Kind]) -> Obj:
    """Return the root of OpenAPI v3: one document for each group version."""
    paths = dict.fromkeys(_path(kind, version) for kind in kinds for version in kind.versions)
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi_document(path: str, kinds: Iterable[Kind]) -> Obj | None:
    """Return the document of `apis/<group>/<version>` or `api/v1`, or None when it is not served.

    It says what kubectl reads before it writes: that PATCH takes `fieldValidation`, and that objects hold anything.
    """
    members = [(kind, version) for kind in kinds for version in kind.versions if _path(kind, version) == path]
    if not members:
        return None
    paths, schemas = {}, {}
    for kind, version in members:
        identity = {"group": kind.group, "version": version, "kind": kind.kind}
        place = f"/{path}/namespaces/{{namespace}}" if kind.namespaced else f"/{path}"
        parameters = [_query(name) for name in ("dryRun", "fieldManager", "fieldValidation", "force")]
        patch = {"parameters": parameters, "responses": {}, "x-kubernetes-action": "patch"}
        paths[f"{place}/{kind.plural}/{{name}}"] = {"patch": patch | {"x-kubernetes-group-version-kind": identity}}
        schemas[f"{qualified(kind.kind, kind.group)}.{version}"] = _schema(identity)
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _path(kind: Kind, version: str) -> str:
    return f"apis/{kind.group}/{version}" if kind.group else f"api/{version}"


def _query(name: str) -> Obj:
    return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def _schema(identity: Obj) -> Obj:
    properties: Obj = {key: {"type": "string"} for key in ("apiVersion", "kind")}
    for key in ("metadata", "spec", "status"):
        properties[key] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "properties": properties,
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-group-version-kind": [identity],
    }
