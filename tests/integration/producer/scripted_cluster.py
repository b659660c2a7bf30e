"""The cluster of which a script tells: what it holds, and each change as the line that a real server would send."""

from copy import deepcopy
from typing import Any

import msgspec

from producer.items import Observed
from producer.reading import INITIAL_EVENTS_END
from tests.unit.producer.observed import MODEL, READER, line, raw


class Cluster:
    """What the cluster holds, how a real server would say it, and what has ever been true."""

    def __init__(self, version: int = 10) -> None:
        self.version = version
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, bytes]] = []
        self.states: dict[tuple[str, str], dict[str, Any]] = {}  # uid and resourceVersion -> what was true, reduced
        self.gone: set[str] = set()  # uids
        self._created = 0

    def create(self, name: str, *, model: str = "", **metadata: Any) -> bytes:
        """Each change answers the line of its event."""
        self._created += 1
        return self._set(name, "ADDED", f"u{self._created}", model, metadata)

    def modify(self, name: str, *, model: str = "", **metadata: Any) -> bytes:
        return self._set(name, "MODIFIED", self.uid(name), model, metadata)

    def delete(self, name: str) -> bytes:
        self.version += 1
        found = self.objects.pop(name)
        found["metadata"]["resourceVersion"] = str(self.version)
        self.gone.add(found["metadata"]["uid"])
        return self._event("DELETED", found)

    def recreate(self, name: str, *, model: str = "") -> bytes:
        return self.delete(name) + self.create(name, model=model)

    def bookmark(self) -> bytes:
        self.version += 1  # by writes to other kinds
        return line("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}) + b"\n"

    def state(self, *names: str) -> bytes:
        """ADDED of the objects (default: of all), in the order of their names."""
        return b"".join(line("ADDED", self.objects[name]) + b"\n" for name in names or sorted(self.objects))

    def initial(self) -> bytes:
        metadata = {"resourceVersion": str(self.version), "annotations": {INITIAL_EVENTS_END: "true"}}
        return self.state() + line("BOOKMARK", {"metadata": metadata}) + b"\n"

    def page(self, *names: str, token: str = "", version: int = 0) -> bytes:
        """A page of a list with these objects; without a version, with the present one."""
        metadata = {"resourceVersion": str(version or self.version), "continue": token}
        items = [self.objects[name] for name in names]
        return msgspec.json.encode({"kind": "InferenceServiceList", "metadata": metadata, "items": items})

    def backup(self) -> tuple[int, dict[str, dict[str, Any]]]:
        return self.version, deepcopy(self.objects)

    def restore(self, copy: tuple[int, dict[str, dict[str, Any]]]) -> None:
        """Put etcd back to a copy: numbering and objects; what came after never was."""
        self.gone |= {self.uid(name) for name in self.objects}
        self.version, self.objects = copy
        self.gone -= {self.uid(name) for name in self.objects}
        self.history = []

    def uid(self, name: str) -> str:
        return str(self.objects[name]["metadata"]["uid"])

    def observed(self, name: str) -> Observed:
        found = READER.object(self.objects[name])
        assert isinstance(found, Observed)
        return found

    def _set(self, name: str, verb: str, uid: str, model: str, metadata: dict[str, Any]) -> bytes:
        self.version += 1
        self.objects[name] = raw(name, uid=uid, version=self.version, labels={MODEL: model} if model else {})
        self.objects[name]["metadata"].update(metadata)
        return self._event(verb, self.objects[name])

    def _event(self, verb: str, found: dict[str, Any]) -> bytes:
        seen = READER.object(found)
        assert isinstance(seen, Observed)
        self.states[seen.uid, seen.resource_version] = seen.body
        said = line(verb, found) + b"\n"
        self.history.append((self.version, said))
        return said
