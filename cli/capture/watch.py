"""`isvc-sync record --from-watch`: from the output of `kubectl get isvc -A -w -o json --output-watch-events`.

Needs no cluster, no broker and no registry: what a registry holds is not known, so the models and versions that labels
name are taken to be there.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cli.capture.recording import Session
from replay.capture import CutError
from replay.files import BROKEN, lines_of, unpacked
from replay.recording.watchfile import DOCUMENT_BYTES_MAX, WatchFile
from shared.subjects import Subjects

_CLUSTER: Final = "recorded"
_CLUSTER_ID: Final = "recorded-from-a-watch"
_SHARDS: Final = 16


def record_watch(session: Session, source: Path) -> None:
    """Record a file, `-` for standard input.

    Raises CaptureError for what is no watch file, CutError for one that tells of no object, OSError.
    """
    options = session.options
    cluster, cluster_id = options.cluster_name or _CLUSTER, options.cluster_id or _CLUSTER_ID
    watch = WatchFile(Subjects("isvc", cluster, _SHARDS), cluster_id, datetime.now(UTC), session.passed_over)
    header = session.header(cluster=cluster, cluster_id=cluster_id, source="watch-file")
    cut = ""
    with unpacked(source) as file, session.recorder(header) as recording:
        session.live = session.live or not _is_file(source)
        try:
            for line in watch.lines(lines_of(file, DOCUMENT_BYTES_MAX)):
                recording.write(line)
        except (CutError, *BROKEN) as error:
            cut = f"{source} was cut: {error}."
        if not watch.objects_seen:
            raise CutError(cut or f"{source} tells of no object: was kubectl called with -o json?")
    if cut:
        session.troubles.append(f"{cut} What stands before it is recorded.")


def _is_file(source: Path) -> bool:
    """Whether all of it is there already; a pipe may go on for days."""
    return Path("/dev/stdin" if str(source) == "-" else source).is_file()
