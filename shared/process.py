"""The life of a process: settings, logs, telemetry, signals, exit code. Producer and consumer are started by this.

Exit codes: 0 ended by a signal, 1 something that must not end has ended, 2 settings are wrong or the world does not fit
them.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from shared.errors import IsvcSyncError, RefusedToStartError, SettingsError
from shared.logs import LogSettings, set_up_logging
from shared.settings import load, near_misses
from shared.telemetry import Telemetry, TelemetrySettings

logger = logging.getLogger(__name__)

ENDED, FAILED, REFUSED = 0, 1, 2


class ProcessSettings(Protocol):
    """The groups that every process has."""

    @property
    def logs(self) -> LogSettings: ...
    @property
    def telemetry(self) -> TelemetrySettings: ...


S = TypeVar("S", bound=msgspec.Struct)


def run_process(
    role: str,
    settings_type: type[S],
    run: Callable[[S, Telemetry], Awaitable[None]],
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run a process to its end and return its exit code. `run` is cancelled by SIGTERM or SIGINT, and cleans up."""
    try:
        settings = load(settings_type, environ)
    except SettingsError as error:
        print(f"isvc-sync {role} cannot start:\n{error}", file=sys.stderr)  # noqa: T201 - logging is one of the settings
        return REFUSED
    set_up_logging(settings.logs)  # type: ignore[attr-defined]  # S is a Struct and a ProcessSettings; Python has no intersection
    for sentence in near_misses(settings_type, environ):
        logger.warning(sentence)
    telemetry = Telemetry(settings.telemetry, role=role)  # type: ignore[attr-defined]  # as above
    # What imports have made lives as long as we do. To look through it again and again, a tenth of a second each time,
    # would hold up whatever is on its way at that moment (bench/latency.py).
    gc.collect()
    gc.freeze()
    try:
        return asyncio.run(_until_signal(run(settings, telemetry)))
    except (SettingsError, RefusedToStartError) as error:
        logger.error("cannot start", extra={"role": role, "reason": str(error)})  # noqa: TRY400 - the sentence says it all
        return REFUSED
    except IsvcSyncError as error:
        logger.error("ended", extra={"role": role, "reason": str(error)})  # noqa: TRY400 - as above
        return FAILED
    finally:
        telemetry.shutdown()


async def _until_signal(running: Awaitable[None]) -> int:
    task = asyncio.ensure_future(running)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logger.info("stopped by a signal")
        return ENDED
    return FAILED
