"""What was lived is what is planned: a fresh run of producer and consumer, taken down and decided again."""

import pytest

from replay.capture import Captured, Facts
from replay.files import reading
from replay.planning import Planner
from tests.captures.contents import of_facts, of_registry
from tests.captures.live_golden import record


@pytest.mark.parametrize("story", ["outage", "two-registries"])
async def test_a_capture_of_a_live_run_ends_in_the_same_records_when_it_is_decided_again(story, tmp_path, guard):
    path = tmp_path / "capture.jsonl"
    await record(story, path, tmp_path / "world", guard)
    ends = []
    with reading(path) as capture:
        planner = Planner(capture.header, strict=True)
        for line in capture:
            match line:
                case Facts(at="end"):
                    ends.append(line)
                case Facts():
                    planner.facts(line)
                case Captured():
                    planner.decide(line)
    for end in ends:
        assert of_facts([end])
        assert of_registry(planner.registry(end.registry)) == of_facts([end])
