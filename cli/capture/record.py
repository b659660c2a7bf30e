"""`isvc-sync record`: make a capture file, of the stream, of a cluster without a broker, or of kubectl's output.

What gets into the file is reduced and redacted (`replay/upkeep/redaction.py`), whatever it came from.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from rich.text import Text

from cli.capture.logs import STDIN, require_there
from cli.capture.recording import Options, Progress, Session, Wanted
from cli.capture.shown import as_data, listing
from cli.ending import REFUSED, Endings, guarded
from cli.output import console, failed, silence_logs, write_json
from cli.writable import in_the_way

COMMAND: Final = "record"
DONE, LEFT_OUT, INCOMPLETE = 0, 1, 3
_ENDINGS: Final = Endings(unread=DONE, unreachable=INCOMPLETE, cut=INCOMPLETE)


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Record; return the exit code."""
    try:
        wanted = Wanted.of(options)
    except ValueError as error:
        return failed(COMMAND, str(error), REFUSED)
    return guarded(COMMAND, _ENDINGS, lambda: _recorded(options, wanted, environ))


def _recorded(options: Options, wanted: Wanted, environ: Mapping[str, str]) -> int:
    refused = _contradiction(options, wanted) or _in_the_way(options)
    if refused:
        return failed(COMMAND, refused, REFUSED)
    require_there(options.logs)
    silence_logs()
    with Progress(COMMAND) as progress:
        session = Session(options, wanted, progress)
        try:
            _record(session, environ)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(_left_by(session)) from error
    return _show(session)


def _left_by(session: Session) -> str:
    """Return what an interruption leaves."""
    if not session.begun:
        return "interrupted: nothing was written."
    return "interrupted: the file has no footer, and can be read up to its end."


def _record(session: Session, environ: Mapping[str, str]) -> None:
    options = session.options
    if options.watch is not None:
        from cli.capture.watch import record_watch  # noqa: PLC0415 - needs neither broker nor cluster

        record_watch(session, options.watch)
    elif options.cluster:
        from cli.capture.cluster import record_cluster  # noqa: PLC0415 - a watch file needs no cluster

        asyncio.run(record_cluster(session, environ))
    else:
        from cli.capture.stream import record_stream  # noqa: PLC0415 - nor does a stream

        asyncio.run(record_stream(session, environ))


def _contradiction(options: Options, wanted: Wanted) -> str:
    """Return a sentence when the options do not go together."""
    from_file, of_a_cluster = options.watch is not None, bool(options.cluster_name or options.cluster_id)
    wrong = {
        "--from-watch and --from-cluster are two sources: choose one.": from_file and options.cluster,
        "--from-watch is read to its end: --follow and --for say nothing there.": from_file and wanted.follow,
        "--from and --until are places in the stream, which is not read here.": (
            (from_file or options.cluster) and (options.since or options.until)
        ),
        "--cluster and --cluster-id go with --from-watch; else CLUSTER_NAME says it.": of_a_cluster and not from_file,
        "--salt says nothing without --anonymous.": options.salt and not options.anonymous,
        "--log goes with the stream: what consumers did is told by its sequences.": (
            options.logs and (from_file or options.cluster)
        ),
        "--log - is read when all else is recorded: with --follow and --for, name a file.": (
            STDIN in options.logs and wanted.follow
        ),
    }
    return next((sentence for sentence, applies in wrong.items() if applies), "")


def _in_the_way(options: Options) -> str:
    """Return a sentence when the capture cannot be written, or only over what is read for it."""
    for source in (options.watch, *options.logs):
        if sentence := in_the_way(options.file, force=options.force, source=source):
            return sentence
    return ""


def _show(session: Session) -> int:
    if session.options.output == "json":
        more = {"file": str(session.options.file), "leftOut": session.left_out, "troubles": session.troubles}
        write_json(as_data(session.statistics, session.options.file) | more)
    else:
        console().print(listing(session.statistics, session.options.file))
    for trouble in session.troubles:
        console(stderr=True).print(Text(f"isvc-sync {COMMAND}: {trouble}"))
    if session.troubles:
        return INCOMPLETE
    return LEFT_OUT if session.left_out else DONE
