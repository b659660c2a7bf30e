"""`isvc-sync record --from-cluster`: what the API server shows, as a producer would publish it; no broker is needed.

Lists and watches with the producer's own parts. Without --follow that is the state of this moment.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from cli.capture.facts import Facting, deciding, facts_from, settings_of
from cli.capture.recording import Recording, Session
from cli.reading import Cluster
from consumer.records import Record
from producer.items import Begin, Item, Observed, Watched
from producer.kube import Clients, WatchApi
from producer.reading import Reader
from producer.reflector import Reflector
from producer.states import SENTENCES
from replay.capture import Captured
from replay.recording.core import was_before
from replay.recording.publishing import Moment, Publishing
from shared.cluster import client, cluster_id, load_cluster
from shared.errors import UnreachableError
from shared.objects import Kind, ObjectKey
from shared.running import together
from shared.subjects import Subjects

_TRIES = 3  # of the first list: whoever waits for a command wants to hear of what does not work


async def record_cluster(session: Session, environ: Mapping[str, str]) -> None:
    """Record the cluster. Raises SettingsError, and UnreachableError for what does not answer or let us in."""
    settings = settings_of(session, environ)
    bare = settings.bare
    naming = bare.naming
    async with AsyncExitStack() as stack:
        config = load_cluster(bare.cluster, environ)
        watching = await stack.enter_async_context(client(config, use="watch", role="record"))
        control = await stack.enter_async_context(client(config, use="control", role="record"))
        identity = await cluster_id(control, bare.cluster)
        cluster = await facts_from(settings, environ, stack)
        header = session.header(
            cluster=naming.cluster_name,
            cluster_id=identity,
            source="cluster",
            deciding=await deciding(settings, cluster),
        )
        subjects = Subjects(bare.broker.subject_prefix, naming.cluster_name, bare.broker.shards)
        with session.recorder(header) as recording:
            desk = _Desk(session, recording, Publishing(subjects, identity), _facting(session, recording, cluster))
            clerks = []
            for kind in session.wanted.chosen.kinds:
                reader = Reader(kind, naming.prefixes, naming.api_version(kind))
                for scope in session.wanted.chosen.scopes:
                    api = WatchApi(reader, Clients(watching, control), namespace=scope)
                    clerks.append(_Clerk(api, desk))
            await _work(session, recording, clerks)
            await desk.facts.end()


async def _work(session: Session, recording: Recording, clerks: "list[_Clerk]") -> None:
    """Let all clerks work until each has listed, or with --follow until the end. Raises what one of them raises."""

    async def listed() -> None:
        for clerk in clerks:
            await clerk.listed

    async def followed() -> None:
        await together(listed(), session.ended.wait())
        recording.place()
        await session.ended.wait()

    ending = session.following(followed) if session.wanted.follow else listed()
    await together(ending, *(clerk.reflector.run() for clerk in clerks), recording.keep_flushing())


def _facting(session: Session, recording: Recording, cluster: Cluster | None) -> Facting:
    facts = Facting(session, recording, cluster)
    firsts, chosen = recording.recorder.firsts, session.wanted.chosen

    def is_initial(record: Record) -> bool:
        """Whether it was there before; what was not captured yet was written before, if it is this cluster's."""
        stamp = record.stamp
        if cluster is None or stamp is None or stamp.uid in firsts:
            return was_before(record, firsts)
        key = ObjectKey(Kind(stamp.kind), stamp.namespace, stamp.name)
        return stamp.cluster_id == cluster.deciding.us.cluster_id and chosen.takes(key)

    if cluster is not None:
        facts.ask(is_initial, set())
    return facts


class _Desk:
    """Where what is seen becomes lines, one thing after the other."""

    def __init__(self, session: Session, recording: Recording, publishing: Publishing, facts: Facting) -> None:
        self.session = session
        self.recording = recording
        self.publishing = publishing
        self.facts = facts
        self.one_at_a_time = asyncio.Lock()

    async def write(self, lines: Iterator[Captured]) -> None:
        for line in lines:
            await self.facts.write(line)


class _Clerk:
    """Follows one list and watch; see `reflector.Store` and `reflector.Ear`. `listed` is set after the first list.

    An UnreachableError is set in its place when that does not come about.
    """

    def __init__(self, api: WatchApi, desk: _Desk) -> None:
        self.watched = api.watched
        self.reflector = Reflector(api, self, self)
        self.listed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._desk = desk
        self._troubles = 0
        self._said = ""

    async def settled(self) -> Item:
        return Begin()

    def begin_pass(self) -> None:
        self._desk.publishing.begin_pass(self.watched.kind, self.watched.namespace)

    async def observe(self, found: Observed, *, live: bool) -> None:
        async with self._desk.one_at_a_time:
            publishing, scope = self._desk.publishing, self.watched.namespace
            await self._desk.write(publishing.see(found, _now(), live=live, scope=scope))

    async def remove(self, found: Observed) -> None:
        async with self._desk.one_at_a_time:
            await self._desk.write(self._desk.publishing.gone(found, _now(), scope=self.watched.namespace))

    async def end_pass(self, version: str, doubtful: int) -> None:
        async with self._desk.one_at_a_time:
            lines, held = self._desk.publishing.end_pass(
                self.watched.kind, version, _now(), doubtful=doubtful, scope=self.watched.namespace
            )
            await self._desk.write(lines)
        for _ in range(doubtful):
            self._desk.session.passed_over(f"An object of {self.watched} cannot be identified, and was left out.")
        if held:  # many are gone at once: a second list says whether that is so
            self.reflector.resync("a second look at what is gone")
        self._done()

    def passed(self, position: str) -> None:
        """Note nothing: nobody goes on from here."""

    async def absent(self) -> None:
        self._say(f"{self.watched}: the kind is not installed.")
        self._done()

    def restored(self) -> None:
        """Do nothing: the others notice it by themselves."""

    def resume_at(self, position: str) -> str:
        return position

    def connected(self, watched: Watched, *, connected: bool) -> None:
        """Note nothing."""

    def trouble(self, _watched: Watched, reason: str) -> None:
        self._troubles += 1
        if not self.listed.done() and self._troubles >= _TRIES and reason != "absent":
            why = self.reflector.readiness() or SENTENCES.get(reason, reason)
            self.listed.set_exception(UnreachableError(f"{self.watched} cannot be listed: {why}"))
        elif self.listed.done() and reason != "closed":
            self._say(f"{self.watched}: the watch was interrupted ({reason}); what happens meanwhile may be missing.")

    def _done(self) -> None:
        if not self.listed.done():
            self.listed.set_result(None)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            self._desk.session.progress.tell(sentence)


def _now() -> Moment:
    now = datetime.now(UTC)
    return Moment(now.isoformat(timespec="milliseconds").replace("+00:00", "Z"), int(now.timestamp()))
