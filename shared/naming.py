"""The settings that producer and consumer must be given alike."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from shared.objects import Kind
from shared.reduce import REGISTRY_PREFIXES, known_prefixes


class NamingSettings(Struct, frozen=True, kw_only=True):
    """What the cluster is called, how our labels are, and which versions of KServe's API are spoken."""

    cluster_name: Annotated[
        str,
        Meta(pattern=r"^\S{1,63}$", description="Name of the cluster for people, in subjects and records"),
    ]
    label_prefix: Annotated[
        str, Meta(pattern=r"^[a-z0-9.-]+/$", description="Prefix of our labels, modelregistry.opendatahub.io/ on ODH")
    ] = REGISTRY_PREFIXES[0]
    # KServe stores v1alpha2 since it has it, and serves v1alpha1 by converting. The stored version needs no conversion:
    # it can be read while KServe's webhook is down, and a patch through it cannot lose what v1alpha1 has no field for.
    llmisvc_api_version: Annotated[
        Literal["v1alpha1", "v1alpha2"],
        Meta(description="Version of the API under which LLMInferenceServices are read and patched"),
    ] = "v1alpha2"

    @property
    def prefixes(self) -> tuple[str, ...]:
        """All prefixes under which labels of ours may be found, the configured one first."""
        return known_prefixes(self.label_prefix)

    def api_version(self, kind: Kind) -> str:
        """Return group and version under which the API server is asked for objects of a kind."""
        version = {Kind.ISVC: "v1beta1", Kind.LLMISVC: self.llmisvc_api_version}[kind]
        return f"serving.kserve.io/{version}"
