"""`isvc-sync demo`: starts everything as processes of its own, has the story told, checks, and ends everything.

Ended by id whatever happens: an error, a check that fails, Ctrl-C, SIGTERM. The exit code is 0 only when every check
passed.
"""

import asyncio
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from cli.addresses import Addresses
from cli.demo import clients
from cli.demo.checks import Check, exits
from cli.demo.observer import Observer
from cli.demo.performance import Performance
from cli.demo.processes import Child, DemoError
from cli.demo.screen import Screen, console, results, screen
from cli.demo.story import StartDaemon, Story

PASSED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
_SANDBOX_S: Final = 20.0
_READING_S: Final = 1.5  # between two steps in a terminal
_LOG_LINES: Final = 12
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the demo runs. `pace` multiplies the delays of the played KServe and the pauses for reading."""

    keep: bool = False
    pace: float = 1.0
    plain: bool = False


def run(options: Options) -> int:
    """Run the demo; return the exit code."""
    out = console(plain=options.plain)
    directory = Path(tempfile.mkdtemp(prefix="isvc-sync-demo-"))
    demo = Demo(options, directory, out)
    try:
        checks = asyncio.run(_until_signal(demo))
    except asyncio.CancelledError:
        say(out, "\ninterrupted; everything has ended", f"Logs: {directory}")
        return INTERRUPTED
    except DemoError as error:
        say(out, f"\nisvc-sync demo cannot start: {error}", f"Logs: {directory}")
        return REFUSED
    except BrokenPipeError:  # everything has ended, and there is nobody to tell
        return FAILED
    except Exception:
        say(out, f"\nLogs: {directory}")
        raise
    failed = sum(not check.passed for check in checks)
    out.print()
    out.print(results(checks))
    if failed:
        demo.show_logs()
    if failed or options.keep:
        say(out, f"\nLogs: {directory}")
    else:
        shutil.rmtree(directory)
    say(out, f"\ndemo: {len(checks) - failed} checks passed, {failed} failed")
    return FAILED if failed else PASSED


def say(out: Console, *lines: str) -> None:
    out.print("\n".join(lines), markup=False, soft_wrap=True)


async def _until_signal(demo: "Demo") -> list[Check]:
    task = asyncio.create_task(demo.run())
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, demo.interrupt, task)
    return await task


class Demo:
    """One run: the processes, the story, the checks."""

    def __init__(self, options: Options, directory: Path, out: Console) -> None:
        self._options = options
        self._directory = directory
        self._out = out
        self._screen: Screen = screen(out, plain=options.plain)
        self._kept: asyncio.Event | None = None
        self._interrupted = False

    def interrupt(self, task: "asyncio.Task[list[Check]]") -> None:
        """Answer a signal: end what is kept, else give up. Further ones change nothing: all processes must end."""
        if self._interrupted:
            return
        self._interrupted = True
        if self._kept is not None:
            self._kept.set()
        else:
            task.cancel()

    async def run(self) -> list[Check]:
        """Return all checks. Raises DemoError when the sandbox does not start."""
        try:
            async with AsyncExitStack() as stack:
                addresses = await self._sandbox(stack)
                kubernetes = clients.Kubernetes(clients.plain(addresses.kubernetes))
                models = clients.Models(clients.plain(addresses.registry))
                stack.push_async_callback(kubernetes.close)
                stack.push_async_callback(models.close)
                observer = Observer(kubernetes, models, self._screen.show)
                stack.push_async_callback(_end, observer.children)
                story = Story(observer, (kubernetes, models), self._screen, self._starter(addresses), self._pause_s)
                assert addresses.nats is not None, "the demo starts its sandbox with a broker"
                logs = tuple(self._directory / f"{role}.log" for role in ("producer", "consumer"))
                checks = await Performance(story, observer, self._screen, addresses.nats, logs).checks()
                self._screen.close()
                if self._options.keep:
                    await self._keep(checks, addresses)
                return checks + exits(await _end(observer.children))
        finally:
            self._screen.close()

    @property
    def _pause_s(self) -> float:
        return _READING_S * self._options.pace if self._screen.moves else 0.0

    async def _sandbox(self, stack: AsyncExitStack) -> Addresses:
        arguments = ["sandbox", "--directory", str(self._directory), "--pace", str(self._options.pace)]
        sandbox = await Child.start("sandbox", arguments, {}, self._directory / "sandbox.log")
        stack.push_async_callback(sandbox.end)
        try:
            async with asyncio.timeout(_SANDBOX_S):
                while (addresses := Addresses.read(self._directory)) is None:
                    if sandbox.exit_code is not None:
                        raise DemoError(" / ".join(sandbox.last_lines(3)))
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            said = " / ".join(sandbox.last_lines(3))
            raise DemoError(f"the sandbox is not ready after {_SANDBOX_S:.0f} s; it said: {said}") from error
        return addresses

    def _starter(self, addresses: Addresses) -> StartDaemon:
        async def start(role: str, health_port: int) -> Child:
            environ = addresses.environ | {"HEALTH_PORT": str(health_port)}
            return await Child.start(role, [role], environ, self._directory / f"{role}.log")

        return start

    async def _keep(self, checks: list[Check], addresses: Addresses) -> None:
        self._kept = asyncio.Event()
        self._out.print()
        self._out.print(results(checks))
        say(self._out, "", *addresses.lines(), "", f"Logs: {self._directory}", "Running until Ctrl-C.")
        await self._kept.wait()

    def show_logs(self) -> None:
        """Show how each log ends."""
        for log in self._logs("sandbox", "producer", "consumer"):
            lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            say(self._out, f"\n--- the last lines of {log.name} ---", *lines)

    def _logs(self, *names: str) -> list[Path]:
        return [path for name in names if (path := self._directory / f"{name}.log").exists()]


async def _end(children: dict[str, Child]) -> dict[str, int]:
    """End the daemons; return their exit codes. Doing it twice does no harm."""
    return {name: await child.end() for name, child in children.items()}
