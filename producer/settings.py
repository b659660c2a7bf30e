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


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """All that the producer reads from its environment. The naming must be the consumer's, too."""

    naming: NamingSettings
    kinds: Annotated[
        tuple[Kind, ...],
        Meta(description="Kinds to watch: isvc (InferenceService), llmisvc (LLMInferenceService)"),
    ] = tuple(Kind)
    broker: BrokerSettings = BrokerSettings()
    cluster: ClusterSettings = ClusterSettings()
    lease: LeaseSettings = LeaseSettings()
    health: HealthSettings = HealthSettings()
    logs: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
