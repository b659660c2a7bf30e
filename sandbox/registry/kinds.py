"""The registry's kinds as data: their fields, what is required, which words their errors use.

The tables differ in small ways that clients meet (one message says "inference service", another "InferenceService"; one
409 shows the stored name, the others the plain one), so they are written down instead of derived.
"""

from typing import Literal

import msgspec

FieldType = Literal["string", "id", "state", "strings", "properties"]
Table = Literal["Context", "Execution", "Artifact"]


class Kind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One kind of record."""

    collection: str
    """Plural path segment; also the key in dumps and seeds."""
    label: str
    plural: str
    go_name: str
    """Name of its type in messages of the JSON decoder."""
    none_by_id: str
    """The words after "no" when an id has no record."""
    none_found: str
    """The words after "no" when a find has no result."""
    table: Table = "Context"
    """Ids and the two unique keys (name within the kind, externalId across kinds) belong to a table."""
    fields: dict[str, FieldType]
    """Changeable by PATCH; `externalId` and `customProperties` included."""
    create_only: dict[str, FieldType] = {}
    required: tuple[str, ...] = ()
    state: str | None = None
    state_type: str = ""
    states: tuple[str, ...] = ()
    """The first one is the default, on create and on PATCH alike."""
    parent: str | None = None
    """Field that holds the parent's id; its text becomes the prefix of the stored name."""
    owner: str | None = None
    """Collection of a parent that is known from the path only."""
    conflict_shows_prefix: bool = False

    @property
    def is_child(self) -> bool:
        return self.parent is not None or self.owner is not None

    @property
    def creatable(self) -> dict[str, FieldType]:
        return {"name": "string", **self.fields, **self.create_only}


def _fields(**more: FieldType) -> dict[str, FieldType]:
    return {"customProperties": "properties", "description": "string", "externalId": "string", **more}


REGISTERED_MODEL = Kind(
    collection="registered_models",
    label="registered model",
    plural="registered models",
    go_name="RegisteredModel",
    none_by_id="registered model",
    none_found="registered models",
    fields=_fields(
        state="state",
        owner="string",
        readme="string",
        maturity="string",
        language="strings",
        tasks="strings",
        provider="string",
        logo="string",
        license="string",
        licenseLink="string",
        libraryName="string",
    ),
    required=("name",),
    state="state",
    state_type="RegisteredModelState",
    states=("LIVE", "ARCHIVED"),
)

MODEL_VERSION = Kind(
    collection="model_versions",
    label="model version",
    plural="model versions",
    go_name="ModelVersion",
    none_by_id="model version",
    none_found="model versions",
    fields=_fields(state="state", author="string"),
    create_only={"registeredModelId": "id"},
    required=("name", "registeredModelId"),
    state="state",
    state_type="ModelVersionState",
    states=("LIVE", "ARCHIVED"),
    parent="registeredModelId",
)

SERVING_ENVIRONMENT = Kind(
    collection="serving_environments",
    label="serving environment",
    plural="serving environments",
    go_name="ServingEnvironment",
    none_by_id="serving environment",
    none_found="serving environment",
    fields=_fields(),
    required=("name",),
)

INFERENCE_SERVICE = Kind(
    collection="inference_services",
    label="inference service",
    plural="inference services",
    go_name="InferenceService",
    none_by_id="InferenceService",
    none_found="inference service",
    fields=_fields(modelVersionId="id", runtime="string", desiredState="state"),
    create_only={"registeredModelId": "id", "servingEnvironmentId": "id"},
    required=("registeredModelId", "servingEnvironmentId"),
    state="desiredState",
    state_type="InferenceServiceState",
    states=("DEPLOYED", "UNDEPLOYED"),
    parent="servingEnvironmentId",
    conflict_shows_prefix=True,
)

SERVE_MODEL = Kind(
    collection="serve_models",
    label="serve model",
    plural="serve models",
    go_name="ServeModel",
    none_by_id="serve model",
    none_found="serve models",
    table="Execution",
    fields=_fields(lastKnownState="state"),
    create_only={"modelVersionId": "id"},
    required=("modelVersionId",),
    state="lastKnownState",
    state_type="ExecutionState",
    states=("UNKNOWN", "NEW", "RUNNING", "COMPLETE", "FAILED", "CACHED", "CANCELED"),
    owner="inference_services",
)

MODEL_ARTIFACT = Kind(
    collection="model_artifacts",
    label="model artifact",
    plural="model artifacts",
    go_name="ModelArtifact",
    none_by_id="model artifact",
    none_found="model artifacts",
    table="Artifact",
    fields=_fields(
        artifactType="string",
        modelFormatName="string",
        modelFormatVersion="string",
        modelSourceClass="string",
        modelSourceGroup="string",
        modelSourceId="string",
        modelSourceKind="string",
        modelSourceName="string",
        serviceAccountName="string",
        storageKey="string",
        storagePath="string",
        uri="string",
        state="state",
    ),
    state="state",
    state_type="ArtifactState",
    states=("UNKNOWN", "PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE"),
    owner="model_versions",
)

KINDS = (
    REGISTERED_MODEL,
    MODEL_VERSION,
    SERVING_ENVIRONMENT,
    INFERENCE_SERVICE,
    SERVE_MODEL,
    MODEL_ARTIFACT,
)
BY_COLLECTION = {kind.collection: kind for kind in KINDS}
