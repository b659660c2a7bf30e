"""What cluster, broker and registries tell of one object at this moment. Reads only; concludes nothing.

Its dead letter, the history that the stream has kept of its subject (at most 64 events), the live object, all records
that are about it, and how far the consumers are with its shard. What `plan` decides about the events is found out anew,
from what is left of them, with the models and versions that exist now.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote

import msgspec
import nats.js.errors
from msgspec.structs import replace
from nats.js.api import RawStreamMsg

from consumer.freshness import Freshness
from consumer.kube import KubernetesApi
from consumer.lookup import Lookup
from consumer.observation import Observation, observe, observe_live, want
from consumer.plan import Facts as PlanFacts
from consumer.plan import PlanSettings, Questions, questions
from consumer.records import Record
from consumer.registries import Registries
from replay.capture import Captured, Facts, Position
from replay.life.captured import Decided, asked_about, is_about, with_real_ids
from replay.life.facts import Delivery, Evidence, Letter, Live, Past, Standing
from replay.planning import Planner
from shared import events
from shared.broker import Broker
from shared.broker_errors import translated
from shared.errors import BadEventError, IsvcSyncError, NotFoundError, PermanentError, TransientError, UnreachableError
from shared.events import SyncMarker
from shared.holds import HoldClient
from shared.objects import ObjectKey, ReducedObject
from shared.reduce import digest_of, known_prefixes, reduce_object
from shared.streams import StreamNames
from shared.subjects import Subjects, shard_of


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look. `planner` makes one that knows nothing yet; `marker` returns the sync marker of a kind."""

    broker: Broker
    subjects: Subjects
    streams: StreamNames
    cluster: KubernetesApi
    registries: Registries
    settings: PlanSettings
    planner: Callable[[], Planner]
    marker: SyncMarker | None = None


async def found_now(key: ObjectKey, sources: Sources) -> Evidence:
    """Return everything about an object.

    Raises UnreachableError, TransientError and PermanentError when cluster or broker do not answer; a registry that
    does not is told.
    """
    finding = _Finding(key, sources)
    history = await finding.history()
    live = await finding.live(history)
    standings, lookups = await finding.standings(history, live)
    uids = {each.event.uid for each in history} | set(standings)
    records, unread = await finding.records(uids)
    answered = {}
    for uid, standing in standings.items():
        answered[uid] = await finding.answered(standing, lookups, records, unread)
    past = await finding.decided(history, lookups, records, unread)
    gone = live.seen is None and bool(history) and history[-1].event.type != "deleted"
    return Evidence(
        key=key,
        settings=sources.settings,
        past=past,
        standings=answered,
        records=records,
        unread=unread,
        live=live,
        letter=await finding.letter(),
        delivery=await finding.delivery(),
        marker=sources.marker,
        holds=await finding.holds() if gone else (),
    )


