"""What the producer counts, bound to the instruments of `shared/telemetry.py`. Reads and writes plain values only."""

from collections.abc import Callable

from producer.items import Watched
from producer.outbox import TEMPLATE
from shared.objects import Kind
from shared.telemetry import Metrics

_MESSAGING = {
    "messaging.system": "nats",
    "messaging.operation.name": "publish",
    "messaging.destination.template": TEMPLATE,
}


class ProducerMetrics:
    """Also the publisher's observer."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._open: dict[Watched, bool] = {}

    def sent(self, duration_s: float) -> None:
        self._metrics.sent_messages.add(1, _MESSAGING)
        self._metrics.operation_duration.record(duration_s, _MESSAGING)

    def refused(self, code: str) -> None:
        self._metrics.sent_messages.add(1, {**_MESSAGING, "error.type": code})

    def connected(self, watched: Watched, *, connected: bool) -> None:
        """Show a kind as connected while all its watches are."""
        self._open[watched] = connected
        every = all(is_open for each, is_open in self._open.items() if each.kind == watched.kind)
        self._metrics.watch_connected.set(int(every), {"kind": watched.kind})

    def trouble(self, watched: Watched, reason: str) -> None:
        self._metrics.watch_restarts.add(1, {"kind": watched.kind, "reason": reason})

    def missed(self, kind: Kind, what: str, count: int) -> None:
        self._metrics.watch_missed.add(count, {"kind": kind, "type": what})

    def synthetic(self, kind: Kind, what: str) -> None:
        self._metrics.relist_synthetic_events.add(1, {"kind": kind, "type": what})

    def objects(self, kind: Kind, state: str, count: int) -> None:
        self._metrics.objects.set(count, {"kind": kind, "state": state})

    def leader(self, *, leads: bool) -> None:
        self._metrics.leader.set(int(leads))

    def tick(self) -> None:
        self._metrics.live_ticks.add(1)

    def broker_event(self, event: str) -> None:
        self._metrics.broker_events.add(1, {"event": event})

    def watch_age(self, age_s: Callable[[], float | None]) -> None:
        self._metrics.observe_watch_age(age_s)
