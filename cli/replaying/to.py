"""`isvc-sync replay FILE --to TARGET`: play a capture's events to real parts, at its own pace or another.

`commands.py` has its options and calls `run` where `--to` is given. Targets are `sandbox` (a local
world with a real consumer), a Model Registry (`http://`, `https://`: the same, but the consumer writes there), a NATS
server (`nats://`, `tls://`: only the events, for whoever reads them), and a cluster (`kube:`: the objects, for whoever
watches them). See docs/replay-to.md.
"""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Literal, TypeVar

from msgspec import Struct
from rich.text import Text

from cli.ending import Endings, guarded
from cli.output import can_ask, console, failed, silence_logs
from cli.replaying.cluster import OpenedCluster, approved, open_cluster
from cli.replaying.shown import Shown, show
from cli.replaying.stages import Opened, Order, open_stage
from cli.replaying.step import Stepper
from replay.capture import Header
from replay.files import reading
from replay.pacing import AS_FAST_AS_POSSIBLE, Pacer, parse_bound, parse_speed
from replay.target.choice import Target, TargetKind, guise, parse_target
from replay.target.play import Ask, Selection, always, play
from shared.errors import SettingsError

T = TypeVar("T")

COMMAND = "replay"
FINE, DIFFERS, UNREACHABLE = 0, 1, 3
_ENDINGS: Final = Endings(unread=UNREACHABLE, unreachable=UNREACHABLE, cut=UNREACHABLE)


class Options(Struct, frozen=True, kw_only=True):
    """What to play, where to, and how; each field is the option of that name.

    `since` is `--from`, a stream sequence or an RFC 3339 time, as is `until`; "" for neither. `only`: NS/NAME, none for
    all. `speed`: `1x`, `10x`, any factor, or `max`. `yes_to`: the target once more, where it is not on loopback.
    `name`: of this replay on a shared server ("" takes a random one). `cluster_id`: which cluster the events say they
    come from ("" for the replay's own). `wait_s`: for readers, and for what is still under way at the end.
    """

    file: Path
    to: str
    yes_to: str = ""
    speed: str = "max"
    step: bool = False
    since: str = ""
    until: str = ""
    only: tuple[str, ...] = ()
    keep: bool = False
    name: str = ""
    cluster_id: str = ""
    wait_s: float = 60.0
    output: Literal["table", "json"] = "table"


class _Wanted(Struct, frozen=True):
    """The options, understood."""

    target: Target
    selection: Selection
    factor: float


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Replay; return the exit code."""
    return guarded(COMMAND, _ENDINGS, lambda: _run(options, environ))


def _run(options: Options, environ: Mapping[str, str]) -> int:
    wanted = _wanted(options, environ)
    silence_logs()
    try:
        return asyncio.run(_until_signal(Replay(options, wanted, environ)))
    except (asyncio.CancelledError, KeyboardInterrupt) as error:
        raise KeyboardInterrupt("interrupted; everything that was started has ended.") from error


def _wanted(options: Options, environ: Mapping[str, str]) -> _Wanted:
    """Understand the options. Raises SettingsError; nothing is looked up or connected to."""
    target = parse_target(options.to, options.yes_to)
    if target.kind is TargetKind.KUBE:
        if options.cluster_id:
            raise SettingsError("--cluster-id is of events: a cluster that is played to has its own id.")
        target = approved(target, options.yes_to, environ)
    if options.step and not can_ask():
        raise SettingsError("--step waits for Enter, and there is no terminal here: use --until to stop somewhere.")
    if str(options.file) == "-":
        raise SettingsError("--to plays a file: what waits for standard input could not keep its pace.")
    selection = Selection(
        since=_parsed("--from", options.since, parse_bound),
        until=_parsed("--until", options.until, parse_bound),
        only=frozenset(_object(text) for text in options.only),
    )
    factor = _parsed("--speed", options.speed, parse_speed)
    return _Wanted(target, selection, AS_FAST_AS_POSSIBLE if options.step else factor)


def _parsed(option: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsError(f"{option} {error}.") from error


def _object(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise SettingsError(f"--only {text[:80]!r} is not NAMESPACE/NAME.")
    return namespace, name


async def _until_signal(replay: "Replay") -> int:
    task = asyncio.create_task(replay.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, replay.interrupt, task)
    return await task


class Replay:
    """One run."""

    def __init__(self, options: Options, wanted: _Wanted, environ: Mapping[str, str]) -> None:
        self._options = options
        self._wanted = wanted
        self._environ = environ
        self._pacer = Pacer(wanted.factor, time.monotonic, asyncio.sleep)
        self._kept: asyncio.Event | None = None
        self._interrupted = False

    def interrupt(self, task: "asyncio.Task[int]") -> None:
        """Answer a signal: end what is kept, else give up. Further ones change nothing: everything must end."""
        if self._interrupted:
            return
        self._interrupted = True
        if self._kept is not None:
            self._kept.set()
        else:
            task.cancel()

    async def run(self) -> int:
        """Replay, show what came of it, and return the exit code. Raises the errors that `run` above tells."""
        options = self._options
        async with AsyncExitStack() as stack:
            with reading(options.file) as capture:
                order = self._order(capture.header)
                opening = open_cluster if order.target.kind is TargetKind.KUBE else open_stage
                stage: Opened | OpenedCluster = await opening(order, stack)
                _say(f"replay {stage.name}: playing {options.file}")
                played = await play(capture, self._wanted.selection, self._pacer, stage.events, self._ask())
                await stage.settled()
                shown = Shown(
                    target=order.target.url or options.to,
                    name=stage.name,
                    played=played,
                    outcome=await stage.outcome(played),
                    lateness=self._pacer.lateness,
                    cut=capture.cut or "",
                )
            show(shown, options.output)
            await self._keep(stage)
            return _code(shown)

    def _order(self, header: Header) -> Order:
        options, target = self._options, self._wanted.target
        name = options.name or secrets.token_hex(4)
        return Order(
            target=target,
            guise=guise(name, target, header, options.cluster_id),
            header=header,
            wait_s=options.wait_s,
            keep=options.keep,
            environ=self._environ,
            say=_say,
        )

    def _ask(self) -> Ask:
        return Stepper(sys.stdin, _say) if self._options.step else always

    async def _keep(self, stage: Opened | OpenedCluster) -> None:
        if not self._options.keep:
            return
        for line in stage.kept:
            _say(line)
        if stage.runs:
            self._kept = asyncio.Event()
            _say("Running until Ctrl-C.")
            await self._kept.wait()


def _say(line: str) -> None:
    console(stderr=True).print(Text(line))


def _code(shown: Shown) -> int:
    if shown.cut:
        failed(COMMAND, f"the capture was cut, and was replayed up to there: {shown.cut}.", UNREACHABLE)
        return UNREACHABLE
    return DIFFERS if shown.differs else FINE
