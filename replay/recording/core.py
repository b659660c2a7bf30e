"""What is recorded: which objects, which of a registry's records count as initial, and the way into the file. Pure.

    events, facts ──► Recorder: chosen? ──► Redactor ──► Writer

A record that a captured event wrote is no initial fact, or a replay would find done what it is to do. Which those are,
the record itself says: its stamp tells the state that it was written from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Literal

import msgspec

from consumer.records import Record
from replay.capture import Captured, Facts, Line, RecordFact, decode
from replay.files import Writer
from replay.upkeep.redaction import Redactor
from shared.errors import BadEventError
from shared.events import Event, EventType
from shared.objects import Kind, ObjectKey, compare_resource_versions
from shared.subjects import Subjects, escape

RECORDS_PER_LINE: Final = 200  # of 1.5 KB each
_EXTERNAL_ID: Final = "kserve:"

Tell = Callable[[str], None]


class Chosen(msgspec.Struct, frozen=True):
    """Which objects are recorded. Empty namespaces and objects: all; an object is (namespace, name)."""

    kinds: tuple[Kind, ...] = tuple(Kind)
    namespaces: frozenset[str] = frozenset()
    objects: frozenset[tuple[str, str]] = frozenset()

    def takes(self, key: ObjectKey) -> bool:
        if key.kind not in self.kinds:
            return False
        everything = not self.namespaces and not self.objects
        return everything or key.namespace in self.namespaces or (key.namespace, key.name) in self.objects

    @property
    def scopes(self) -> tuple[str, ...]:
        """The namespaces to watch one by one; ("",) stands for all of them."""
        return tuple(sorted(self.namespaces | {namespace for namespace, _ in self.objects})) or ("",)

    def filters(self, subjects: Subjects) -> tuple[str, ...]:
        """Return the subjects of their events; no two of them overlap, as a broker demands."""
        found = []
        for kind in self.kinds:
            if not self.namespaces and not self.objects:
                found.append(subjects.all_events(kind))
            found += [subjects.all_events(kind, namespace) for namespace in sorted(self.namespaces)]
            for namespace, name in sorted(self.objects):
                if namespace not in self.namespaces:
                    found.append(f"{subjects.all_events(kind, namespace).removesuffix('*')}{escape(name)}")
        return tuple(found)


class First(msgspec.Struct, frozen=True):
    """The first captured event of a uid. `initial`: it says what was there before."""

    epoch: int
    resource_version: str
    initial: bool

    @classmethod
    def of(cls, event: Event, *, initial: bool) -> "First":
        return cls(event.epoch, event.resource_version, initial)


class Recorder:
    """Puts lines into a file. `left_out` counts the events that could not be: `tell` takes a sentence for each."""

    def __init__(self, writer: Writer, redactor: Redactor, chosen: Chosen, tell: Tell) -> None:
        self._writer = writer
        self._redactor = redactor
        self._chosen = chosen
        self._tell = tell
        self._keys: set[ObjectKey] = set()
        self.firsts: dict[str, First] = {}
        self.left_out = 0

    @property
    def events(self) -> int:
        return self._writer.events

    def flush(self) -> None:
        self._writer.flush()

    def place(self) -> None:
        """Let the file take its place as far as it is: somebody may want what there is. Raises OSError."""
        self._writer.place()

    def takes(self, line: Line) -> bool:
        return not isinstance(line, Captured) or self._chosen.takes(line.event.key)

    def write(self, line: Line) -> Line | None:
        """Write a line and return it as it stands in the file, None when it was left out.

        The first event of a key, when it is no creation, is initial: what came before is lost.
        """
        if isinstance(line, Captured):
            if line.event.key not in self._keys and line.event.type is not EventType.CREATED:
                line = msgspec.structs.replace(line, initial=True)
            self._keys.add(line.event.key)
            self.firsts.setdefault(line.event.uid, First.of(line.event, initial=line.initial))
        try:
            text = self._redactor.line(line)
        except BadEventError as error:
            self.pass_over(str(error))
            return None
        self._writer.write_text(text, line)
        return decode(text) if self._redactor.is_anonymous else line

    def pass_over(self, why: str) -> None:
        """Note that an event is not recorded."""
        self.left_out += 1
        self._tell(f"An event was left out: {why}.")


def was_before(record: Record, firsts: Mapping[str, First]) -> bool:
    """Whether a record was there before the first captured event of its uid; False for a uid without one."""
    first = firsts.get(uid_of(record))
    return first is not None and _is_older(record, first)


def uid_of(record: Record) -> str:
    """Return whose record it is, by what the consumer finds records by; "" where nothing says it."""
    stamp = record.stamp
    if stamp is not None:
        return stamp.uid
    if record.external_id.startswith(_EXTERNAL_ID):
        return record.external_id.removeprefix(_EXTERNAL_ID).partition("/")[0]
    return [*record.name.split("/"), ""][1]


def record_facts(
    at: Literal["start", "end"], registry: str, records: Iterable[Record], environments: Mapping[str, str]
) -> Iterator[Facts]:
    """Yield lines about records; `environments`: id to name. At the end also one that says that there are none.

    Without it nobody could tell a registry that held nothing from one that was not asked.
    """
    found = [_fact(record, environments) for record in records]
    if at == "end" and not found:
        yield Facts(at=at, registry=registry)
    facts = iter(found)
    while some := tuple(islice(facts, RECORDS_PER_LINE)):
        ids = {record.environment for record in some}
        named = {name: number for number, name in environments.items() if name in ids}
        yield Facts(at=at, registry=registry, environments=named, records=some)


def _is_older(record: Record, first: First) -> bool:
    """Whether a record stood before that event, as far as it says; one that we never wrote did."""
    stamp = record.stamp
    if stamp is None:
        return True
    if stamp.epoch != first.epoch:
        return stamp.epoch < first.epoch
    order = compare_resource_versions(stamp.resource_version, first.resource_version)
    return order < 0 or (order == 0 and first.initial)


def _fact(record: Record, environments: Mapping[str, str]) -> RecordFact:
    return RecordFact(
        id=record.id,
        name=record.name,
        external_id=record.external_id,
        environment=environments.get(record.environment_id, f"id {record.environment_id}"),
        model_id=record.model_id,
        version_id=record.version_id,
        runtime=record.runtime,
        deployed=record.deployed,
        properties=record.properties,
    )
