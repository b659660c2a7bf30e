"""Somebody who keeps changing InferenceServices: labels, statuses, stops, deletes, names taken again.

Four hot objects get two fifths of all changes: in an outage each changes more often than the 64 times that the stream
keeps. They are not deleted, and a name whose object went is left alone before it has changed so often: a delete that is
lost so is found by the sweep alone, which is not part of this. No object needs another id more often than isvc-sync
writes one to it.
Everything happens in the sandbox's API at once, so what the cluster says in the end is what was asked for.
"""

import asyncio
import random
import time
from collections import Counter
from typing import Any

from sandbox.cluster import ClusterSandbox
from tests.e2e.pipeline import MODEL, STOP, VERSION, isvc

MODELS = {str(model): tuple(str(100 * model + number) for number in range(1, 9)) for model in range(1, 7)}
"""The versions of each registered model."""
NAMESPACES = ("chaos-a", "chaos-b")
KNATIVE = {"serving.kserve.io/deploymentMode": "Knative"}  # where the id label is kept from pods, and always written

_HOT = 4
_COLD_PER_NAMESPACE = 40
_HOT_SHARE = 0.4
_AWAY_MAX = 4  # names without an object: the producer's guard begins at a fifth of all that are gone at once
_LATE_S_MAX = 0.1  # what a busy machine could not do in time is left out, not made up for in a burst

_WEIGHTS = {"version": 700, "status": 180, "model": 40, "stop": 40, "unlabel": 8, "replace": 8, "delete": 4}
_NEEDS_AN_ID = {"model", "unlabel", "replace", "delete"}
_IDS_MAX, _IDS_WITHIN_S = 1, 70.0  # the consumer writes three times a minute to one object, repetitions included
_ENDS = {"replace", "delete"}
_CHANGES_MAX, _CHANGES_WITHIN_S = 40, 150.0  # after an end; its event must not be among those that the stream drops
_LIVES_ON = {"replace": 0, "delete": 0}


class Traffic:
    """Changes objects at `rate` a second, as drawn from the seed; `made` counts what it did, by name."""

    def __init__(self, cluster: ClusterSandbox, seed: int, rate: float) -> None:
        self.made: Counter[str] = Counter()
        self.took_s = 0.0
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._pause_s = 1 / rate
        self._hot = [(NAMESPACES[0], f"hot-{number}") for number in range(_HOT)]
        self._cold = [(each, f"cold-{number:02}") for each in NAMESPACES for number in range(_COLD_PER_NAMESPACE)]
        self._ended: dict[tuple[str, str], float] = {}
        self._changed: Counter[tuple[str, str]] = Counter()
        self._needed: dict[tuple[str, str], list[float]] = {}
        self._numbers = iter(range(1_000_000_000))
        self._doing = {
            "version": self._version,
            "status": self._status,
            "model": self._model,
            "stop": self._stop,
            "unlabel": self._unlabel,
            "replace": self._replace,
            "delete": self._delete,
        }

    def populate(self) -> None:
        for where in (*self._hot, *self._cold):
            self._create(where)

    async def run(self) -> None:
        """Go on until cancelled."""
        began_at = due_at = time.monotonic()
        try:
            while True:
                due_at = max(due_at + self._pause_s, time.monotonic() - _LATE_S_MAX)
                await asyncio.sleep(due_at - time.monotonic())
                self._change()
        finally:
            self.took_s = time.monotonic() - began_at

    @property
    def rate(self) -> float:
        """Changes a second that were really made."""
        return self.made.total() / self.took_s if self.took_s else 0.0

    def _change(self) -> None:
        is_hot = self._chance.random() < _HOT_SHARE
        where = self._chance.choice(self._hot if is_hot else self._cold)
        if self._must_rest(where):
            is_hot, where = True, self._chance.choice(self._hot)
        if self._object(where) is None:
            name = "create"
            self._create(where)
        else:
            name = self._what(where, is_hot=is_hot)
            self._doing[name](where)
        if name in _ENDS:
            self._ended[where], self._changed[where] = time.monotonic(), 0
        self._changed[where] += 1
        self.made[name] += 1

    def _what(self, where: tuple[str, str], *, is_hot: bool) -> str:
        weights = _WEIGHTS | (_LIVES_ON if is_hot else {})
        name = self._chance.choices(list(weights), list(weights.values()))[0]
        return name if name not in _NEEDS_AN_ID or self._may_need_an_id(where) else "status"

    def _must_rest(self, where: tuple[str, str]) -> bool:
        ended_at = self._ended.get(where)
        if ended_at is None or time.monotonic() - ended_at > _CHANGES_WITHIN_S:
            return False
        return self._changed[where] >= _CHANGES_MAX

    def _may_need_an_id(self, where: tuple[str, str]) -> bool:
        now = time.monotonic()
        recent = [at for at in self._needed.get(where, []) if now - at < _IDS_WITHIN_S]
        self._needed[where] = recent if len(recent) == _IDS_MAX else [*recent, now]
        return len(recent) < _IDS_MAX

    def _object(self, where: tuple[str, str]) -> dict[str, Any] | None:
        return self._cluster.get("InferenceService", *where)

    def _create(self, where: tuple[str, str]) -> None:
        model = self._chance.choice(list(MODELS))
        version = self._chance.choice(MODELS[model])
        self._cluster.create(isvc("/".join(where), model=model, version=version, annotations=KNATIVE))

    def _label(self, where: tuple[str, str], model: str) -> None:
        labels = {MODEL: model, VERSION: self._chance.choice(MODELS[model])}
        self._merge(where, {"labels": labels})

    def _version(self, where: tuple[str, str]) -> None:
        labels = self._labels(where)
        self._label(where, labels.get(MODEL) or self._chance.choice(list(MODELS)))

    def _model(self, where: tuple[str, str]) -> None:
        self._label(where, self._chance.choice(list(MODELS)))

    def _unlabel(self, where: tuple[str, str]) -> None:
        self._merge(where, {"labels": {MODEL: None, VERSION: None}})

    def _stop(self, where: tuple[str, str]) -> None:
        self._merge(where, {"annotations": {STOP: self._chance.choice(("true", None))}})

    def _status(self, where: tuple[str, str]) -> None:
        ready = {"type": "Ready", "status": self._chance.choice(("True", "False"))}
        url = f"http://{where[1]}-{next(self._numbers)}.example"
        status = {"url": url, "conditions": [ready | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        self._cluster.patch("InferenceService", where, {"status": status}, part="status")

    def _replace(self, where: tuple[str, str]) -> None:
        self._cluster.delete("InferenceService", *where)
        self._create(where)

    def _delete(self, where: tuple[str, str]) -> None:
        away = sum(self._object(each) is None for each in (*self._hot, *self._cold))
        if away < _AWAY_MAX:
            self._cluster.delete("InferenceService", *where)
        else:
            self._replace(where)

    def _labels(self, where: tuple[str, str]) -> dict[str, str]:
        found = self._object(where)
        assert found is not None, "only what exists is changed"
        labels: dict[str, str] = found["metadata"].get("labels") or {}
        return labels

    def _merge(self, where: tuple[str, str], metadata: dict[str, Any]) -> None:
        self._cluster.patch("InferenceService", where, {"metadata": metadata})
