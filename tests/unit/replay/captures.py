"""Small captures for tests of files, redaction and statistics."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from replay.capture import Action, Captured, Facts, Header, Line, Position, RecordFact
from replay.files import writing
from replay.recording.watchfile import captured

STORIES = Path(__file__).parents[2] / "captures"
CLUSTER_ID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
HEADER = Header(
    capture="isvc-capture/1",
    created="2026-11-30T12:00:00Z",
    tool="0.1.0",
    cluster="prod",
    cluster_id=CLUSTER_ID,
    source="watch-file",
)
RECORD = RecordFact(
    id="17", name="scorer/u1", external_id="kserve:u1/1", environment="credit", model_id="1", deployed=True
)
FACTS = Facts(at="end", environments={"credit": "3"}, records=(RECORD,))
ACTION = Action(event=1, object="isvc/credit/scorer", kind="CreateRecord", status=201, ms=14.5)


def story(name: str) -> Iterator[Facts | Captured]:
    """Return facts and events of a recorded watch stream."""
    return captured((STORIES / f"{name}.jsonl").read_bytes().splitlines(keepends=True), CLUSTER_ID, "prod")


def small() -> list[Line]:
    """Return a few lines of each kind but header and footer."""
    lines = list(story("create-ready-delete"))
    return [*lines[:3], ACTION, FACTS]


@cache
def first_event() -> Captured:
    return next(line for line in small() if isinstance(line, Captured))


def at(seq: int, event: Captured) -> Captured:
    """Return the event at another place of the stream."""
    return Captured(event.event, event.data, Position(seq, event.position.subject), event.initial)


def write(path: Path, lines: list[Line], header: Header = HEADER) -> bytes:
    with writing(path, header) as writer:
        for line in lines:
            writer.write(line)
    return path.read_bytes()
