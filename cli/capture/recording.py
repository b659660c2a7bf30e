"""What all ways to record have in common: the options, the file, redaction, an end, and what is said meanwhile."""

import asyncio
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from msgspec import Struct
from rich.text import Text

from cli.ending import about
from cli.output import console
from replay.capture import FORMAT, Captured, CaptureError, Header, Line
from replay.files import writing
from replay.pacing import Bound, parse_bound
from replay.recording.consumer_log import Recorded
from replay.recording.core import Chosen, Recorder
from replay.upkeep.anonymity import Anonymizer
from replay.upkeep.redaction import Redactor
from replay.upkeep.statistics import Statistics
from shared.errors import IsvcSyncError, SettingsError
from shared.objects import Kind

if TYPE_CHECKING:
    from rich.console import Console

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FLUSH_S: Final = 1.0
_SAID_EVERY_S: Final = 10.0
_SHOWN_EVERY_S: Final = 0.1
_SALT_BYTES: Final = 16


class Options(Struct, frozen=True, kw_only=True):
    """What to record and where to.

    `since` is `--from`, `for_` is `--for`, `watch` is `--from-watch`, `logs` are those of `--log`.
    """

    file: Path
    watch: Path | None = None
    cluster: bool = False
    logs: tuple[Path, ...] = ()
    since: str = ""
    until: str = ""
    namespaces: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    follow: bool = False
    for_: str = ""
    registry: bool = True
    anonymous: bool = False
    salt: str = ""
    force: bool = False
    cluster_name: str = ""
    cluster_id: str = ""
    output: Literal["table", "json"] = "table"


class Wanted(Struct, frozen=True):
    """The options, understood. Raises ValueError with a sentence when it is made."""

    chosen: Chosen
    since: Bound | None
    until: Bound | None
    follow: bool
    for_s: float | None

    @classmethod
    def of(cls, options: Options) -> "Wanted":
        bounds = []
        for option, text in (("--from", options.since), ("--until", options.until)):
            try:
                bounds.append(parse_bound(text))
            except ValueError as error:
                raise ValueError(f"{option} {error}.") from error
        objects = [tuple(each.split("/")) for each in options.only]
        for parts, text in zip(objects, options.only, strict=True):
            if len(parts) != 2 or not all(parts):
                raise ValueError(f"--only is {text[:80]!r}: it must be NAMESPACE/NAME.")
        chosen = Chosen(
            kinds=tuple(map(Kind, options.kinds)) or tuple(Kind),
            namespaces=frozenset(options.namespaces),
            objects=frozenset((parts[0], parts[1]) for parts in objects),
        )
        for_s = _seconds(options.for_) if options.for_ else None
        return cls(chosen, bounds[0], bounds[1], options.follow or for_s is not None, for_s)


class Progress:
    """Says on standard error what goes on: one line that changes on a terminal, elsewhere a line now and then."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._console: Console = console(stderr=True)
        self._status = self._console.status("") if self._console.is_terminal else None
        self._said_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._status is not None:
            self._status.stop()

    def at(self, text: str) -> None:
        """Say how far it is."""
        now = time.monotonic()
        if now - self._said_at < (_SAID_EVERY_S if self._status is None else _SHOWN_EVERY_S):
            return
        self._said_at = now
        if self._status is not None:
            self._status.update(Text(text))
        else:
            self.tell(text)

    def tell(self, sentence: str) -> None:
        """Say a sentence."""
        self._console.print(Text(f"isvc-sync {self._command}: {sentence}"))


class Session:
    """One recording. `ended` is set when it is to stop; `troubles`: sentences about what is missing in the file.

    `live`: its source goes on until somebody ends it, so that the file is to be read meanwhile; else it takes its place
    when all is recorded. `begun`: it has taken its place.
    """

    def __init__(self, options: Options, wanted: Wanted, progress: Progress) -> None:
        self.options = options
        self.wanted = wanted
        self.progress = progress
        self.ended = asyncio.Event()
        self.statistics = Statistics()
        self.troubles: list[str] = []
        self.left_out = 0
        self.live = wanted.follow
        self.begun = False

    def header(self, **fields: Any) -> Header:
        """Return the header of a recording that is made now."""
        created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return Header(capture=FORMAT, created=created, tool=version("isvc-sync"), **fields)

    @contextmanager
    def recorder(self, header: Header, namespaces: Collection[str] = ()) -> Iterator["Recording"]:
        """Make the file. `namespaces` are those for which rules with wildcards are spelt out, if it is anonymous.

        What was recorded stays when somebody ends it, or what it comes from does not answer any more.
        """
        anonymizer = anonymizer_of(header, self.options.salt, frozenset(namespaces)) if self.options.anonymous else None
        redactor = Redactor(header, anonymizer)
        file = self.options.file
        with about(file), writing(file, redactor.header_text()) as writer:
            recorder = Recorder(writer, redactor, self.wanted.chosen, self.progress.tell)
            recording = Recording(self, recorder)
            try:
                yield recording
            except BaseException as error:
                if _leaves_a_part(error) and recorder.events:
                    recording.place()
                raise
            finally:
                self.left_out += recorder.left_out

    def passed_over(self, sentence: str) -> None:
        """Say and count something that is not in the file."""
        self.left_out += 1
        self.progress.tell(sentence)

    async def following(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work until Ctrl-C, SIGTERM or the end of `--for`; then `ended` is set, and work ends in order."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for each in signals:
            loop.add_signal_handler(each, self.ended.set)
        timer = None if self.wanted.for_s is None else loop.call_later(self.wanted.for_s, self.ended.set)
        try:
            await work()
        finally:
            if timer is not None:
                timer.cancel()
            for each in signals:
                loop.remove_signal_handler(each)


class Recording:
    """The way into the file. `recorded`: which events are there, where somebody will ask."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        self._session = session
        self.recorder = recorder
        self.recorded = Recorded()

    def write(self, line: Line) -> None:
        if self.recorder.takes(line):
            written = self.recorder.write(line)
            if written is not None:
                self._session.statistics.take(written)
                if isinstance(line, Captured) and self._session.options.logs:
                    self.recorded.take(line)
            if self._session.live and self.recorder.events:
                self.place()
            self._session.progress.at(f"{self.recorder.events} events recorded")

    def place(self) -> None:
        """Let the file take its place as far as it is, if it has not."""
        if not self._session.begun:
            self.recorder.place()
            self._session.begun = True

    async def keep_flushing(self) -> None:
        """Let nobody lose more than a second of a stream that goes on."""
        while True:
            await asyncio.sleep(_FLUSH_S)
            self.recorder.flush()


def _leaves_a_part(error: BaseException) -> bool:
    if isinstance(error, CaptureError | SettingsError):
        return False
    ended = (KeyboardInterrupt, asyncio.CancelledError, IsvcSyncError, TimeoutError, ConnectionError)
    return isinstance(error, ended)


def anonymizer_of(header: Header, salt: str, namespaces: frozenset[str]) -> Anonymizer:
    """Return an anonymizer with the salt, or with a new one that nobody knows."""
    key = salt.encode() if salt else secrets.token_bytes(_SALT_BYTES)
    return Anonymizer(key, header, namespaces)


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"--for is {text[:40]!r}: it must be a time such as 30s, 5m or 1h.")
    return seconds
