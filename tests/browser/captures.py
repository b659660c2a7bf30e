"""Captures for the tests of the timeline page: a story to be counted, a day with many events, and hostile texts."""

import random
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from replay.capture import Action, Captured, Deciding, Header, Line, Position
from replay.steps import Step, Taken
from replay.timeline.data import Page
from replay.timeline.lanes import Timeline
from shared.events import Event, EventType
from shared.objects import Kind, ObjectKey

CLUSTER_ID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
PREFIX = "modelregistry.kubeflow.org/"
BEGIN = datetime(2026, 11, 30, 22, 40, tzinfo=UTC)
TEAMS = ("payments", "search-ranking", "vision", "fraud-detection", "recommendations", "speech")
MODELS = ("iris", "bert-large", "resnet50", "churn", "whisper", "llama-guard", "xgb-score")


def header(**changes) -> Header:
    told = Header(
        capture="isvc-capture/1",
        created="2026-12-01T04:00:00Z",
        tool="isvc-sync 0.1.0",
        cluster="prod-eu-1",
        cluster_id=CLUSTER_ID,
        source="stream",
        stream="ISVC_EVENTS",
        deciding=Deciding(),
    )
    return msgspec.structs.replace(told, **changes)


def rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


class Writer:
    """Lines of one stream, in order."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.seq = 100
        self._version = 5000

    def event(self, key: ObjectKey, at: datetime, **told) -> Captured:
        self._version += 1
        version = told.get("version_of_object") or str(self._version)
        uid = told.get("uid", f"{zlib.crc32(str(key).encode()):08x}-aaaa-4000-8000-000000000001")
        model = told.get("model", "1")
        labels = {f"{PREFIX}registered-model-id": model, f"{PREFIX}model-version-id": told.get("model_version", "")}
        ready = told.get("ready", "True")
        obj = {
            "kind": key.kind.kubernetes_kind,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "uid": uid,
                "resourceVersion": version,
                "generation": 1,
                "labels": {name: value for name, value in labels.items() if value},
            },
            "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/m"}}},
            "status": {
                "url": f"http://{key.name}.{key.namespace}.example.com",
                "conditions": [{"type": "Ready", "status": ready, "reason": told.get("why", "")}],
            },
        }
        event = Event(
            type=told.get("type", EventType.UPDATED),
            key=key,
            uid=uid,
            epoch=1_700_000_000,
            resource_version=version,
            digest=told.get("digest", f"v1:{self._version:08x}"),
            models=(model,) if model else (),
            cluster_id=CLUSTER_ID,
            time=rfc3339(at),
        )
        self.seq += 1
        stored = rfc3339(at + timedelta(milliseconds=told.get("stored_ms", 4)))
        position = Position(self.seq, time=stored)
        line = Captured(event, msgspec.json.encode(obj), position, told.get("initial", False))
        self.lines.append(line)
        return line

    def again(self, line: Captured) -> None:
        """The same event once more, further on in the stream."""
        self.seq += 1
        self.lines.append(Captured(line.event, line.data, Position(self.seq, time=line.event.time)))

    def action(self, line: Captured, kind: str, at: datetime, **told) -> None:
        self.lines.append(
            Action(event=line.position.seq, object=str(line.event.key), kind=kind, time=rfc3339(at), **told)
        )


def key(namespace: str, name: str, kind: Kind = Kind.ISVC) -> ObjectKey:
    return ObjectKey(kind, namespace, name)


def story(*, actions: bool = True) -> list[Line]:
    """Four objects: lives that went well, one dead letter, a duplicate, a stale event, and one that came again."""
    writer = Writer()
    iris, bert = key("payments", "iris"), key("search-ranking", "bert-large")
    bad, llm = key("vision", "no-such-model"), key("speech", "whisper", Kind.LLMISVC)
    at = BEGIN
    first = writer.event(iris, at, type=EventType.CREATED, ready="False", why="PredictorNotReady")
    ready = writer.event(iris, at + timedelta(seconds=12), version_of_object="")
    writer.again(ready)
    other = writer.event(bert, at + timedelta(seconds=20), type=EventType.CREATED, model="2", initial=True)
    dead = writer.event(bad, at + timedelta(seconds=31), type=EventType.CREATED, model="not-a-number")
    writer.event(llm, at + timedelta(seconds=40), type=EventType.CREATED, model="3")
    writer.event(bert, at + timedelta(seconds=55), model="2", model_version="8")
    writer.event(bert, at + timedelta(seconds=58), model="2", version_of_object="17")  # older than what is recorded
    ended = writer.event(iris, at + timedelta(seconds=90), type=EventType.DELETED)
    if actions:
        for line, took_ms in ((first, 35), (ready, 18), (ended, 22)):
            began = datetime.fromisoformat(line.event.time) + timedelta(milliseconds=250)
            writer.action(line, "UpdateRecord", began, status=200, ms=took_ms, reason="the record says otherwise")
            writer.action(line, "ack", began + timedelta(milliseconds=took_ms))
        writer.action(other, "retry", at + timedelta(seconds=21), status=503, ms=40.0, reason="the registry is away")
        writer.action(other, "CreateRecord", at + timedelta(seconds=26), status=201, ms=55.0)
        writer.action(dead, "dead", at + timedelta(seconds=32), reason="label is no id of the registry")
    return writer.lines


def day(count: int = 10_000, objects: int = 300, *, actions: bool = True, seed: int = 6) -> list[Line]:
    """A day of a cluster: `count` events of `objects` objects, about one in a hundred of them a dead letter."""
    chance, writer = random.Random(seed), Writer()
    keys = [key(chance.choice(TEAMS), f"{chance.choice(MODELS)}-{number:03d}") for number in range(objects)]
    wrong = set(chance.sample(keys, objects // 30))
    lives: dict[ObjectKey, int] = {}
    bursts = [chance.uniform(0, 24) for _ in range(8)]
    hours = sorted(
        chance.uniform(0, 24)
        if chance.random() < 0.5
        else min(24.0, max(0.0, chance.gauss(chance.choice(bursts), 0.2)))
        for _ in range(count)
    )
    for hour in hours:
        each, at = chance.choice(keys), BEGIN + timedelta(hours=hour)
        life = lives.get(each, 0)
        luck = chance.random()
        kind = EventType.CREATED if life <= 0 else EventType.DELETED if luck > 0.96 else EventType.UPDATED
        lives[each] = -abs(life) - 1 if kind is EventType.DELETED else abs(life) or 1
        uid = (
            f"{keys.index(each):08d}-0000-4000-8000-{abs(lives[each]) if kind is not EventType.DELETED else life:012d}"
        )
        model = f"no-{each.name}" if each in wrong and luck < 0.3 else str(1 + keys.index(each) % 40)
        told = {"type": kind, "uid": uid, "model": model, "model_version": str(1 + int(hour) // 3)}
        if 0.30 < luck < 0.34:
            told["version_of_object"] = "17"  # far behind
        line = writer.event(each, at, stored_ms=chance.uniform(1, 30), **told)
        if 0.40 < luck < 0.43:
            writer.again(line)
        if actions:
            act(writer, line, at, chance)
    return writer.lines[: _until(writer.lines, count)]


def act(writer: Writer, line: Captured, at: datetime, chance: random.Random) -> None:
    began = at + timedelta(seconds=chance.lognormvariate(-2, 1.2))
    if chance.random() < 0.02:
        writer.action(line, "retry", began, status=503, ms=30.0, reason="the registry does not answer: 503")
        began += timedelta(seconds=chance.uniform(1, 40))
    took_ms = chance.lognormvariate(3, 0.6)
    writer.action(line, "UpdateRecord", began, status=200, ms=round(took_ms, 1), member="consumer-0")
    writer.action(line, "ack", began + timedelta(milliseconds=took_ms + 2), member="consumer-0")


def _until(lines: list[Line], count: int) -> int:
    seen = 0
    for place, line in enumerate(lines):
        seen += isinstance(line, Captured)
        if seen > count:
            return place
    return len(lines)


def decided(lines: list[Line]) -> Iterator[tuple[Captured, Step]]:
    """What the consumer would have made of them, roughly: the page is what is tested, not the decisions."""
    seen: set[str] = set()
    for line in lines:
        if not isinstance(line, Captured):
            continue
        event, model = line.event, line.event.models[0]
        result, reason, taken = "noop", "", ()
        if event.digest in seen:
            result = "duplicate"
        elif event.resource_version == "17":
            result = "stale"
        elif not model.isdigit():
            result, reason = "dead", f"label {PREFIX}registered-model-id={model!r} is no id of the registry"
            taken = (Taken("Reject", reason),)
        elif event.type is not EventType.UPDATED or zlib.crc32(event.digest.encode()) % 9 == 0:
            result = "applied"
            update = {"deployed": event.type is not EventType.DELETED, "version_id": "3", "runtime": "kserve-sklearn"}
            taken = (Taken("UpdateRecord", "the record says otherwise in isvc-sync, url", model, "registry", update),)
        seen.add(event.digest)
        yield (
            line,
            Step(
                seq=line.position.seq,
                time=event.time,
                key=event.key,
                uid=event.uid,
                type=event.type,
                resource_version=event.resource_version,
                model=model,
                version="3",
                registry="registry",
                result=result,
                reason=reason,
                taken=taken,
            ),
        )


def page(lines: list[Line], cut: str | None = None, **changes) -> Page:
    timeline = Timeline(header(**changes))
    for line, step in decided(lines):
        timeline.event(line, step)
    for line in lines:
        if isinstance(line, Action):
            timeline.action(line)
    return timeline.page(cut)


HOSTILE = (
    "</script><script>window.stolen=1</script>",
    "<img src=x onerror=window.stolen=1>",
    "<!--<script>",
    "]]>{data}{script}",
    "\u202egnp.exe\u2028window.stolen=1\u2029",
    "javascript:window.stolen=1",
    "__proto__",
    "constructor",
    "a" * 5000,
    "\"'`${window.stolen=1}",
    "&lt;b&gt;&quot;",
    "😀 \u0000\u0007\x1b[31m",
)


def hostile() -> Iterator[Line]:
    """Every text that a capture can bring, hostile."""
    writer = Writer()
    for number, text in enumerate(HOSTILE):
        at = BEGIN + timedelta(seconds=number)
        each = key(text, text)
        line = writer.event(each, at, type=EventType.CREATED, model=text, uid=text, why=text, model_version=text)
        yield line
        yield Action(
            event=line.position.seq,
            object="isvc/x/y",
            kind=text,
            reason=text,
            member=text,
            time=rfc3339(at),
            status=599,
        )
