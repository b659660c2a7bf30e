"""`isvc-sync record` from the event stream: history, or what comes, with what the registries hold."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from functools import partial

from cli.capture.facts import BareSettings, Facting, RecordSettings, deciding, facts_from, settings_of
from cli.capture.logs import write_actions
from cli.capture.recording import Session
from cli.connecting import connected
from cli.reading import Cluster
from replay.pacing import Bound
from replay.recording.core import was_before
from replay.recording.stream import StreamReader, Surveyed
from shared import events
from shared.errors import BadEventError
from shared.running import together
from shared.startup import require_own_cluster
from shared.streams import require_shards, stream_names
from shared.subjects import Subjects


async def record_stream(session: Session, environ: Mapping[str, str]) -> None:
    """Record the stream. Raises what `reading.reading` does."""
    settings = settings_of(session, environ)
    bare = settings.bare
    async with AsyncExitStack() as stack:
        cluster = await facts_from(settings, environ, stack)
        broker = await connected(bare.broker, stack)
        subjects = Subjects(bare.broker.subject_prefix, bare.naming.cluster_name, bare.broker.shards)
        stream = stream_names(bare.broker.subject_prefix).events
        await require_shards(broker.jetstream, bare.broker)
        if cluster is not None:
            await require_own_cluster(broker, stream, subjects, cluster.deciding.us.cluster_id)
        reader = StreamReader(broker, stream, session.wanted.chosen.filters(subjects), session.progress.tell)
        recording = partial(_record, session, settings, cluster, reader)
        if session.wanted.follow:
            await session.following(recording)
        else:
            await recording()


async def _record(session: Session, settings: RecordSettings, cluster: Cluster | None, reader: StreamReader) -> None:
    bare, since = settings.bare, session.wanted.since
    if session.wanted.follow and since is None:
        since = Bound(seq=await reader.last_sequence() + 1)
    found = await reader.survey(since, session.wanted.until)
    header = session.header(
        cluster=bare.naming.cluster_name,
        cluster_id=cluster.deciding.us.cluster_id if cluster is not None else await _cluster_id(bare, reader, found),
        source="stream",
        stream=stream_names(bare.broker.subject_prefix).events,
        first_seq=found.start,
        deciding=await deciding(settings, cluster),
    )
    with session.recorder(header, found.namespaces) as recording:
        facts = Facting(session, recording, cluster)
        if cluster is not None:
            facts.ask(lambda record: was_before(record, found.firsts), found.namespaces)
        async with aclosing(reader.initial(found)) as initial:
            async for line in initial:
                await facts.write(line)
        recording.recorder.flush()
        if session.live:
            recording.place()
        await together(_events(session, reader, found, facts), recording.keep_flushing())
        write_actions(session, recording)
        await facts.end()


async def _cluster_id(bare: BareSettings, reader: StreamReader, found: Surveyed) -> str:
    """Return whose events these are, where no cluster is asked: by the stream, or the setting."""
    subjects = Subjects(bare.broker.subject_prefix, bare.naming.cluster_name, bare.broker.shards)
    return found.cluster_id or await reader.cluster_id(subjects) or bare.cluster.cluster_id or ""


async def _events(session: Session, reader: StreamReader, found: Surveyed, facts: Facting) -> None:
    until = session.wanted.until
    end = None if session.wanted.follow else found.end
    async with aclosing(reader.read(found.start, bodies=True, end=end, stop=session.ended)) as messages:
        async for message in messages:
            try:
                line = message.captured(events.decode(message.headers))
            except BadEventError as error:
                session.passed_over(f"Message {message.seq} was left out: {error}.")
                continue
            if until is not None and until.is_before(line):
                return
            await facts.write(line)
