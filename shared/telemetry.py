"""Traces and metrics: one `Telemetry` per process, made at start, handed to those who need it, shut down last.

Metrics are always kept for `/metrics`; traces leave the process only when OTEL_EXPORTER_OTLP_ENDPOINT is set. The other
OTEL_* variables are the SDK's own (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED, ...).

A trace runs from the watch event to the patch: its context travels in the message's headers (W3C, lower case).
"""

import platform
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Annotated

from msgspec import Meta, Struct
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

# A collector that is away must not hold up our end: with the SDK's defaults its shutdown takes 7 to 30 s.
_EXPORT_TIMEOUT_S = 1.0
_EXPORT_QUEUE = 512
_EXPORT_BATCH = 256
# The semantic conventions' list for durations in seconds; the SDK's default buckets are for milliseconds.
_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
_SYNC_SECONDS = [*_SECONDS, 30, 60, 300, 900, 3600]  # a registry may be down for hours

_propagator = TraceContextTextMapPropagator()


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """Where traces go."""

    otel_exporter_otlp_endpoint: Annotated[
        str | None, Meta(description="OTLP/HTTP collector for traces, such as http://collector:4318; unset: no traces")
    ] = None


class Metrics:
    """The instruments of a process. Labels are named beside each; none holds a name or namespace of an object."""

    def __init__(self, meter: Meter) -> None:
        # by OpenTelemetry's conventions for messaging
        self.sent_messages = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages sent to NATS, by operation and error.type"
        )
        self.consumed_messages = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages received from NATS"
        )
        self.operation_duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of a send, receive or settle",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.process_duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of handling one message",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        # our own
        self.watch_connected = meter.create_gauge(
            "isvc_sync_watch_connected", "", "1 while the watch of `kind` is open"
        )
        self.watch_restarts = meter.create_counter("isvc_sync_watch_restarts", "", "Watches opened again, by `reason`")
        self.relist_synthetic_events = meter.create_counter(
            "isvc_sync_relist_synthetic_events", "", "Events found by comparing a list with the inventory, by `type`"
        )
        self.watch_missed = meter.create_counter(
            "isvc_sync_watch_missed", "", "Changes that the watch should have told and has not, by `type`"
        )
        self.objects = meter.create_gauge("isvc_sync_objects", "", "Objects by `state`")
        self.events = meter.create_counter(
            "isvc_sync_events", "", "Events by `result`: applied, stale, duplicate, noop, dead, retry, held"
        )
        self.sync_latency = meter.create_histogram(
            "isvc_sync_sync_latency",
            "s",
            "From the change as seen by the producer to the write in the registry",
            explicit_bucket_boundaries_advisory=_SYNC_SECONDS,
        )
        self.registry_requests = meter.create_counter(
            "isvc_sync_registry_requests", "", "Requests to the registry, by `method` and `code`"
        )
        self.registry_circuit = meter.create_gauge(
            "isvc_sync_registry_circuit", "", "1 for the `state` of a `registry`'s circuit: closed, open or half-open"
        )
        self.writeback = meter.create_counter(
            "isvc_sync_writeback", "", "Write-backs to the object, by `result`: patched, deferred, limited, gone"
        )
        self.notices = meter.create_counter(
            "isvc_sync_notices", "", "Kubernetes Events for owners, by `result`: posted, counted, limited, failed"
        )
        self.dead_letters = meter.create_gauge("isvc_sync_dead_letters", "", "Dead letters that wait for a person")
        self.drift_objects = meter.create_gauge("isvc_sync_drift_objects", "", "Objects that differ from their record")
        self.shards_owned = meter.create_gauge("isvc_sync_shards_owned", "", "Shards that this consumer owns")
        self.shard_takeovers = meter.create_counter(
            "isvc_sync_shard_takeovers", "", "Shards taken, by `how`: clean, unclean (from an owner that died)"
        )
        self.fences_lost = meter.create_counter(
            "isvc_sync_fences_lost", "", "Shards lost without being given away, by `reason`: expired, taken, failed"
        )
        self.leader = meter.create_gauge("isvc_sync_leader", "", "1 while this process holds the lease")
        self.live_ticks = meter.create_counter("isvc_sync_live_ticks", "", "Rises every second while the loop runs")
        self.broker_events = meter.create_counter(
            "isvc_sync_broker_events", "", "Troubles of the NATS connection, by `event`"
        )
        self.build_info = meter.create_gauge("isvc_sync_build_info", "", "Always 1; labels `version`, `python`, `role`")
        self._meter = meter

    def observe_watch_age(self, age_s: Callable[[], float | None]) -> None:
        """Show the seconds since the last watch event; `age_s` runs in another thread. None: nothing to show."""

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            value = age_s()
            return [] if value is None else [Observation(value)]

        self._meter.create_observable_gauge(
            "isvc_sync_watch_last_event_age", [observe], "s", "Seconds since the last event of the watch"
        )


class Telemetry:
    """Tracer and instruments of this process."""

    def __init__(self, settings: TelemetrySettings, *, role: str) -> None:
        resource = _resource(role)
        self._registry = CollectorRegistry()
        self._scrape_lock = threading.Lock()  # the exporter's collector is not made for two scrapes at once
        # No scope labels: all instruments have the same scope, and it is called as the prefix says.
        reader = PrometheusMetricReader(registry=self._registry, scope_info_enabled=False)
        # shutdown_on_exit would wait for a dead collector once more when the interpreter ends
        self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        if settings.otel_exporter_otlp_endpoint is not None:
            self._tracers.add_span_processor(_processor(settings.otel_exporter_otlp_endpoint))
        self.tracer = self._tracers.get_tracer("isvc-sync", version("isvc-sync"))
        self.metrics = Metrics(self._meters.get_meter("isvc-sync", version("isvc-sync")))
        self.metrics.build_info.set(
            1, {"version": version("isvc-sync"), "python": platform.python_version(), "role": role}
        )

    def scrape(self) -> tuple[str, bytes]:
        """Return content type and body for Prometheus."""
        with self._scrape_lock:
            return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)

    def shutdown(self, deadline_s: float = 2.0) -> bool:
        """Send what is buffered, for `deadline_s` at most; False when that was not enough. Blocks: not for the loop."""
        thread = threading.Thread(target=self._shutdown, name="telemetry shutdown", daemon=True)
        thread.start()
        thread.join(deadline_s)
        return not thread.is_alive()

    def _shutdown(self) -> None:
        self._tracers.shutdown()
        self._meters.shutdown()


def inject(headers: dict[str, str], context: Context | None = None) -> None:
    """Write the current span (or that of `context`) into a message's headers as `traceparent`, `tracestate`."""
    _propagator.inject(headers, context)


def extract(headers: Mapping[str, str] | None) -> Context:
    """Return the context that a message's headers name, in whatever case; an empty one when they name none."""
    lower = {key.lower(): value for key, value in (headers or {}).items()}
    return _propagator.extract(lower)


def _processor(endpoint: str) -> BatchSpanProcessor:
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT_S)
    return BatchSpanProcessor(exporter, max_queue_size=_EXPORT_QUEUE, max_export_batch_size=_EXPORT_BATCH)


def _resource(role: str) -> Resource:
    """Describe the process; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME have the last word."""
    ours = Resource.create(
        {
            "service.name": f"isvc-sync-{role}",
            "service.namespace": "isvc-sync",
            "service.version": version("isvc-sync"),
            "service.instance.id": str(uuid.uuid4()),
        }
    )
    return ours.merge(OTELResourceDetector().detect())
