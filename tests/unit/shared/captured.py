"""The recorded watch streams of `tests/captures/`, read as the API server sent them."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parents[2] / "captures"


@cache
def stories() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in CAPTURES.glob("*.jsonl")))


@cache
def watch_events(story: str) -> tuple[tuple[str, Any], ...]:
    """Return type and object of each watch event of a story, bookmarks left out. Nobody may change the objects."""
    lines = (json.loads(line) for line in (CAPTURES / f"{story}.jsonl").read_text().splitlines())
    events = (line["event"] for line in lines if "event" in line)
    return tuple((event["type"], event["object"]) for event in events if event["type"] != "BOOKMARK")


def every_object() -> Iterator[Any]:
    for story in stories():
        for _, obj in watch_events(story):
            yield obj
