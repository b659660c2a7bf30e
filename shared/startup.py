"""What both processes do at start: wait for what may come, and refuse another cluster's name."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import nats.js.errors

from shared import events
from shared.broker import Broker
from shared.broker_errors import translated
from shared.errors import RefusedToStartError, TransientError
from shared.objects import Kind
from shared.subjects import Subjects

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.25
PAUSE_S_MAX: Final = 5.0


async def until_it_works(what: str, step: Callable[[], Awaitable[T]]) -> T:
    """Return what `step` returns, tried again for as long as it fails for a reason that may pass.

    A cluster, broker or registry that comes up later than we do is no reason to end. Every other error ends the start.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await step()
        except TransientError as error:
            logger.warning("start is waiting", extra={"for": what, "reason": str(error), "again_in_s": pause_s})
        await asyncio.sleep(pause_s)
        pause_s = min(PAUSE_S_MAX, pause_s * 2)


async def require_own_cluster(broker: Broker, stream: str, subjects: Subjects, cluster_id: str) -> None:
    """Make sure that nobody but our cluster publishes under our name.

    Raises RefusedToStartError with both ids and the way out; TransientError while the broker does not answer.
    """
    for subject in (*(subjects.sync(kind) for kind in Kind), *(subjects.all_events(kind) for kind in Kind)):
        with translated(f"reading the last message of {subject}"):
            try:
                message = await broker.jetstream.get_last_msg(stream, subject)
            except nats.js.errors.NotFoundError:
                continue
        found = events.cluster_id_of(message.headers)
        if found not in {None, cluster_id}:
            raise RefusedToStartError(
                f"cluster name {subjects.cluster!r} is in use on this broker by cluster id {found}, this is "
                f"{cluster_id}: choose another CLUSTER_NAME; or, if this cluster was rebuilt, purge its old events: "
                f"`nats stream purge {stream} --subject '{subjects.everything()}'`"
            )
