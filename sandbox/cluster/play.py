"""Play a recorded watch stream into the store, so that watchers see the recorded events again.

The format is that of tests/captures: a header line, then lines with `received` and `event` (or `did`, which is for
people). Objects keep their uid, and their resourceVersion as long as that is higher than the store's; else the next
number is taken, so the order always stays. An initial state was recorded in name order and is stored in the order of
its resourceVersions.
"""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from sandbox.cluster.resources import NAMESPACES, Kind
from sandbox.cluster.rules import Cluster
from sandbox.cluster.status import Obj

_PLAYED = ("InferenceService", "LLMInferenceService")


class RecordedEvent(msgspec.Struct, frozen=True):
    """One line of a watch stream."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Obj

    @property
    def version(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])


class Line(msgspec.Struct, frozen=True):
    """One line of a capture; exactly one of the fields besides `received` is set, none for the header."""

    received: datetime | None = None
    event: RecordedEvent | None = None
    did: str | None = None


class CaptureError(ValueError):
    """A file is no capture; the message names file and line."""


def read(path: Path) -> list[Line]:
    """Read a capture's events in the order in which they are to be stored. Raises CaptureError, OSError."""
    lines: list[Line] = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line = msgspec.json.decode(text, type=Line)
        except msgspec.MsgspecError as error:
            raise CaptureError(f"{path}, line {number}: {error}") from error
        if line.event is None:
            continue
        kind = line.event.object.get("kind")
        if line.event.type != "BOOKMARK" and kind not in _PLAYED:
            raise CaptureError(
                f"{path}, line {number}: an event of {kind!r}, and only {' and '.join(_PLAYED)} are played"
            )
        lines.append(line)
    if not lines:
        raise CaptureError(f"{path} holds no watch event: is it a capture (one JSON object with `event` a line)?")
    return _initial_state_first(lines)


def _initial_state_first(lines: list[Line]) -> list[Line]:
    """Sort the leading run of ADDED events that is an initial state: the one whose resourceVersions do not rise."""
    leading = 0
    while leading < len(lines) and (event := lines[leading].event) is not None and event.type == "ADDED":
        leading += 1
    return sorted(lines[:leading], key=_version) + lines[leading:]


def _version(line: Line) -> int:
    assert line.event is not None
    return line.event.version


async def play(cluster: Cluster, lines: list[Line], pace: float = 0.0) -> int:
    """Store the events of a capture; returns how many writes were made.

    `pace` multiplies the recorded gaps: 1.0 is the recorded speed, 0 as fast as possible.
    """
    kinds = {kind.kind: kind for kind in cluster.kinds.values()}
    _make_namespaces(cluster, lines)
    written, before = 0, None
    for line in lines:
        if line.event is None:
            continue
        gap_s = (line.received - before).total_seconds() if line.received and before else 0.0
        before = line.received or before
        await asyncio.sleep(max(0.0, gap_s * pace))
        if line.event.type == "BOOKMARK":
            cluster.store.advance(line.event.version)
            continue
        kind = kinds[line.event.object["kind"]]
        written += _store(cluster, kind, line.event)
    return written


def _make_namespaces(cluster: Cluster, lines: list[Line]) -> None:
    events = [line.event for line in lines if line.event is not None and line.event.type != "BOOKMARK"]
    for name in dict.fromkeys(event.object["metadata"].get("namespace", "") for event in events):
        if name and cluster.store.get(NAMESPACES, f"/{name}") is None:
            cluster.create(cluster.kinds[NAMESPACES], "", {"metadata": {"name": name}})


def _store(cluster: Cluster, kind: Kind, event: RecordedEvent) -> bool:
    """Store one event; returns whether something was written (a repeated initial state writes nothing)."""
    metadata = event.object["metadata"]
    key = f"{metadata.get('namespace', '')}/{metadata['name']}"
    current = cluster.store.get(kind.resource, key)
    if event.type == "DELETED":
        if current is not None:
            cluster.vanish(kind, key, event.version)
        return current is not None
    if current is not None and (current.uid, current.version) == (metadata["uid"], event.version):
        return False
    cluster.restore(kind, event.object, event.version)
    return True
