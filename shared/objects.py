"""The objects we follow, as both sides see them: kinds, keys, resourceVersions, and the reduced form of an object.

The producer puts the reduced form (`shared/reduce.py` makes it) into each event; the consumer decodes it into the
structs below, and reduces what it GETs itself in the same way. Everything that is not named here never enters the
broker.
"""

from enum import StrEnum
from typing import Final

import msgspec

from shared.errors import BadEventError

INT32_MAX: Final = 2**31 - 1
STOP_ANNOTATION: Final = "serving.kserve.io/stop"


class Kind(StrEnum):
    """The kinds that carry deployments; the value is the token in subjects, keys and headers."""

    ISVC = "isvc"
    LLMISVC = "llmisvc"

    @property
    def kubernetes_kind(self) -> str:
        return {Kind.ISVC: "InferenceService", Kind.LLMISVC: "LLMInferenceService"}[self]

    @property
    def plural(self) -> str:
        return self.kubernetes_kind.lower() + "s"


class ObjectKey(msgspec.Struct, frozen=True, order=True):
    """What an object is called: `<kind>/<namespace>/<name>`. Not its identity: a re-created object has another uid."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


def compare_resource_versions(a: str, b: str) -> int:
    """Return -1, 0 or 1. Raises BadEventError when one is no resourceVersion.

    Since Kubernetes 1.35 (KEP-5504) resourceVersions of one resource are decimal integers of any length that may be
    ordered; earlier servers behave alike without promising it. Compared as text, so that no length can overflow.
    """
    for value in (a, b):
        if not (value.isascii() and value.isdigit()) or value[0] == "0":
            raise BadEventError(f"resourceVersion {value[:40]!r} is not a decimal number without leading zeros")
    left, right = (len(a), a), (len(b), b)
    return (left > right) - (left < right)


def is_registry_id(text: str) -> bool:
    """Whether a label value can be an id of the registry: a decimal int32 above zero, without leading zeros.

    The registry parses int32 (`01` and `+1` would find object 1, but would be stored as other names).
    """
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= 10 and int(text) <= INT32_MAX


class Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""


class Address(msgspec.Struct, frozen=True):
    url: str = ""


class ModelStates(msgspec.Struct, frozen=True, rename="camel"):
    active_model_state: str = ""
    target_model_state: str = ""


class ModelCopies(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of the predictor. KServe leaves `total_copies` out when there are none."""

    total_copies: int = 0


class ModelStatus(msgspec.Struct, frozen=True, rename="camel"):
    transition_status: str = ""
    states: ModelStates = ModelStates()
    copies: ModelCopies | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    url: str = ""
    address: Address = Address()
    addresses: tuple[Address, ...] = ()
    conditions: tuple[Condition, ...] = ()
    deployment_mode: str = ""
    cluster_serving_runtime_name: str = ""
    serving_runtime_name: str = ""
    model_status: ModelStatus = ModelStatus()

    def condition(self, kind: str) -> Condition:
        """Return the condition of that type, or an empty one."""
        return next((c for c in self.conditions if c.type == kind), Condition(kind))


class ModelFormat(msgspec.Struct, frozen=True):
    name: str = ""
    version: str = ""


class Model(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.predictor.model`, or `spec.model` of an LLMInferenceService (which has `uri` and `name`)."""

    model_format: ModelFormat = ModelFormat()
    runtime: str = ""
    storage_uri: str = ""
    uri: str = ""


class Present(msgspec.Struct, frozen=True):
    """Something that is there; what it says does not matter to us."""


class Component(msgspec.Struct, frozen=True, rename="camel"):
    """One of predictor, transformer, explainer. With a `worker_spec` one replica is several pods."""

    model: Model = Model()
    labels: dict[str, str] = {}
    worker_spec: Present | None = None


class Labelled(msgspec.Struct, frozen=True):
    """A component of which only the labels matter."""

    labels: dict[str, str] = {}


class Canary(msgspec.Struct, frozen=True):
    """One entry of `spec.canary`: a predictor beside the stable one, with a Deployment of its own."""

    predictor: Labelled | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    predictor: Component | None = None
    transformer: Component | None = None
    explainer: Component | None = None
    canary: tuple[Canary, ...] = ()
    model: Model = Model()

    @property
    def components(self) -> tuple[Component, ...]:
        return tuple(c for c in (self.predictor, self.transformer, self.explainer) if c is not None)


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Only our own and KServe's labels and annotations; `has_annotations` counts everybody's."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    has_annotations: bool = False


class ReducedObject(msgspec.Struct, frozen=True, rename="camel"):
    """An InferenceService or LLMInferenceService without anything that decisions or people do not need."""

    kind: str
    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def is_stopped(self) -> bool:
        """Whether a person has stopped it; KServe compares without case."""
        return self.metadata.annotations.get(STOP_ANNOTATION, "").lower() == "true"
