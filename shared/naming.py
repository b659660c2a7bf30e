"""The settings that producer and consumer must be given alike."""

from typing import Annotated

from msgspec import Meta, Struct

from shared.reduce import REGISTRY_PREFIXES, known_prefixes


class NamingSettings(Struct, frozen=True, kw_only=True):
    """What the cluster is called, and how our labels are."""

    cluster_name: Annotated[
        str,
        Meta(pattern=r"^\S{1,63}$", description="Name of the cluster for people, in subjects and records"),
    ]
    label_prefix: Annotated[
        str, Meta(pattern=r"^[a-z0-9.-]+/$", description="Prefix of our labels, modelregistry.opendatahub.io/ on ODH")
    ] = REGISTRY_PREFIXES[0]

    @property
    def prefixes(self) -> tuple[str, ...]:
        """All prefixes under which labels of ours may be found, the configured one first."""
        return known_prefixes(self.label_prefix)
