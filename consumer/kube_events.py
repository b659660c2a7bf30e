"""Kubernetes Events on the objects: what `notices.py` decides to tell their owners, written beside the handling.

`tell` returns at once; a task of its own writes. An Event is a courtesy: whatever goes wrong with one is logged once,
and holds up nothing. They are of the older kind, core/v1, whose count and two times `kubectl describe` shows as
`3m (x5 over 12m)`. Two consumers that own an object one after the other write one Event each.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec

from consumer.notices import About, Ledger, Notice, Told, Writing
from consumer.requests.exchange import Exchanger, Outgoing
from shared.errors import ConflictError, IsvcSyncError, NotFoundError, TransientError
from shared.kubernetes_errors import raise_for
from shared.objects import Kind

logger = logging.getLogger(__name__)

COMPONENT: Final = "isvc-sync-consumer"

OnResult = Callable[[str], None]
"""Told of each notice: posted, counted, limited or failed."""


class EventsApi:
    """Writes Events; `api_version` says under which group and version a kind is known."""

    def __init__(self, exchanger: Exchanger, api_version: Callable[[Kind], str]) -> None:
        self._exchanger = exchanger
        self._api_version = api_version

    async def post(self, writing: Writing) -> None:
        """Create the Event; one that is there was created by us, and its answer was lost."""
        try:
            await self._send("POST", writing, "", event_of(writing, self._api_version(writing.about.key.kind)))
        except ConflictError as taken:
            try:
                await self.count(writing)
            except NotFoundError:
                raise taken from None  # so it was refused for something else

    async def count(self, writing: Writing) -> None:
        """Bring the Event's count up to date. Raises NotFoundError when it has expired, after an hour by default."""
        changes = {"count": writing.count, "lastTimestamp": writing.last, "message": writing.notice.said}
        await self._send("PATCH", writing, f"/{writing.name}", changes)

    async def _send(self, method: str, writing: Writing, rest: str, body: dict[str, Any]) -> None:
        namespace = writing.about.key.namespace
        request = Outgoing(
            method=method,
            path=f"/api/v1/namespaces/{quote(namespace, safe='')}/events{rest}",
            route="/api/v1/namespaces/{namespace}/events" + ("/{name}" if rest else ""),
            body=msgspec.json.encode(body),
            content_type="application/json" if method == "POST" else "application/merge-patch+json",
        )
        response = await self._exchanger.send(request, lambda: math.inf)
        raise_for(response, f"writing an Event about {writing.about.key}")


def event_of(writing: Writing, api_version: str) -> dict[str, Any]:
    """Return the Event as the API server takes it: in the object's own namespace, or it is refused."""
    about, notice = writing.about, writing.notice
    involved = {
        "apiVersion": api_version,
        "kind": about.key.kind.kubernetes_kind,
        "namespace": about.key.namespace,
        "name": about.key.name,
        "uid": about.uid,
        "resourceVersion": about.resource_version,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": writing.name, "namespace": about.key.namespace},
        "involvedObject": {field: value for field, value in involved.items() if value},
        "type": notice.topic.event_type,
        "reason": str(notice.topic),
        "message": notice.said,
        "count": writing.count,
        "firstTimestamp": writing.first,
        "lastTimestamp": writing.last,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }


class KubernetesEvents:
    """Tells owners. `now`: the Unix time in seconds."""

    def __init__(self, api: EventsApi, now: Callable[[], float], on_result: OnResult) -> None:
        self._api = api
        self._now = now
        self._on_result = on_result
        self._ledger = Ledger()
        self._wake = asyncio.Event()
        self._complained: set[str] = set()

    def tell(self, about: About, notice: Notice) -> None:
        """Take a notice in; it is written soon, counted, or left out."""
        told = self._ledger.add(about, notice, self._now())
        if told is Told.LIMITED:
            self._on_result("limited")
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            writing = self._ledger.next(self._now())
            if writing is None:
                await self._sleep()
            else:
                await self._write(writing)

    async def _write(self, writing: Writing) -> None:
        try:
            if writing.is_new:
                await self._api.post(writing)
            else:
                await self._counted(writing)
        except IsvcSyncError as error:
            self._ledger.failed(writing, self._now(), again=isinstance(error, TransientError))
            self._on_result("failed")
            self._complain(error)
        else:
            self._on_result("posted" if writing.is_new else "counted")

    async def _counted(self, writing: Writing) -> None:
        try:
            await self._api.count(writing)
        except NotFoundError:
            await self._api.post(writing)

    def _complain(self, error: IsvcSyncError) -> None:
        """Log a failure, the first of its sort: the others would say the same of other objects."""
        sort = "no right" if "no right to" in str(error) else type(error).__name__
        if sort not in self._complained:
            self._complained.add(sort)
            logger.warning(
                "a Kubernetes Event could not be written; this is not said again", extra={"error": str(error)}
            )

    async def _sleep(self) -> None:
        wakes_at = self._ledger.wakes_at(self._now())
        timeout_s = None if wakes_at is None else max(0.0, wakes_at - self._now())
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
