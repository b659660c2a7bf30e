"""The producer's settings. README's table is made from them (`shared.settings.describe`)."""

from typing import Annotated

from msgspec import Meta, Struct

from shared.broker import BrokerSettings
from shared.cluster import ClusterSettings
from shared.health import HealthSettings
from shared.logs import LogSettings
from shared.naming import NamingSettings
from shared.objects import Kind
from shared.telemetry import TelemetrySettings


class LeaseSettings(Struct, frozen=True, kw_only=True):
    """The leader election. The defaults are those of Kubernetes' own components, whose reasons hold here, too.

    Renewed every 2 s, a Lease survives several lost calls in the 10 s until the leader gives up by itself; the 5 s
    until another may take it are for what is under way then, and for clocks that do not run alike.
    """

    leader_election: Annotated[
        bool | None,
        Meta(description="Whether producers elect a leader; unset: in a pod, or when LEASE_NAMESPACE is set"),
    ] = None
    lease_namespace: Annotated[str | None, Meta(description="Namespace of the Lease; unset: the pod's own")] = None
    lease_name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
            description="Name of the Lease; each installation in a namespace needs its own, and the right to it",
        ),
    ] = "isvc-sync-producer"
    lease_duration_s: Annotated[
        int, Meta(ge=1, description="A leader that has not renewed the Lease for so many seconds is replaced")
    ] = 15
    lease_renew_deadline_s: Annotated[
        float, Meta(gt=0, description="A leader that could not renew for so many seconds stops publishing")
    ] = 10.0
    lease_retry_period_s: Annotated[
        float, Meta(gt=0, description="Seconds between two renewals, and between two looks of a follower")
    ] = 2.0
    pod_name: Annotated[
        str | None,
        Meta(description="Whose Lease it is, unlike in any other process; unset: the host's name and a random part"),
    ] = None


def _label_selector(selector: str) -> None:
    """Refuse what is surely no label selector; the API server judges the rest. Raises ValueError."""
    if selector.startswith("{") or ":" in selector:
        raise ValueError("must be a label selector as kubectl takes it, such as team=fraud,stage!=test")


class SelectionSettings(Struct, frozen=True, kw_only=True):
    """Which objects are published; of all others, nothing leaves the cluster."""

    namespaces: Annotated[
        tuple[str, ...],
        Meta(description="Namespaces to watch, one by one, with rights in these only; unset: all"),
    ] = ()
    namespace_selector: Annotated[
        str,
        Meta(
            description="Label selector for namespaces to watch; not with NAMESPACES",
            extra={"check": _label_selector},
        ),
    ] = ""
    object_selector: Annotated[
        str,
        Meta(
            description="Label selector for objects. One that stops matching is not deleted: it stays as last seen",
            extra={"check": _label_selector},
        ),
    ] = ""


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """All that the producer reads from its environment. The naming must be the consumer's, too."""

    naming: NamingSettings
    kinds: Annotated[
        tuple[Kind, ...],
        Meta(description="Kinds to watch: isvc (InferenceService), llmisvc (LLMInferenceService)"),
    ] = tuple(Kind)
    selection: SelectionSettings = SelectionSettings()
    audit_interval_s: Annotated[
        int,
        Meta(ge=1, description="Seconds, give or take a third, between lists that show whether the watch tells all"),
    ] = 2700
    forget_after_s: Annotated[
        int, Meta(ge=10, description="Seconds after which a delete that all consumers have taken leaves the stream")
    ] = 7 * 24 * 3600
    broker: BrokerSettings = BrokerSettings()
    cluster: ClusterSettings = ClusterSettings()
    lease: LeaseSettings = LeaseSettings()
    health: HealthSettings = HealthSettings()
    logs: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
