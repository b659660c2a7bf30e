"""Captures to explore, and a consumer that drops what it has seen: the fault that the issue wants to be caught."""

import random
from pathlib import Path
from typing import Any

from consumer.handle import Handler
from consumer.verdict import Ack
from replay.capture import Captured, Facts
from replay.exploring.story import Story
from replay.files import reading
from shared.events import MESSAGE_ID, EventType
from shared.objects import Kind, ObjectKey
from tests.unit.replay.replayed import HEADER, captured, isvc, ready

GOLDEN = Path(__file__).parents[2] / "captures/golden"
FACTS = Facts(models=("1", "2"), versions={"2": "1", "3": "1", "10": "1", "11": "1", "12": "1", "20": "2"})


def golden(name: str) -> Story:
    with reading(GOLDEN / f"{name}.jsonl") as capture:
        return Story.of(capture)


def story_of(*events: Captured, facts: Facts = FACTS) -> Story:
    return Story(HEADER, (facts,), events)


def busy(objects: int, rounds: int) -> list[Captured]:
    """Return the events of many objects whose version changes in each round; half of them end."""
    events: list[Captured] = []
    for round_ in range(rounds):
        for number in range(objects):
            seq = len(events) + 1
            key = ObjectKey(Kind.ISVC, f"team-{number % 3}", f"model-{number}")
            obj = isvc(key, f"u-{number}", 100 + seq, registered_model_id="1", model_version_id=str(10 + round_ % 3))
            what = EventType.UPDATED if round_ else EventType.CREATED
            if round_ == rounds - 1 and number % 2:
                what = EventType.DELETED
            events.append(captured(seq, ready(obj) if round_ else obj, what, at_s=seq * 0.02))
    return events


def eventful(seed: int) -> Story:
    """Return a story in which labels come, change, go and name nothing; objects stop, end, and are made again."""
    chance = random.Random(seed)
    events: list[Captured] = []
    objects: dict[ObjectKey, dict[str, Any]] = {}
    at_s = 0.0
    for number in range(1, chance.randint(4, 30)):
        at_s += chance.choice((0.0, 0.01, 0.1, 0.5, 3.0))
        kind = Kind.ISVC if chance.random() < 0.8 else Kind.LLMISVC
        key = ObjectKey(kind, chance.choice(("a", "b")), chance.choice(("x", "y", "z")))
        what = EventType.UPDATED if key in objects else EventType.CREATED
        said = objects.setdefault(key, {"uid": f"u-{number}", "model": "1", "version": "10", "carried": ()})
        if what is EventType.CREATED or chance.random() < 0.4:
            said["model"] = chance.choice(("1", "1", "2", "9", "bad", None))
        if chance.random() < 0.4:
            said["version"] = chance.choice(("10", "11", "12", "20", "99", None))
        for flag in ("ready", "stopped"):
            said[flag] = said.get(flag, False) is not (chance.random() < 0.2)
        if what is EventType.UPDATED and chance.random() < 0.2:
            what = EventType.DELETED
        if said["model"]:
            said["carried"] = tuple(dict.fromkeys((*said["carried"], said["model"])))
        names = {"registered_model_id": said["model"], "model_version_id": said["version"]}
        obj = isvc(key, said["uid"], 100 + number, **{name: value for name, value in names.items() if value})
        if said["stopped"]:
            obj["metadata"]["annotations"]["serving.kserve.io/stop"] = "true"
        shown = ready(obj) if said["ready"] else obj
        events.append(captured(number, shown, what, at_s=at_s, models=said["carried"]))
        if what is EventType.DELETED:
            del objects[key]
    return story_of(*events)


def with_a_seen_set(patch) -> None:
    """Drop what was seen before, whoever saw it and however that ended: a shared set, as a key-value store."""
    real = Handler.handle

    async def handle_once(self, work):
        name = work.message.headers.get(MESSAGE_ID)  # none in the sequential plan, which repeats nothing
        if name is not None and work.attempt == 1:
            seen = self._sources.live.__self__._kubernetes.servers.__dict__.setdefault("seen_set", set())
            if name in seen:
                await work.message.ack()
                return Ack()
            seen.add(name)
        return await real(self, work)

    patch.setattr(Handler, "handle", handle_once)
