"""What `plan` decides about the recorded stories of a real KServe is what a real consumer does about them."""

import json

import pytest
from msgspec.structs import replace

from replay.capture import Captured, Facts, RecordFact
from replay.planning import Planner
from tests.integration.replay.commands import replay
from tests.unit.replay.captures import HEADER, STORIES, story, write


def all_stories() -> list[Facts | Captured]:
    """Return all stories, one after the other. A version stays with the model that the first of them has it of."""
    lines: list[Facts | Captured] = []
    versions: dict[str, str] = {}
    for path in sorted(STORIES.glob("*.jsonl")):
        for line in story(path.stem):
            if isinstance(line, Captured):
                lines.append(replace(line, position=replace(line.position, seq=len(lines) + 1)))
            else:
                new = {version: model for version, model in line.versions.items() if version not in versions}
                versions |= new
                lines.append(replace(line, versions=new))
    return lines


def planned(lines: list[Facts | Captured]) -> Facts:
    """Return what the registry holds after the plan."""
    planner = Planner(HEADER)
    for line in lines:
        planner.facts(line) if isinstance(line, Facts) else planner.decide(line)
    planner.end()
    (registry,) = planner.registries.values()
    environments = {number: name for name, number in registry.environments().items()}
    records = [
        RecordFact(
            id=each.id,
            name=each.name,
            external_id=each.external_id,
            environment=environments[each.environment_id],
            model_id=each.model_id,
            version_id=each.version_id,
            runtime=each.runtime,
            deployed=each.deployed,
            properties=each.properties,
        )
        for each in registry.records()
    ]
    return Facts(at="end", records=tuple(records))


@pytest.mark.timeout(240)
async def test_the_registry_ends_as_planned(tmp_path, record_property):
    lines = all_stories()
    path = tmp_path / "all.jsonl"
    write(path, [*lines, planned(lines)])
    done = await replay(path, "--to", "sandbox", "-o", "json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    agreeing = sum(each["agrees"] for each in document["objects"])
    assert agreeing == len(document["objects"]) > 80
    record_property("figures", f"{document['events']} events, {agreeing} records as planned")