class _Finding:
    """One look at one object."""

    def __init__(self, key: ObjectKey, sources: Sources) -> None:
        self._key = key
        self._sources = sources
        self._jetstream = sources.broker.jetstream

    async def history(self) -> list[Captured]:
        """Return the events that the stream has kept, oldest first; those that do not decode are dead letters."""
        subject, sequence = self._sources.subjects.event(self._key), 1
        found: list[Captured] = []
        while True:
            message = await self._message(self._sources.streams.events, subject, sequence)
            if message is None:
                return found
            sequence = (message.seq or 0) + 1
            if (captured := self._captured(message)) is not None:
                found.append(captured)

    def _captured(self, message: RawStreamMsg) -> Captured | None:
        time = message.time.isoformat() if message.time is not None else ""
        position = Position(message.seq or 0, message.subject or "", time)
        try:
            captured = Captured(events.decode(message.headers), message.data or b"", position)
            is_ours = captured.event.cluster_id == self._sources.settings.us.cluster_id
            is_told = is_ours and captured.event.key == self._key and captured.obj is not None
        except BadEventError:
            return None
        return captured if is_told else None

    async def _message(self, stream: str, subject: str, since: int = 0) -> RawStreamMsg | None:
        """Return the first message on a subject from a sequence on, the last one for 0; None when there is none."""
        with translated(f"reading {subject} from {stream}"):
            try:
                if since:
                    return await self._jetstream.get_msg(stream, since, subject=subject, next=True)
                return await self._jetstream.get_msg(stream, subject=subject)
            except nats.js.errors.NotFoundError:
                return None

    async def live(self, history: list[Captured]) -> Live:
        try:
            raw = await self._sources.cluster.get(self._key)
        except TransientError as error:
            if isinstance(error.__cause__, NotFoundError):
                return Live(trouble=str(error))
            raise
        if raw is None:
            return Live()
        same = [each for each in history if each.event.uid == raw["metadata"]["uid"]]
        if same:
            last = observe(same[-1].event, same[-1].obj)
            return Live(observe_live(last, raw, self._sources.settings.prefix))
        return Live(_first_seen(self._key, raw, self._sources.settings))

    async def standings(self, history: list[Captured], live: Live) -> tuple[dict[str, Standing], dict[str, Lookup]]:
        """Return where each uid stands, before its registry was asked, and the registries by name."""
        newest = {each.event.uid: observe(each.event, each.obj) for each in history}
        for uid, seen in newest.items():  # what the cluster does not have any more is gone, whatever its event says
            if not live.trouble and seen.lives:
                newest[uid] = replace(seen, freshness=replace(seen.freshness, deleted=True))
        if live.seen is not None:
            newest[live.seen.uid] = live.seen
        standings, lookups = {}, {}
        for uid, seen in newest.items():
            standings[uid], lookup = await self._standing(seen)
            if lookup is not None:
                lookups[lookup.place.name] = lookup
        return standings, lookups

    async def _standing(self, seen: Observation) -> tuple[Standing, Lookup | None]:
        if want(seen, self._sources.settings.prefix).model is None and not seen.models:
            return Standing(seen=seen), None
        try:
            lookup = await self._sources.registries.choose(seen)
        except UnreachableError:
            raise
        except (PermanentError, TransientError) as error:
            forbidden = isinstance(error, PermanentError)
            if forbidden and not seen.lives:
                return Standing(seen=seen), None  # it asks for no registry any more
            return Standing(seen=seen, no_home=str(error), forbidden=forbidden), None
        return Standing(seen=seen, home=lookup.place.name), lookup

    async def records(self, uids: set[str]) -> tuple[dict[str, tuple[Record, ...]], dict[str, str]]:
        """Return the records about the object by registry, and the registries that could not be read, with why."""
        found: dict[str, tuple[Record, ...]] = {}
        unread: dict[str, str] = {}
        for lookup in await self._sources.registries.everywhere():
            try:
                async with aclosing(lookup.place.registry.all_records()) as records:
                    those = [record async for record in records if is_about(record, self._key, uids)]
            except IsvcSyncError as error:
                unread[lookup.place.name] = str(error)
            else:
                found[lookup.place.name] = tuple(those)
        return found, unread

    async def answered(
        self,
        standing: Standing,
        lookups: Mapping[str, Lookup],
        records: Mapping[str, tuple[Record, ...]],
        unread: dict[str, str],
    ) -> Standing:
        """Return the standing with the answers to what `plan` would ask."""
        home = standing.home
        if home is None or home in unread:
            return standing
        try:
            asked = asked_about(standing.seen, records.get(home, ()), self._sources.settings)
            facts = await lookups[home].facts(asked)
        except TransientError as error:
            unread[home] = str(error)
            return standing
        return replace(standing, facts=facts)

    async def decided(
        self,
        history: list[Captured],
        lookups: Mapping[str, Lookup],
        records: Mapping[str, tuple[Record, ...]],
        unread: Mapping[str, str],
    ) -> tuple[Past, ...]:
        """Return the events with what is decided about them; without that where a registry cannot be asked."""
        if unread:
            return tuple(Past(each) for each in history)
        planner = self._sources.planner()
        for name, lookup in lookups.items():
            planner.facts(await self._facts(name, history, lookup))
        decided = Decided(self._key)
        for each in history:
            decided.take(each, planner.decide(each))
        return with_real_ids(decided.past, planner, records)

    async def _facts(self, name: str, history: list[Captured], lookup: Lookup) -> Facts:
        """Return which of the models and versions that events name exist now."""
        models: set[str] = set()
        versions: set[str] = set()
        for each in history:
            asked = questions(observe(each.event, each.obj), {}, self._sources.settings)
            models |= asked.models
            versions |= asked.versions
        found: PlanFacts = await lookup.facts(Questions(frozenset(models), frozenset(versions)))
        return Facts(
            registry=name,
            models=tuple(sorted(model for model, exists in found.models.items() if exists)),
            versions={version: model for version, model in found.versions.items() if model is not None},
        )

    async def letter(self) -> Letter | None:
        message = await self._message(self._sources.streams.dlq, self._sources.subjects.dead_letter(self._key))
        if message is None:
            return None
        given = {name.lower(): unquote(value) for name, value in (message.headers or {}).items()}
        sequence = given.get("isvc-seq", "")
        return Letter(
            given.get("isvc-reason", "no reason was given"),
            given.get("ce-uid", ""),
            int(sequence) if sequence.isdigit() else 0,
        )

    async def delivery(self) -> Delivery:
        subjects = self._sources.subjects
        shard = shard_of(self._key, subjects.shards)
        with translated(f"reading the consumer of shard {shard}"):
            try:
                info = await self._jetstream.consumer_info(self._sources.streams.events, subjects.durable(shard))
            except nats.js.errors.NotFoundError:
                return Delivery(shard=shard, exists=False, pulling=False)
        return Delivery(
            shard=shard,
            pulling=bool(info.num_waiting),
            delivered=info.delivered.stream_seq if info.delivered is not None else 0,
            acked=info.ack_floor.stream_seq if info.ack_floor is not None else 0,
            unacked=info.num_ack_pending or 0,
        )

    async def holds(self) -> tuple[str, ...]:
        """Return a sentence for each hold that the object is, or may be, among."""
        name = f"{self._key.namespace}/{self._key.name}"
        answers = await HoldClient(self._sources.broker, self._sources.subjects).ask()
        held = {hold.id: hold for answer in answers for hold in answer.holds if hold.kind == self._key.kind}
        found = []
        for hold in held.values():
            if name in hold.sample:
                found.append(
                    f"its delete is held back with {hold.count - 1} others ({hold.why}): see isvc-sync release"
                )
            elif hold.count > len(hold.sample):
                found.append(
                    f"its delete may be one of {hold.count} that are held back: see isvc-sync release {hold.id}"
                )
        return tuple(found)


def _first_seen(key: ObjectKey, raw: Any, settings: PlanSettings) -> Observation:
    """Return what a GET shows of an object of which no event tells."""
    prefixes = known_prefixes(settings.prefix)
    reduced = reduce_object(raw, prefixes)
    obj = msgspec.convert(reduced, ReducedObject)
    metadata = obj.metadata
    nothing = Observation(
        key=key,
        uid=metadata.uid,
        freshness=Freshness(0, metadata.resource_version, metadata.deletion_timestamp != ""),
        digest=digest_of(reduced, prefixes),
        models=(),
        time=metadata.creation_timestamp,
        obj=obj,
    )
    model = want(nothing, settings.prefix).model
    return replace(nothing, models=(model,) if model else ())
