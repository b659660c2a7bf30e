"""Settings of the consumer, read once from the environment; README's table is made from these."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from consumer.addresses import host_and_port, normal
from consumer.discovery import Rule
from shared.broker import BrokerSettings
from shared.cluster import ClusterSettings
from shared.health import HealthSettings
from shared.logs import LogSettings
from shared.naming import NamingSettings
from shared.settings import READABLE
from shared.telemetry import TelemetrySettings

ENVIRONMENT_FIELDS = ("{namespace}", "{cluster}")


def _registry_address(address: str) -> None:
    normal(address)


def _hosts(hosts: tuple[str, ...]) -> None:
    for host in hosts:
        try:
            host_and_port(host)
        except ValueError as error:
            raise ValueError(f"holds {host[:40]!r}, {error}") from None


def _rules(rules: tuple[str, ...]) -> None:
    parse_rules(rules)


def parse_rules(texts: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules of REGISTRY_RULES. Raises ValueError with the rest of a sentence."""
    rules = []
    for text in texts:
        pattern, separator, registries = (part.strip() for part in text.partition("="))
        named = tuple(_registry_name(each) for each in registries.split())
        if not pattern or not separator or not named:
            raise ValueError(f"holds {text[:40]!r}, which is not PATTERN=REGISTRY [REGISTRY ...]")
        rules.append(Rule(pattern, named))
    return tuple(rules)


def _registry_name(name: str) -> str:
    if "://" in name:
        try:
            return normal(name)
        except ValueError as error:
            raise ValueError(f"holds an address that {error}") from None
    if name.count("/") != 1 or name.startswith("/") or name.endswith("/"):
        raise ValueError(f"holds {name[:40]!r}, which is neither a Service's namespace/name nor an address")
    return name


def _environment_template(template: str) -> None:
    for field in ENVIRONMENT_FIELDS:
        template = template.replace(field, "")
    if "{" in template or "}" in template:
        raise ValueError("may hold {namespace} and {cluster}, and no other braces")


class RegistrySettings(Struct, frozen=True, kw_only=True):
    """Which registry, and how records are named in it."""

    registry_url: Annotated[
        str | None,
        Meta(
            description="Address of Model Registry, port and path allowed; unset: found in REGISTRY_NAMESPACES",
            extra={"check": _registry_address},
        ),
    ] = None
    registry_namespaces: Annotated[
        tuple[str, ...],
        Meta(description="Namespaces whose Services may be an object's registry; unset: only REGISTRY_URL is one"),
    ] = ()
    registry_allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Further hosts, with or without a port, that an object's registry annotation may name",
            extra={"check": _hosts},
        ),
    ] = ()
    registry_rules: Annotated[
        tuple[str, ...],
        Meta(
            description="Which registries a namespace's objects may use, as PATTERN=REGISTRY [REGISTRY ...], each a "
            "Service's namespace/name or an address; unset: all",
            extra={"check": _rules},
        ),
    ] = ()
    cluster_domain: Annotated[
        str, Meta(pattern=r"^[a-z0-9.-]+$", description="DNS domain of the cluster's Services")
    ] = "cluster.local"
    registry_token_file: Annotated[
        str | None,
        Meta(description="File with the bearer token for the registry; read again when it changes", extra=READABLE),
    ] = None
    registry_ca_file: Annotated[
        str | None, Meta(description="CA certificates for the registry in PEM", extra=READABLE)
    ] = None
    registry_api_version: Annotated[
        Literal["v1", "v1alpha3"] | None, Meta(description="Version of the registry's API; unset: found out")
    ] = None
    registry_in_flight: Annotated[
        int,
        # The registry is fastest with 4 to 8 requests at once, half as fast at 64, and wrong from 100 on.
        Meta(ge=1, le=32, description="Requests to the registry at once, over all consumers"),
    ] = 4
    environment_name: Annotated[
        str,
        Meta(
            description="Name of the serving environment of an object, a template of {namespace} and {cluster}",
            extra={"check": _environment_template},
        ),
    ] = "{namespace}"

    def __post_init__(self) -> None:
        """Raise ValueError where no registry could ever be found."""
        if self.registry_url is None and not self.registry_namespaces:
            raise ValueError(
                "REGISTRY_URL is not set, nor is REGISTRY_NAMESPACES: name a registry, or namespaces to find one in."
            )


class WriteBackSettings(Struct, frozen=True, kw_only=True):
    """When and where a record's id is written to the object."""

    write_back: Annotated[
        Literal["off", "free", "safe", "always"],
        Meta(
            description="Which writes are allowed: none; those that touch no pod; those that touch no serving pod; all"
        ),
    ] = "safe"
    write_back_form: Annotated[
        Literal["label", "annotation"], Meta(description="Whether the id is a label or an annotation")
    ] = "label"
    kserve_namespace: Annotated[
        str, Meta(description="Namespace of KServe, whose ConfigMap says which keys it keeps from pods")
    ] = "kserve"


class OwnershipSettings(Struct, frozen=True, kw_only=True):
    """How the consumers share the shards among themselves."""

    shard_lease_s: Annotated[
        float,
        # Renewed every quarter; a fifth is margin; and a request is given at least 1 s.
        Meta(ge=3, le=60, description="Seconds after which the shards of a consumer that died go to others"),
    ] = 10.0
    pod_name: Annotated[
        str | None,
        Meta(description="Name in the group, unlike any other consumer's; unset: the host's name and a random part"),
    ] = None


class SweepSettings(Struct, frozen=True, kw_only=True):
    """How often everything is compared."""

    sweep_interval_s: Annotated[
        float,
        # 10,000 records keep a registry busy for some seconds.
        Meta(ge=1, description="Seconds between two comparisons of all records with all objects"),
    ] = 600.0


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """All settings of the consumer."""

    naming: NamingSettings
    registry: RegistrySettings
    write_back: WriteBackSettings
    broker: BrokerSettings
    ownership: OwnershipSettings
    sweep: SweepSettings
    cluster: ClusterSettings
    health: HealthSettings
    logs: LogSettings
    telemetry: TelemetrySettings
