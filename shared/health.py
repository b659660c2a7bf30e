"""`/healthz`, `/readyz` and `/metrics`, served by a thread of its own.

The thread is the point: when the event loop is stuck, the probe must say so, and not hang with it.

Liveness asks only about ourselves: the loop ticks, and no critical task has ended. A registry or broker that is down
must never restart pods. Readiness asks the registered checks, whose sentences say what is missing.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from shared.errors import RefusedToStartError

logger = logging.getLogger(__name__)

# A check is called in the server's thread while the loop runs: it reads plain values and returns at once.
Check = Callable[[], str | None]

_TICK_INTERVAL_S = 1.0
_REQUEST_TIMEOUT_S = 5.0
_POLL_S = 0.1  # how soon the server notices that it shall end


class HealthSettings(Struct, frozen=True, kw_only=True):
    """Where the probes and the metrics are served."""

    health_host: Annotated[str, Meta(description="Address on which /healthz, /readyz and /metrics are served")] = (
        "0.0.0.0"  # noqa: S104 - the kubelet comes from outside the pod
    )
    health_port: Annotated[
        int, Meta(ge=0, le=65535, description="Port of /healthz, /readyz and /metrics; 0 lets the system choose")
    ] = 8080
    health_stuck_after_s: Annotated[
        float, Meta(gt=0, description="Liveness fails when the event loop has not run for so many seconds")
    ] = 15.0


class Health:
    """What the probes answer. Fill it from the event loop; it is read from the server's thread."""

    def __init__(self, *, stuck_after_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._stuck_after_s = stuck_after_s
        self._now = now
        self._ticked_at = now()
        self._ended: dict[str, str] = {}
        self._checks: dict[str, Check] = {}

    def tick(self) -> None:
        """Note that the event loop runs."""
        self._ticked_at = self._now()

    async def keep_ticking(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """Tick for ever, once a second; `on_tick` runs at each, for a counter."""
        while True:
            self.tick()
            on_tick()
            await asyncio.sleep(_TICK_INTERVAL_S)

    def add_check(self, name: str, check: Check) -> None:
        """Register a readiness check: `check` returns None, or a sentence that says what is missing."""
        self._checks[name] = check

    def watch_task(self, task: asyncio.Task[Any]) -> None:
        """Fail liveness from the moment in which a task ends that must run as long as the process."""
        task.add_done_callback(self._task_ended)

    def live(self) -> dict[str, str | None]:
        """Return each liveness check with None, or with the sentence that says what is wrong."""
        age_s = self._now() - self._ticked_at
        stuck = f"the event loop has not run for {age_s:.1f} s" if age_s > self._stuck_after_s else None
        return {"event loop": stuck, **self._ended}

    def ready(self) -> dict[str, str | None]:
        """Return each liveness and readiness check with None, or with the sentence that says what is missing."""
        return self.live() | {name: _said(check) for name, check in list(self._checks.items())}

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            reason = "was cancelled"
        elif error := task.exception():
            reason = f"ended with {type(error).__name__}"
        else:
            reason = "ended"
        self._ended = {**self._ended, task.get_name(): f"the task {task.get_name()} {reason}"}


@contextmanager
def serving(settings: HealthSettings, health: Health, metrics: Callable[[], tuple[str, bytes]]) -> Iterator[int]:
    """Serve until the block ends; yields the port. `metrics` returns content type and body of a scrape.

    Raises RefusedToStartError when the address cannot be used.
    """

    class Handler(_Handler):
        answers: ClassVar = {
            "/healthz": lambda: _report(health.live()),
            "/readyz": lambda: _report(health.ready()),
            "/metrics": lambda: (200, *metrics()),
        }

    try:
        server = ThreadingHTTPServer((settings.health_host, settings.health_port), Handler)
    except OSError as error:
        raise RefusedToStartError(
            f"The health server cannot listen on {settings.health_host}:{settings.health_port} ({error.strerror}): "
            "set HEALTH_HOST and HEALTH_PORT."
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[_POLL_S], name="health", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _said(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        logger.exception("a readiness check failed")
        return f"the check itself failed: {type(error).__name__}"


def _report(checks: dict[str, str | None]) -> tuple[int, str, bytes]:
    lines = [f"{name}: {sentence or 'ok'}" for name, sentence in checks.items()]
    status = 200 if all(sentence is None for sentence in checks.values()) else 503
    return status, "text/plain; charset=utf-8", ("\n".join(lines) + "\n").encode()


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, Callable[[], tuple[int, str, bytes]]]]
    timeout = _REQUEST_TIMEOUT_S  # a client that sends nothing holds its thread no longer
    server_version = "isvc-sync"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server gives
        """Log nothing: probes come every few seconds."""

    def _answer(self, *, with_body: bool) -> None:
        answer = self.answers.get(self.path.split("?", maxsplit=1)[0])
        status, content_type, body = answer() if answer else (404, "text/plain; charset=utf-8", b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)
