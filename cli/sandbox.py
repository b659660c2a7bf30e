"""`isvc-sync sandbox`: the local world in the foreground, until a signal."""

import asyncio
import errno
import signal
import tempfile
from pathlib import Path

from rich.console import Console

from cli.addresses import FILE_NAME, Addresses
from cli.captured import seeds
from cli.output import Output
from sandbox.cluster.play import CaptureError, Line, read
from sandbox.world import Options, World, world
from shared.errors import RefusedToStartError

REFUSED = 2
_WATCHES = r"(llm)?inferenceservices\.serving\.kserve\.io\?watch"
_POLL_S = 0.05

_out = Output(highlight=False, soft_wrap=True, markup=False)


def run(directory: Path | None, options: Options, captures: tuple[Path, ...]) -> int:
    """Run until SIGINT or SIGTERM; return the exit code."""
    try:
        recorded = {path: read(path) for path in captures}
        with tempfile.TemporaryDirectory(prefix="isvc-sync-sandbox-") as temporary:
            asyncio.run(_until_signal((directory or Path(temporary)).resolve(), options, recorded))
    except BrokenPipeError:  # nobody reads any more where everything is: ended as by a signal
        return 0
    except (CaptureError, RefusedToStartError, OSError, ValueError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(
            f"isvc-sync sandbox cannot run: {error}{_way_out(error)}"
        )
        return REFUSED
    return 0


def _way_out(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return ". Give another --kubernetes-port or --registry-port, or 0 and the system chooses."
    return ""


async def _until_signal(directory: Path, options: Options, recorded: dict[Path, list[Line]]) -> None:
    task = asyncio.create_task(_serve(directory, options, recorded))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def _serve(directory: Path, options: Options, recorded: dict[Path, list[Line]]) -> None:
    async with world(directory, options) as running:
        _seed(running, [line for lines in recorded.values() for line in lines])
        addresses = Addresses.of(running)
        addresses.write(directory)
        try:
            _out.print("\n".join(addresses.lines()))
            _out.print(f"\nThe same as JSON: {directory / FILE_NAME}. Ctrl-C ends everything.")
            if recorded:
                await _play(running, tuple(recorded), options.kserve_pace)
            await asyncio.get_running_loop().create_future()
        finally:
            (directory / FILE_NAME).unlink(missing_ok=True)  # nothing is reached there any more


def _seed(running: World, lines: list[Line]) -> None:
    """Fill the registry with what the labels of all captures name; a version is of the model beside which it stands."""
    if not lines:
        return
    wanted = seeds(lines)
    running.registry.seed(**wanted.collections())
    _out.print(f"registry seeded with models {_list(wanted.models)}; versions {_list(tuple(wanted.versions))}")


def _list(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) or "none"


async def _play(running: World, captures: tuple[Path, ...], pace: float) -> None:
    """Wait for the first watch, so that somebody sees the whole story, then play one capture after the other."""
    _out.print(
        "\nThe played KServe is off: captures bring the status of their objects. Waiting for the first watch ..."
    )
    while not running.cluster.requests.total("GET", _WATCHES):  # noqa: ASYNC110 - the server counts, it does not tell
        await asyncio.sleep(_POLL_S)
    for path in captures:
        _out.print(f"{path.name}: playing")
        written = await running.cluster.play(path, pace)
        _out.print(f"{path.name}: through, {written} writes")
