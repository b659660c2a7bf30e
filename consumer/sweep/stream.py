"""The event stream as the sweep uses it: the inventory with bodies, the sync markers, and where looks go.

And whose stream it is, which a consumer asks again when it meets an event of another cluster.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import nats.js.errors

from consumer import looks
from consumer.looks import RecordRef
from shared import events
from shared.broker import Broker
from shared.broker_errors import translated
from shared.errors import BadEventError
from shared.events import SyncMarker
from shared.inventory import InventoryReader, StreamState, Told
from shared.objects import Kind, ObjectKey
from shared.startup import require_own_cluster
from shared.subjects import Subjects

logger = logging.getLogger(__name__)


class SweptStream:
    """Implements `survey.Inventory` and `sweeping.Looks`, for the cluster of that id."""

    def __init__(self, broker: Broker, subjects: Subjects, stream: str, cluster_id: str) -> None:
        self._broker = broker
        self._subjects = subjects
        self._stream = stream
        self._cluster_id = cluster_id
        self._reader = InventoryReader(broker.client, broker.jetstream, stream, subjects)

    async def state(self) -> StreamState:
        return await self._reader.state()

    async def marker(self, kind: Kind) -> SyncMarker | None:
        """Return the sync marker of a kind; None when the stream holds none that is ours and can be read."""
        try:
            found = await self._reader.marker(kind)
        except BadEventError as error:
            logger.warning("the sync marker cannot be read", extra={"kind": kind, "error": str(error)})
            return None
        return found[1] if found is not None and found[0] == self._cluster_id else None

    async def last_events(self, kind: Kind) -> AsyncGenerator[Told, None]:
        async with aclosing(self._reader.last_events(kind, bodies=True)) as told:
            async for each in told:
                yield each

    async def look(self, key: ObjectKey, refs: Sequence[RecordRef]) -> None:
        # Without a message id: the dedupe window must not swallow a second look.
        with translated(f"asking for a look at {key}"):
            await self._broker.jetstream.publish(
                self._subjects.look(key), b"", stream=self._stream, headers=looks.encode(refs) or None
            )


async def require_still_ours(broker: Broker, stream: str, subjects: Subjects, cluster_id: str) -> None:
    """Make sure that an event of another cluster is a stray in our stream, and not ours a stray in theirs.

    The start-up check believes the last event, and that is the one in question. So those who vouch for a stream are
    asked first: the sync markers, or the first event where there is none yet. Raises as `require_own_cluster`.
    """
    vouching = {found for kind in Kind if (found := await _cluster_id(broker, stream, subjects.sync(kind))) is not None}
    if not vouching:
        firsts = [await _cluster_id(broker, stream, subjects.all_events(kind), first=True) for kind in Kind]
        vouching = {each for each in firsts if each is not None}
    if vouching != {cluster_id}:
        await require_own_cluster(broker, stream, subjects, cluster_id)


async def _cluster_id(broker: Broker, stream: str, subject: str, *, first: bool = False) -> str | None:
    """Return the cluster id that the last message of a subject comes from, or the first; None where there is none."""
    which: dict[str, Any] = {"seq": 1, "next": True} if first else {}
    with translated(f"reading whose {subject} is"):
        try:
            message = await broker.jetstream.get_msg(stream, subject=subject, **which)
        except nats.js.errors.NotFoundError:
            return None
    return events.cluster_id_of(message.headers)
