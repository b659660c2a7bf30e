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


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """All that the producer reads from its environment. The naming must be the consumer's, too."""

    naming: NamingSettings
    kinds: Annotated[
        tuple[Kind, ...],
        Meta(description="Kinds to watch: isvc (InferenceService), llmisvc (LLMInferenceService)"),
    ] = tuple(Kind)
    broker: BrokerSettings = BrokerSettings()
    cluster: ClusterSettings = ClusterSettings()
    health: HealthSettings = HealthSettings()
    logs: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
