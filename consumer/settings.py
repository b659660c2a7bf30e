"""Settings of the consumer, read once from the environment; README's table is made from these."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shared.broker import BrokerSettings
from shared.cluster import ClusterSettings
from shared.health import HealthSettings
from shared.logs import LogSettings
from shared.naming import NamingSettings
from shared.settings import READABLE
from shared.telemetry import TelemetrySettings

ENVIRONMENT_FIELDS = ("{namespace}", "{cluster}")


def _registry_address(address: str) -> None:
    url = urlsplit(address)
    if url.scheme not in {"http", "https"} or not url.hostname or any(map(str.isspace, address)):
        raise ValueError("must begin with http:// or https:// and a host")
    if url.username or url.password or url.query or url.fragment:
        raise ValueError("must hold no credentials, query or fragment; a token comes by REGISTRY_TOKEN_FILE")
    try:
        port = url.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("has a port that is none")


def _environment_template(template: str) -> None:
    for field in ENVIRONMENT_FIELDS:
        template = template.replace(field, "")
    if "{" in template or "}" in template:
        raise ValueError("may hold {namespace} and {cluster}, and no other braces")


class RegistrySettings(Struct, frozen=True, kw_only=True):
    """Which registry, and how records are named in it."""

    registry_url: Annotated[
        str, Meta(description="Address of Model Registry, port and path allowed", extra={"check": _registry_address})
    ]
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


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """All settings of the consumer."""

    naming: NamingSettings
    registry: RegistrySettings
    write_back: WriteBackSettings
    broker: BrokerSettings
    cluster: ClusterSettings
    health: HealthSettings
    logs: LogSettings
    telemetry: TelemetrySettings
