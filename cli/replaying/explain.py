"""`isvc-sync explain`: the life of one object, live (`explaining.py`) or from a capture, and why it has no record."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from cli.ending import Endings, guarded
from cli.output import console, failed, silence_logs, write_json
from cli.progress import tell
from cli.replaying.explained import listing
from replay import files
from replay.life.captured import found_in
from replay.life.conclusion import Life, life
from replay.life.pending import Cause
from replay.planning import Planner
from shared.errors import SettingsError
from shared.objects import Kind, ObjectKey

COMMAND: Final = "explain"
_ASSUMED: Final = "the capture has no facts about models and versions: those that labels name were taken to exist."
AGREES, PENDING, INCOMPLETE = 0, 1, 3
_ENDINGS: Final = Endings(unread=AGREES, unreachable=INCOMPLETE, cut=INCOMPLETE)


class Options(Struct, frozen=True, kw_only=True):
    """Which object, `<namespace>/<name>`; of one kind, or of whichever there is (""); from a capture, or live."""

    name: str
    file: Path | None = None
    kind: Literal["", "isvc", "llmisvc"] = ""
    output: Literal["table", "json"] = "table"

    @property
    def keys(self) -> tuple[ObjectKey, ...]:
        """The objects that may be meant. Raises SettingsError for a name that is none."""
        parts = self.name.split("/")
        if len(parts) != 2 or not all(parts):
            raise SettingsError(f"{self.name[:80]!r} is not NAMESPACE/NAME.")
        kinds = (Kind(self.kind),) if self.kind else tuple(Kind)
        return tuple(ObjectKey(kind, parts[0], parts[1]) for kind in kinds)


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Explain; return the exit code."""
    return guarded(COMMAND, _ENDINGS, lambda: _explained(options, environ))


def _explained(options: Options, environ: Mapping[str, str]) -> int:
    if options.file is not None:
        return _from_capture(options, options.keys, options.file)
    from cli.replaying.explaining import live_of  # noqa: PLC0415 - a capture need not wait for a Kubernetes client

    keys = options.keys
    silence_logs()
    lives = asyncio.run(live_of(keys, environ))
    code = _show(options, lives[0])
    _tell_others(lives[0].key, [each.key for each in lives[1:]])
    return code


def _from_capture(options: Options, keys: tuple[ObjectKey, ...], file: Path) -> int:
    silence_logs()
    with files.reading(file) as capture:
        planner = Planner(capture.header)
        evidence = asyncio.run(found_in(capture, keys, planner, capture.header.plan_settings))
    known = [each for each in evidence if each.past] or evidence[:1]
    code = _show(options, life(known[0]))
    _tell_others(known[0].key, [each.key for each in known[1:]])
    if planner.assuming:
        tell(COMMAND, _ASSUMED)
    if capture.cut is not None:
        return failed(COMMAND, f"{capture.name} was cut, {capture.cut}: this is the life up to there.", INCOMPLETE)
    return code


def _tell_others(shown: ObjectKey, others: list[ObjectKey]) -> None:
    """Say that a name is also that of an object of another kind."""
    for key in others:
        tell(
            COMMAND, f"this is the {shown.kind}; there is an {key.kind} of that name, too: --kind {key.kind} shows it."
        )


def _show(options: Options, found: Life) -> int:
    if options.output == "json":
        write_json(found)
    else:
        console().print(listing(found))
    return code_of(found)


def code_of(found: Life) -> int:
    """Return the exit code that says how an object is."""
    if found.cause == Cause.UNREAD or (found.agrees and (found.unread or found.planned)):
        return INCOMPLETE
    return AGREES if found.agrees else PENDING
