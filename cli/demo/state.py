"""What the demo knows: lives of objects, records of the registry, and what a record should say. Pure.

The expectations are worked out here a second time, from the objects as the cluster shows them, on purpose without
the consumer's code: a check that asks the accused proves nothing.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from shared.objects import ObjectKey

PREFIX: Final = "modelregistry.kubeflow.org/"
MODEL_LABEL: Final = f"{PREFIX}registered-model-id"
VERSION_LABEL: Final = f"{PREFIX}model-version-id"
ID_LABEL: Final = f"{PREFIX}inference-service-id"
STOP_ANNOTATION: Final = "serving.kserve.io/stop"
MODE_ANNOTATION: Final = "serving.kserve.io/deploymentMode"


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """An InferenceService of the registry, as its API answers."""

    id: str
    name: str
    external_id: str = ""
    serving_environment_id: str = ""
    registered_model_id: str = ""
    model_version_id: str = ""
    runtime: str = ""
    desired_state: str = ""
    create_time_since_epoch: str = "0"
    last_update_time_since_epoch: str = "0"
    custom_properties: dict[str, Any] = {}

    @property
    def uid(self) -> str:
        """The uid of its object, from the external id `kserve:<uid>/<model id>`."""
        return self.external_id.removeprefix("kserve:").partition("/")[0]

    @property
    def url(self) -> str:
        return str(self.custom_properties.get("url", {}).get("string_value", ""))

    @property
    def created_ms(self) -> int:
        return int(self.create_time_since_epoch)

    @property
    def updated_ms(self) -> int:
        return int(self.last_update_time_since_epoch)


class Named(msgspec.Struct, frozen=True, rename="camel"):
    """A model, version or environment of the registry; `registered_model_id` is set on versions only."""

    id: str
    name: str
    registered_model_id: str = ""


class Change(msgspec.Struct, frozen=True):
    """A request of ours whose effect on the record is timed: when it was sent, and when the record shows it.

    Both are milliseconds since the epoch, the second is the registry's own; None: not yet.
    """

    sent_ms: int
    shown_ms: Callable[[Record], int | None]


class Life(msgspec.Struct):
    """One life of an object, from its create to its end; a re-created object begins another one.

    `obj` is the object as it was last seen. `unwatched`: it was deleted while no producer ran.
    """

    key: ObjectKey
    shape: str
    uid: str
    obj: dict[str, Any]
    gone: bool = False
    unwatched: bool = False
    change: Change | None = None
    latency_ms: int | None = None

    @property
    def name(self) -> str:
        return f"{self.key.namespace}/{self.key.name}"

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.obj.get("status") or {}
        return status

    @property
    def lives(self) -> bool:
        return not self.gone and "deletionTimestamp" not in self.obj["metadata"]

    @property
    def ready(self) -> str:
        """The condition Ready: True, False or Unknown; empty before the first status."""
        conditions = self.status.get("conditions") or []
        return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")

    @property
    def mode(self) -> str:
        """The deployment mode; an LLMInferenceService has none."""
        return str(self.status.get("deploymentMode") or self.annotation(MODE_ANNOTATION) or "-")

    @property
    def stopped(self) -> bool:
        return self.annotation(STOP_ANNOTATION) == "true"

    @property
    def url(self) -> str:
        addresses = [*(self.status.get("addresses") or []), self.status.get("address") or {}]
        urls = [self.status.get("url"), *(address.get("url") for address in addresses)]
        return next((str(url) for url in urls if url), "")

    @property
    def runtime(self) -> str:
        """The runtime by name, else the one that KServe chose."""
        model = (self.obj["spec"].get("predictor") or {}).get("model") or {}
        chosen = self.status.get("clusterServingRuntimeName") or self.status.get("servingRuntimeName")
        return str(model.get("runtime") or chosen or "")

    def label(self, name: str) -> str | None:
        return (self.obj["metadata"].get("labels") or {}).get(name)

    def annotation(self, name: str) -> str | None:
        return (self.obj["metadata"].get("annotations") or {}).get(name)


class Seen(msgspec.Struct, frozen=True):
    """Cluster and registry at one moment. `versions` and `models` are by id."""

    lives: tuple[Life, ...] = ()
    records: tuple[Record, ...] = ()
    environments: tuple[Named, ...] = ()
    models: dict[str, Named] = {}
    versions: dict[str, Named] = {}

    def records_of(self, life: Life) -> list[Record]:
        return [record for record in self.records if record.uid == life.uid]

    def indexed(self) -> list[Life]:
        """Return the lives that must have a record: labelled with a model that exists."""
        return [life for life in self.lives if life.label(MODEL_LABEL) in self.models]

    def life(self, name: str) -> Life:
        """Return the latest life of an object, `namespace/name`."""
        return next(life for life in reversed(self.lives) if life.name == name)


class Expected(msgspec.Struct, frozen=True):
    """What the record of an indexed object must say."""

    model: str
    version: str
    state: str
    url: str
    runtime: str
    environment: str


def expected(life: Life, seen: Seen) -> Expected:
    """Work out what the record must say, from the object as it was last seen."""
    model = life.label(MODEL_LABEL) or ""
    version = seen.versions.get(life.label(VERSION_LABEL) or "")
    return Expected(
        model=model,
        version=version.id if version is not None and version.registered_model_id == model else "",
        state="DEPLOYED" if life.lives and not life.stopped else "UNDEPLOYED",
        url=life.url,
        runtime=life.runtime,
        environment=life.key.namespace,
    )


def deferral(life: Life) -> str | None:
    """Say why the id may be kept off this object for now; None: there is no reason."""
    if life.mode == "Knative":
        return "Knative: a new label makes a new revision"
    if life.url and not life.stopped:
        return "it serves: a new label replaces its pods"
    return None
