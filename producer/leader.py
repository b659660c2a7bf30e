"""Which producer publishes: leader election on a Lease. `producer/lease.py` decides; this reads, writes and waits.

A Lease is no fence: a process that was paused learns late that it was replaced. So everything behind it tolerates two
producers, and this sees to it that there is one in ordinary life. What it does guarantee: the publisher's permission
(`leads`) ends before another one may lead, by the renew deadline, counted from the moment *before* the last successful
renewal was sent, and by a monotonic clock. No task has to run for that: a process that wakes up sends nothing.
"""

import asyncio
import logging
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import httpx
import msgspec
from msgspec import Struct

from producer.lease import API, Claim, Create, Record, Sighting, Wait, claimed, decide, released, sighted
from producer.settings import ProducerSettings
from shared.cluster import SERVICE_ACCOUNT
from shared.errors import ConflictError, IsvcSyncError, NotFoundError, SettingsError
from shared.kubernetes_errors import raise_for, translated
from shared.running import together

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RELEASE_S: Final = 0.25
_CALL_SHARE: Final = 0.75  # of the retry period: a call that hangs is given up before the next one is due
_JITTER: Final = 0.2
_PAUSE_S_MIN: Final = 0.01


class Leadership(Protocol):
    """Says when this process may publish."""

    def leads(self) -> bool:
        """Whether it may publish at this very moment."""

    def readiness(self) -> str | None:
        """Return None, or a sentence that says what is missing. May be called from another thread."""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` whenever this process leads, and cancel it when it does no longer. Raises what it raises."""


class Alone:
    """Leads always: nobody else is there to be elected, or two at once do not matter."""

    def leads(self) -> bool:
        return True

    def readiness(self) -> str | None:
        return None

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        await work()


class Candidacy(Struct, frozen=True):
    """Who wants to lead, by which Lease, on which terms (seconds; see `producer.settings.LeaseSettings`)."""

    me: str
    namespace: str
    name: str
    duration_s: int
    renew_deadline_s: float
    retry_period_s: float

    def __str__(self) -> str:
        return f"the Lease {self.namespace}/{self.name}"

    @property
    def collection(self) -> str:
        return f"/apis/{API}/namespaces/{self.namespace}/leases"

    def pause_s(self) -> float:
        """Return how long to wait between two calls, spread so that candidates do not march in step."""
        return self.retry_period_s * (1 + _JITTER * random.random())  # noqa: S311 - spread, no secret


class Elector:
    """Leads while it holds the Lease. `http` is a client of its own: a busy one must not delay a renewal."""

    def __init__(self, http: httpx.AsyncClient, candidacy: Candidacy) -> None:
        self._http = http
        self._candidacy = candidacy
        self._loop = asyncio.get_running_loop()
        self._lease: dict[str, Any] = {}  # as it was last read or written; empty: there is none
        self._seen: Sighting | None = None
        # for readiness, which is read from another thread: plain values
        self._leads_until = float("-inf")
        self._looked_at = float("-inf")
        self._trouble = ""

    @property
    def identity(self) -> str:
        return self._candidacy.me

    def leads(self) -> bool:
        return self._loop.time() < self._leads_until

    def readiness(self) -> str | None:
        """Return None once the Lease is observed: if followers were not ready, a rolling update would never end."""
        if self._loop.time() - self._looked_at <= self._candidacy.duration_s:
            return None
        return f"{self._candidacy} cannot be observed" + (f": {self._trouble}" if self._trouble else " yet")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._acquire()
            logger.info("this producer leads", extra={"lease": str(self._candidacy), "identity": self.identity})
            try:
                await together(self._keep(), work())
            finally:
                # The work has ended: nothing more is published, so somebody else may begin.
                await self._release()

    async def _acquire(self) -> None:
        holder = None
        while True:
            waiting = await self._attempt(self._candidacy.retry_period_s * _CALL_SHARE)
            if self.leads():
                return
            pause_s = self._candidacy.pause_s()
            if isinstance(waiting, Wait):
                pause_s = min(pause_s, max(_PAUSE_S_MIN, waiting.until - self._loop.time()))
                if waiting.holder != holder:
                    holder = waiting.holder
                    logger.info("another producer leads", extra={"lease": str(self._candidacy), "holder": holder})
            await asyncio.sleep(pause_s)

    async def _keep(self) -> None:
        """Renew until leadership is lost."""
        while True:
            await asyncio.sleep(min(self._candidacy.pause_s(), max(_PAUSE_S_MIN, self._left_s())))
            if not self.leads():
                logger.error("leadership is lost: the Lease could not be renewed", extra={"reason": self._trouble})
                return
            found = await self._attempt(min(self._candidacy.retry_period_s * _CALL_SHARE, self._left_s()))
            if isinstance(found, Wait):
                self._leads_until = float("-inf")
                logger.error("leadership is lost: another producer has taken it", extra={"holder": found.holder})
                return

    def _left_s(self) -> float:
        return max(0.0, self._leads_until - self._loop.time())

    async def _attempt(self, within_s: float) -> Claim | Wait | None:
        """Try to hold the Lease; return what was decided, or None when that failed."""
        return await self._tried(self._claim(), within_s)

    async def _tried(self, work: Awaitable[T], within_s: float) -> T | None:
        """Return what `work` on the Lease returns, or None when it fails: that is logged, and ends nothing."""
        trouble = ""
        try:
            async with asyncio.timeout(within_s):
                return await work
        except TimeoutError:
            trouble = f"no answer within {within_s:.1f} s"
        except IsvcSyncError as error:
            trouble = str(error)
        except Exception as error:
            logger.exception("an unforeseen error at the Lease")
            trouble = type(error).__name__
        finally:
            if trouble and trouble != self._trouble:
                logger.warning("the Lease cannot be read or written", extra={"reason": trouble})
            self._trouble = trouble
        return None

    async def _claim(self) -> Claim | Wait:
        if not self.leads():
            await self._look()
        try:
            return await self._decide_and_write()
        except (ConflictError, NotFoundError):  # somebody else wrote, or took it away
            await self._look()
            return await self._decide_and_write()

    async def _decide_and_write(self) -> Claim | Wait:
        candidacy, now = self._candidacy, self._loop.time()
        decision = decide(self._seen, candidacy.me, now, candidacy.duration_s)
        if isinstance(decision, Wait):
            return decision
        lease = self._lease or _new(candidacy)
        wanted = claimed(lease, decision, candidacy.me, candidacy.duration_s, _time())
        if isinstance(decision, Create):
            await self._send("POST", candidacy.collection, "creating", wanted)
        else:
            await self._update("updating", wanted)
        self._leads_until = now + candidacy.renew_deadline_s
        return decision

    async def _release(self) -> None:
        """Let another one lead at once, if the Lease is still ours, and if that can be done at once."""
        held, self._leads_until = self.leads(), float("-inf")
        if held and await self._tried(self._let_go(), _RELEASE_S):
            logger.info("leadership is released", extra={"lease": str(self._candidacy)})

    async def _let_go(self) -> bool:
        try:
            await self._update("releasing", released(self._lease, _time()))
        except ConflictError:  # perhaps a renewal of ours, which was cut short and has reached the server
            await self._look()
            if self._seen is None or self._seen.record.holder != self.identity:
                return False
            await self._update("releasing", released(self._lease, _time()))
        return True

    async def _look(self) -> None:
        try:
            await self._send("GET", f"{self._candidacy.collection}/{self._candidacy.name}", "reading")
        except NotFoundError:
            self._lease, self._seen, self._looked_at = {}, None, self._loop.time()

    async def _update(self, doing: str, lease: dict[str, Any]) -> None:
        await self._send("PUT", f"{self._candidacy.collection}/{self._candidacy.name}", doing, lease)

    async def _send(self, method: str, path: str, doing: str, lease: dict[str, Any] | None = None) -> None:
        what = f"{doing} {self._candidacy}"
        with translated(what):
            response = await self._http.request(method, path, json=lease)
        raise_for(response, what)
        self._lease = msgspec.json.decode(response.content, type=dict[str, Any])
        self._looked_at = self._loop.time()
        self._seen = sighted(self._seen, Record.of(self._lease), self._looked_at)


def leadership(settings: ProducerSettings, http: httpx.AsyncClient, environ: Mapping[str, str]) -> Leadership:
    """Return how this process comes to lead.

    Raises SettingsError when it is to be elected and knows no namespace, or by durations that contradict each other.
    """
    lease = settings.lease
    in_pod = settings.cluster.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ
    elected = lease.leader_election
    if elected is None:
        elected = in_pod or lease.lease_namespace is not None
    if not elected:
        logger.info("no leader election: this producer publishes whatever others do")
        return Alone()
    if not 2 * lease.lease_retry_period_s <= lease.lease_renew_deadline_s < lease.lease_duration_s:
        raise SettingsError(
            "LEASE_RENEW_DEADLINE_S must be at least twice LEASE_RETRY_PERIOD_S, or one lost call ends leadership, and "
            "less than LEASE_DURATION_S, or the next leader starts before the last one stops."
        )
    candidacy = Candidacy(
        me=lease.pod_name or f"{socket.gethostname()}_{secrets.token_hex(4)}",
        namespace=lease.lease_namespace or _own_namespace(SERVICE_ACCOUNT if in_pod else None),
        name=lease.lease_name,
        duration_s=lease.lease_duration_s,
        renew_deadline_s=lease.lease_renew_deadline_s,
        retry_period_s=lease.lease_retry_period_s,
    )
    return Elector(http, candidacy)


def _own_namespace(account: Path | None) -> str:
    try:
        namespace = (account / "namespace").read_text().strip() if account is not None else ""
    except OSError as error:
        raise SettingsError(f"The pod's namespace cannot be read ({error}): set LEASE_NAMESPACE.") from error
    if not namespace:
        raise SettingsError("LEADER_ELECTION is true and this is no pod: set LEASE_NAMESPACE to the Lease's namespace.")
    return namespace


def _new(candidacy: Candidacy) -> dict[str, Any]:
    metadata = {"name": candidacy.name, "namespace": candidacy.namespace}
    return {"apiVersion": API, "kind": "Lease", "metadata": metadata}


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
