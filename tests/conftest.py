"""What every test folder may ask for."""

import asyncio
import logging
import signal
from collections.abc import Generator, Iterator

import pytest

from tests.cluster.control_plane import ControlPlane, assets_directory


def pytest_configure() -> None:
    """Leave no event loop to be made by accident: looptime's plugin asks for one in the first synchronous test.

    And no Ctrl-C unheard: a shell starts what runs in its background with SIGINT ignored, and children inherit that.
    """
    asyncio.set_event_loop(None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """A command silences the logs of its process; where a test runs it in this one, the next test has them again."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


_CONTROL_PLANE = pytest.StashKey[ControlPlane]()


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real kube-apiserver and etcd, started once for the run; only tests marked `cluster` may ask for it."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"), assets_directory())
    plane.start()
    request.config.stash[_CONTROL_PLANE] = plane
    yield plane
    del request.config.stash[_CONTROL_PLANE]
    plane.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the control plane's logs with a failed test that could use it."""
    report = yield
    plane = item.config.stash.get(_CONTROL_PLANE, None)
    if report.failed and plane is not None and item.get_closest_marker("cluster") is not None:
        report.sections.append(("control plane", plane.log_tails()))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have measured: `record_property("figures", ...)`, also from other processes."""
    reports = (report for state in ("passed", "failed") for report in terminalreporter.stats.get(state, ()))
    lines = [
        f"{report.nodeid}\n    {text}"
        for report in reports
        for name, text in report.user_properties
        if name == "figures"
    ]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(sorted(lines)))
