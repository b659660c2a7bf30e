"""etcd and its API server as a model: both kinds, several namespaces, one counter, a bounded history.

Answers are the items that `producer/items.py` makes of a real server's bytes; objects go through the real reader once
for each content.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec

from producer.items import Bookmark, Closed, Gone, Item, Lost, Malformed, Observed, Page, Refused, Seen, Silent
from producer.reading import Reader
from shared.objects import Kind, ObjectKey
from shared.reduce import REGISTRY_PREFIXES
from tests.simulation.producer.chance import Chance

NAMESPACES = ("n1", "n2", "n3")
NAMES = ("a", "b", "c", "d", "e", "f")
MODELS = ("", "1", "2", "3")
MODEL = "modelregistry.kubeflow.org/registered-model-id"
PAGE = 3
LIFETIME_S = 300
BOOKMARKS_S = 60
Write = Seen | Gone
Stream = Iterator[Item | None]  # None: nothing to say at present


@cache
def _content(kind: Kind, model: str, image: int) -> Observed:
    """What the real reader makes of an object; model and image are all that its digest covers here."""
    raw: dict[str, Any] = {
        "metadata": {
            "name": "x",
            "namespace": "x",
            "uid": "x",
            "resourceVersion": "1",
            "labels": {MODEL: model} if model else {},
            "annotations": {"serving.kserve.io/image": str(image)},
        },
        "spec": {},
    }
    found = Reader(kind, REGISTRY_PREFIXES, f"serving.kserve.io/{kind}").object(raw)
    assert isinstance(found, Observed)
    return found


@dataclass(frozen=True)
class Living:
    """An object in etcd."""

    uid: str
    version: int
    model: str
    image: int

    def observed(self, key: ObjectKey, version: int = 0) -> Observed:
        content = _content(key.kind, self.model, self.image)
        written = str(version or self.version)
        identity = {"name": key.name, "namespace": key.namespace, "uid": self.uid, "resourceVersion": written}
        body = {**content.body, "metadata": {**content.body["metadata"], **identity}}
        return msgspec.structs.replace(content, key=key, uid=self.uid, resource_version=written, body=body)


@dataclass
class Cluster:
    version: int = 10
    objects: dict[ObjectKey, Living] = field(default_factory=dict)
    history: list[tuple[int, Write]] = field(default_factory=list)
    begins_after: int = 10
    started: int = 0  # how often the API server was: a stream ends with the server that it came from
    restored: int = 0
    uids: int = 0
    absent: set[str] = field(default_factory=set)  # uids that have not existed for at least a moment
    vanished: set[str] = field(default_factory=set)  # namespaces

    def write(self, chance: Chance) -> None:
        """Create, change, touch or delete one object."""
        key = ObjectKey(chance.choice(tuple(Kind)), chance.choice(NAMESPACES), chance.choice(NAMES))
        now = self.objects.get(key)
        if now is None:
            self.create(key, chance.choice(MODELS))
        elif chance.random() < 0.3:
            self.delete(key)
            if chance.random() < 0.4:  # at once again under the same name
                self.create(key, chance.choice(MODELS))
        else:
            self.change(key, chance)

    def create(self, key: ObjectKey, model: str = "") -> None:
        self.uids += 1
        self.vanished.discard(key.namespace)
        self._put(key, Living(f"u{self.uids}", self._next(), model, 0))

    def change(self, key: ObjectKey, chance: Chance) -> None:
        now, what = self.objects[key], chance.random()
        if what < 0.4:  # status noise: only the version moves
            self._put(key, replace(now, version=self._next()))
        elif what < 0.7:
            self._put(key, replace(now, version=self._next(), image=chance.randint(0, 2)))
        else:
            self._put(key, replace(now, version=self._next(), model=chance.choice(MODELS)))

    def delete(self, key: ObjectKey) -> None:
        now = self.objects.pop(key)
        self.absent.add(now.uid)
        self.history.append((self._next(), Gone(now.observed(key, self.version))))

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _put(self, key: ObjectKey, now: Living) -> None:
        self.objects[key] = now
        self.history.append((now.version, Seen(now.observed(key))))

    def backup(self) -> "Cluster":
        return replace(self, objects=dict(self.objects), history=[], vanished=set(self.vanished))

    def restore(self, backup: "Cluster") -> None:
        """Put an older copy back: what was done since has never happened, but a uid is not given twice."""
        self.absent |= {now.uid for now in self.objects.values()} - {now.uid for now in backup.objects.values()}
        self.version, self.objects, self.vanished = backup.version, dict(backup.objects), set(backup.vanished)
        self.restored += 1
        self.restart()

    def restart(self) -> None:
        """Start the API server anew: it forgets the history, and cuts all streams."""
        self.history, self.begins_after = [], self.version
        self.started += 1


class Api:
    """One API server's answers about a kind, in a namespace or (empty) in all of them."""

    def __init__(self, cluster: Cluster, chance: Chance, kind: Kind, namespace: str) -> None:
        self._cluster = cluster
        self._chance = chance
        self._kind = kind
        self._namespace = namespace
        self._listed: tuple[int, list[Observed], int] = (0, [], 0)

    def page(self, token: str) -> Item:
        if self._chance.fault("list refused"):
            return self._chance.choice(
                [Refused(503), Refused(404), Refused(403), Refused(401), Lost("reset"), Malformed("half a page")]
            )
        if not token:
            self._listed = (self._cluster.version, self._present(), self._cluster.started)
        version, found, started = self._listed
        if started != self._cluster.started or (token and self._chance.fault("page expired")):
            return Refused(410, "Expired")
        begin = int(token or 0)
        end = begin + PAGE
        return Page(tuple(found[begin:end]), str(version), str(end) if end < len(found) else "")

    def initial(self) -> Stream:
        if self._chance.fault("no WatchList"):
            yield Refused(422)
            return
        position, started = self._cluster.version, self._cluster.started
        for one in self._present():
            yield Seen(one)
            if started != self._cluster.started or self._chance.fault("initial state cut"):
                yield self._chance.choice([Lost("reset"), Closed(2.0), Silent(), Malformed("half a line")])
                return
        yield Bookmark(str(position), initial_end=True)
        yield from self._live(position)

    def watch(self, position: int) -> Stream:
        if self._chance.fault("watch refused"):
            yield self._chance.choice([Refused(503), Refused(429), Refused(401), Refused(403), Lost("refused")])
            return
        yield from self._live(position)

    def _live(self, position: int) -> Stream:
        """The changes after a position, for one watch."""
        cluster, opened_s, marked_s = self._cluster, self._chance.now_s, self._chance.now_s
        if position > cluster.version:
            self._chance.met("position in the future")
            yield Bookmark(str(cluster.version)) if self._chance.share(0.2) else Silent()
            return
        started = cluster.started
        while cluster.started == started:
            if position < cluster.begins_after or self._chance.fault("position expired"):
                self._chance.met("position expired")
                yield Refused(410, "Expired", in_stream=True)
                return
            if self._chance.fault("watch cut"):
                yield self._chance.choice([Lost("reset"), Closed(0.1), Refused(500, in_stream=True)])
                return
            if self._chance.fault("malformed line"):
                yield Malformed("half a line")
                return
            news = [(version, write) for version, write in cluster.history if version > position]
            if not news:
                if self._chance.now_s > opened_s + LIFETIME_S:
                    yield Closed(float(LIFETIME_S))
                    return
                if self._chance.now_s >= marked_s + BOOKMARKS_S:
                    marked_s = self._chance.now_s
                    yield Bookmark(str(cluster.version))
                else:
                    yield None
                continue
            position, write = news[0]
            if self._concerns(write.object.key):
                yield write
        yield Lost("the API server has gone")

    def _present(self) -> list[Observed]:
        """The objects in the order of their names, as a server lists them."""
        found = self._cluster.objects
        return [found[key].observed(key) for key in sorted(found) if self._concerns(key)]

    def _concerns(self, key: ObjectKey) -> bool:
        return key.kind is self._kind and self._namespace in {"", key.namespace}
