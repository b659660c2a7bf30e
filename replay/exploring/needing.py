"""Which facts the events of a small story can ask for: all others say nothing to it. Pure."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from consumer.observation import want
from consumer.records import Record
from replay.capture import Captured, Facts, RecordFact
from replay.exploring.story import Story, seen_of, uid_of


class Needs:
    """What the events of a story name: models, versions, objects, and their serving environments."""

    def __init__(self, story: Story) -> None:
        settings = story.header.plan_settings
        self._models: set[str] = set()
        self._versions: set[str] = set()
        self._uids: set[str] = set()
        self._names: set[str] = set()
        self._environments: set[str] = set()
        for line in story.events:
            self._of(line, settings.prefix)
            template = settings.environment.replace("{cluster}", settings.us.cluster)
            self._environments.add(template.replace("{namespace}", line.event.key.namespace))

    def _of(self, line: Captured, prefix: str) -> None:
        seen = seen_of(line)
        self._uids.add(line.event.uid)
        self._names.add(line.event.key.name)
        if seen is not None:
            wanted = want(seen, prefix)
            self._models |= {*seen.models, wanted.model or ""}
            self._versions.add(wanted.version)

    def of(self, facts: Iterable[Facts]) -> tuple[Facts | None, ...]:
        """Return of each line what is named, itself where that is everything, None where it is nothing."""
        lines = tuple(facts)
        records = [tuple(each for each in line.records if self._is_named(each)) for line in lines]
        kept = [record for those in records for record in those]
        self._models |= {record.model_id for record in kept}
        self._versions |= {record.version_id for record in kept}
        self._environments |= {record.environment for record in kept}
        parts = [self._part(line, those) for line, those in zip(lines, records, strict=True)]
        return tuple(self._still_telling(lines, parts))

    def _still_telling(self, lines: tuple[Facts, ...], parts: list[Facts | None]) -> Iterator[Facts | None]:
        """Yield the parts; of a registry that told only of models that nothing here names, also the first such line.

        Without it those that are named here would be taken to exist.
        """
        telling = {part.registry for part in parts if part is not None and _tells(part)}
        for line, part in zip(lines, parts, strict=True):
            if line.registry in telling or not _tells(line):
                yield part
            else:
                telling.add(line.registry)
                yield line

    def _is_named(self, fact: RecordFact) -> bool:
        """Whether a record is an object's, by its uid or, as one of another controller's, by its name."""
        record = Record(
            id=fact.id,
            name=fact.name,
            external_id=fact.external_id,
            environment_id=fact.environment,
            model_id=fact.model_id,
            properties=fact.properties,
        )
        return uid_of(record) in self._uids or fact.name.partition("/")[0] in self._names

    def _part(self, line: Facts, records: tuple[RecordFact, ...]) -> Facts | None:
        part = replace(
            line,
            models=tuple(each for each in line.models if each in self._models),
            versions={each: model for each, model in line.versions.items() if each in self._versions},
            absent_models=tuple(each for each in line.absent_models if each in self._models),
            absent_versions=tuple(each for each in line.absent_versions if each in self._versions),
            environments={name: each for name, each in line.environments.items() if name in self._environments},
            records=records,
        )
        if part == line:
            return line
        return None if part == Facts(at=line.at, registry=line.registry) else part


def _tells(facts: Facts) -> bool:
    return any((facts.models, facts.versions, facts.absent_models, facts.absent_versions))
