"""The span around the handling of one message, so that one trace runs from the watch event to the patch.

Child of the producer's span at the first try; later tries begin a trace of their own and link to it, because a registry
that is down for hours would grow old traces for hours.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from opentelemetry.trace import Link, SpanKind, Tracer, get_current_span

from consumer.delivery.work import Work
from consumer.verdict import Verdict
from shared.telemetry import extract

TEMPLATE: Final = "isvc.{cluster}.evt.{shard}.{kind}.{namespace}.{name}"

Handle = Callable[[Work], Awaitable[Verdict]]


def traced(tracer: Tracer, handle: Handle) -> Handle:
    """Return `handle` in a span. There is no name for NATS in the semantic conventions: `nats` is what others use."""

    async def process(work: Work) -> Verdict:
        origin = extract(work.message.headers)
        creation = get_current_span(origin).get_span_context()
        first = work.attempt == 1 and work.message.num_delivered <= 1
        attributes: dict[str, str | int] = {
            "messaging.system": "nats",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.template": TEMPLATE,
            "messaging.destination.name": work.message.subject,
            "messaging.nats.stream_sequence": work.message.sequence,
            "messaging.nats.num_delivered": work.message.num_delivered,
        }
        with tracer.start_as_current_span(
            f"process {TEMPLATE}",
            context=origin if first else None,
            kind=SpanKind.CONSUMER,
            links=[] if first or not creation.is_valid else [Link(creation)],
            attributes=attributes,
        ) as span:
            decision = await handle(work)
            span.set_attribute("isvc_sync.verdict", type(decision).__name__)
            return decision

    return process
