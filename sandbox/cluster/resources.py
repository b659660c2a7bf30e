"""The kinds that the sandbox serves: built-in ones, and custom ones described by CustomResourceDefinitions.

InferenceService and LLMInferenceService are ordinary custom kinds here: `KSERVE_CRDS` is applied at start. So a test
may add a kind of its own, or delete one, as on a real cluster.
"""

from dataclasses import dataclass

from sandbox.cluster.status import Obj, qualified

KSERVE_GROUP = "serving.kserve.io"
ISVC = "inferenceservices.serving.kserve.io"
LLMISVC = "llminferenceservices.serving.kserve.io"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`: `path` is a JSONPath, or empty for the name."""

    name: str
    type: str
    path: str


NAME = Column("Name", "string", "")
AGE = Column("Age", "date", ".metadata.creationTimestamp")


@dataclass(frozen=True, slots=True)
class Kind:
    """One served resource. `versions` maps each served version to its columns; `stored` is the version in the store."""

    group: str
    kind: str
    plural: str
    stored: str
    versions: dict[str, tuple[Column, ...]]
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    status: bool = False
    custom: bool = False
    name_rule: str = "subdomain"
    unconditional_update: bool = True
    fields: tuple[str, ...] = ()
    """Paths that a fieldSelector may name besides metadata.name and metadata.namespace."""
    terminating: bool = False

    @property
    def resource(self) -> str:
        """The key in the store, and the name of a custom kind's definition."""
        return qualified(self.plural, self.group)

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


_INVOLVED = ("name", "namespace", "kind", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = (*(f"involvedObject.{field}" for field in _INVOLVED), "reason", "type")

BUILT_IN = (
    Kind(
        "",
        "Namespace",
        "namespaces",
        "v1",
        {"v1": (NAME, Column("Status", "string", ".status.phase"), AGE)},
        short_names=("ns",),
        namespaced=False,
        status=True,
        name_rule="label",
        fields=("status.phase",),
    ),
    Kind(
        "",
        "Service",
        "services",
        "v1",
        {"v1": (NAME, Column("Type", "string", ".spec.type"), Column("Cluster-IP", "string", ".spec.clusterIP"), AGE)},
        short_names=("svc",),
        status=True,
        name_rule="label",
    ),
    Kind("", "ConfigMap", "configmaps", "v1", {"v1": (NAME, AGE)}, short_names=("cm",)),
    Kind(
        "",
        "Event",
        "events",
        "v1",
        {
            "v1": (
                Column("Last Seen", "date", ".lastTimestamp"),
                Column("Type", "string", ".type"),
                Column("Reason", "string", ".reason"),
                Column("Object", "string", ".involvedObject.name"),
                Column("Message", "string", ".message"),
            )
        },
        short_names=("ev",),
        fields=_EVENT_FIELDS,
    ),
    Kind(
        "coordination.k8s.io",
        "Lease",
        "leases",
        "v1",
        {"v1": (NAME, Column("Holder", "string", ".spec.holderIdentity"), AGE)},
        unconditional_update=False,
    ),
    Kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "v1",
        {"v1": (NAME, Column("Created At", "string", ".metadata.creationTimestamp"))},
        short_names=("crd", "crds"),
        namespaced=False,
        status=True,
        unconditional_update=False,
    ),
)
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
NAMESPACES = "namespaces"
CONFIG_MAPS = "configmaps"


def kind_of_definition(definition: Obj) -> Kind:
    """Read a CustomResourceDefinition (v1); raises KeyError where a required field is missing."""
    spec = definition["spec"]
    names = spec["names"]
    served = [version for version in spec["versions"] if version["served"]]
    stored = next(version for version in spec["versions"] if version["storage"])
    return Kind(
        spec["group"],
        names["kind"],
        names["plural"],
        stored["name"],
        {version["name"]: _columns(version) for version in served},
        short_names=tuple(names.get("shortNames", ())),
        namespaced=spec["scope"] == "Namespaced",
        status="status" in stored.get("subresources", {}),
        custom=True,
        unconditional_update=False,
        terminating="deletionTimestamp" in definition.get("metadata", {}),
    )


def _columns(version: Obj) -> tuple[Column, ...]:
    given = version.get("additionalPrinterColumns")
    if not given:
        return (NAME, AGE)
    return (NAME, *(Column(column["name"], column["type"], column["jsonPath"]) for column in given))


def definition(kind: str, versions: dict[str, list[Obj]], short_names: list[str], group: str = KSERVE_GROUP) -> Obj:
    """Write a CustomResourceDefinition that keeps unknown fields and has a status; it stores the last version."""
    plural = kind.lower() + "s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    entries = [
        {
            "name": name,
            "served": True,
            "storage": name == list(versions)[-1],
            "schema": schema,
            "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
        }
        for name, columns in versions.items()
    ]
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": short_names}
    names["listKind"] = kind + "List"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": entries},
    }


def _column(name: str, path: str, type_: str = "string") -> Obj:
    return {"name": name, "type": type_, "jsonPath": path}


_READY = "[?(@.type=='Ready')]"
_TRAFFIC = ".status.components.predictor.traffic"
_ISVC_COLUMNS = [
    _column("URL", ".status.url"),
    _column("Ready", f".status.conditions{_READY}.status"),
    _column("Prev", f"{_TRAFFIC}[?(@.tag=='prev')].percent", "integer"),
    _column("Latest", f"{_TRAFFIC}[?(@.latestRevision==true)].percent", "integer"),
    _column("PrevRolledoutRevision", f"{_TRAFFIC}[?(@.tag=='prev')].revisionName"),
    _column("LatestReadyRevision", f"{_TRAFFIC}[?(@.latestRevision==true)].revisionName"),
    _column("Age", ".metadata.creationTimestamp", "date"),
]
_LLM_COLUMNS = [
    _column("URL", ".status.url"),
    _column("Ready", f".status.conditions{_READY}.status"),
    _column("Reason", f".status.conditions{_READY}.reason"),
    _column("Age", ".metadata.creationTimestamp", "date"),
]
KSERVE_CRDS = (
    definition("InferenceService", {"v1beta1": _ISVC_COLUMNS}, ["isvc"]),
    definition("LLMInferenceService", {"v1alpha1": _LLM_COLUMNS, "v1alpha2": _LLM_COLUMNS}, ["llmisvc"]),
)
