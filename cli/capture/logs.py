"""`isvc-sync record --log`: what consumers did about the recorded events, from their logs.

A log is read when everything else is recorded: until then consumers go on, and so do their logs.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cli.capture.recording import Recording, Session
from cli.output import many
from replay.files import BROKEN, lines_of, unpacked
from replay.recording.consumer_log import ConsumerLog

STDIN: Final = Path("-")


def require_there(logs: Iterable[Path]) -> None:
    """Raise OSError for a log that is no file, before any work is done."""
    for path in logs:
        if path != STDIN and stat.S_ISDIR(path.stat().st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def write_actions(session: Session, recording: Recording) -> None:
    """Write the actions that the logs tell of; what cannot be read is said, and takes nothing else with it."""
    logs = session.options.logs
    if not logs:
        return
    recording.recorded.until = _until(session, recording)
    log, written = ConsumerLog(recording.recorded), 0
    for path in logs:
        _read(session, log, path)
    for action in log.actions():
        recording.write(action)
        written += 1
    if not written and log.lines:
        session.progress.tell("The logs tell of nothing that was done about these events.")


def _until(session: Session, recording: Recording) -> int | None:
    """Return when the recording ends where `--until` says it, as Unix time in microseconds."""
    until = session.wanted.until
    if until is None:
        return None
    return round(until.at_s * 1e6) if until.seq is None else recording.recorded.last


def _read(session: Session, log: ConsumerLog, path: Path) -> None:
    lines, damaged = log.lines, log.damaged
    try:
        with unpacked(path) as file:
            log.read(lines_of(file))
    except BROKEN as error:
        session.troubles.append(f"{path} was cut: {error}. What it tells up to there is recorded.")
    except OSError as error:
        session.troubles.append(f"{path} cannot be read: {error.strerror or error}.")
    else:
        if log.lines == lines:
            session.troubles.append(f"{path} holds no line of a log in JSON: run the consumers with LOG_FORMAT=json.")
    if log.damaged > damaged:
        session.troubles.append(f"{many(log.damaged - damaged, 'line')} of {path} cannot be read: passed over.")
