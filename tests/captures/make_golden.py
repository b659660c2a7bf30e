"""Make the golden captures and their plans again.

    python -m tests.captures.make_golden               captures of tests/captures/*.jsonl, and all plans
    python -m tests.captures.make_golden --plans       the plans only: what a change of the code decides, accepted
    python -m tests.captures.make_golden --live        also the captures of live runs; needs nats-server, takes a minute

A golden capture changes only when the story or the format does. A plan changes with the code: look at its diff, against
tests/captures/README.md and golden/README.md, before accepting it.
"""

import asyncio
import io
import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path

import cli.replaying.plan
from replay.capture import FORMAT, Captured, Facts, Header
from replay.files import writing
from replay.recording.watchfile import WatchFile
from shared.subjects import Subjects

CAPTURES = Path(__file__).parent
GOLDEN = CAPTURES / "golden"
EXPECTED = CAPTURES / "expected"
CLUSTER, CLUSTER_ID = "golden", "3f1c2a34-0000-4000-8000-000000000001"
MODELS = tuple(str(number) for number in range(1, 41))  # as in tests/e2e/pipeline.py
WATCHED = sorted(path.stem for path in CAPTURES.glob("*.jsonl"))


def main(arguments: list[str]) -> None:
    GOLDEN.mkdir(exist_ok=True)
    if "--plans" not in arguments:
        for story in WATCHED:
            write_watched(story, GOLDEN / f"{story}.jsonl")
    if "--live" in arguments:
        from tests.captures import live_golden  # noqa: PLC0415 - needs a broker

        asyncio.run(live_golden.record_all(GOLDEN))
    for path in sorted(GOLDEN.glob("*.jsonl")):
        path.with_suffix(".plan").write_text(plan_of(path))


def write_watched(story: str, path: Path) -> None:
    """Write a golden capture from a recorded watch stream, with the facts that its expected end assumes."""
    source = CAPTURES / f"{story}.jsonl"
    recorded = json.loads(source.open("rb").readline())["recorded"]
    header = Header(
        capture=FORMAT,
        created=recorded,
        tool="golden",
        cluster=CLUSTER,
        cluster_id=CLUSTER_ID,
        source="watch-file",
        consumed=False,  # only KServe ran, and people and tools of the stories wrote ids of their own
    )
    versions = tomllib.loads((EXPECTED / f"{story}.toml").read_text())["versions"]
    with writing(path, header) as writer:
        writer.write(Facts(models=MODELS, versions=versions))
        for line in _events(source, recorded):
            writer.write(line)


def _events(source: Path, recorded: str) -> Iterator[Captured]:
    """Yield the events; what the converter tells as facts is a guess from labels, and the story knows better."""
    watched = WatchFile(Subjects("isvc", CLUSTER, 16), CLUSTER_ID, _when(recorded), lambda _: None)
    with source.open("rb") as lines:
        yield from (line for line in watched.lines(lines) if isinstance(line, Captured))


def _when(recorded: str) -> datetime:
    return datetime.fromisoformat(recorded)


def plan_of(path: Path) -> str:
    """Return what `isvc-sync replay` prints."""
    with redirect_stdout(io.StringIO()) as out:
        code = cli.replaying.plan.run(cli.replaying.plan.Options(file=path))
    assert code == cli.replaying.plan.SHOWN, path
    return out.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
