"""Logging: constant messages with fields, as text for people or JSON for machines, without secrets.

    logger.info("record created", extra={"object": "isvc/ns/name", "record": "17"})

Every line carries the trace it belongs to, and what `fields` says of all that is logged inside it. URL passwords and
Authorization values are cut out of the finished line, wherever they came from, tracebacks included.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Literal, TextIO

from msgspec import Meta, Struct
from opentelemetry.trace import get_current_span

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_USERINFO = re.compile(r"(?<=://)[^/@\s\"'\\]+@")
_CREDENTIALS = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_NOISY = ("httpx", "httpcore", "asyncio", "urllib3")  # a line per request; ours say what matters
_OTEL_INTERVAL_S = 60.0
_SHARED: ContextVar[dict[str, Any] | None] = ContextVar("fields of all lines", default=None)


class LogSettings(Struct, frozen=True, kw_only=True):
    """How the process speaks."""

    log_format: Annotated[Literal["text", "json"], Meta(description="Log lines for people, or as JSON objects")] = (
        "text"
    )
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], Meta(description="Least severity that is logged")
    ] = "INFO"


def set_up_logging(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all logging of this process to `stream` (standard error unless given)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if settings.log_format == "json" else _TextFormatter())
    handler.addFilter(_TelemetryTrouble())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


@contextmanager
def fields(**added: object) -> Iterator[None]:
    """Give every line that is logged inside these fields, however deep, and in tasks that begin there.

    A field that a line has of its own is that line's.
    """
    token = _SHARED.set((_SHARED.get() or {}) | added)
    try:
        yield
    finally:
        _SHARED.reset(token)


def redact(text: str) -> str:
    """Cut out what nobody may read in a log: userinfo of URLs, values of Authorization."""
    return _CREDENTIALS.sub(r"\1 ***", _USERINFO.sub("***@", text))


class _TextFormatter(logging.Formatter):
    """`<time> <level> <logger> <message> key=value ...`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_quoted(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {record.getMessage()}{fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return redact(line)


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return redact(json.dumps(entry, default=str))


class _TelemetryTrouble(logging.Filter):
    """Lets a collector that is away cost one short line a minute, not a traceback per batch."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("opentelemetry"):
            return True
        if record.created - self._passed_at < _OTEL_INTERVAL_S:
            return False
        self._passed_at = record.created
        record.exc_info = None
        return True


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    found = (_SHARED.get() or {}) | own
    context = get_current_span().get_span_context()
    if context.is_valid:
        found["trace_id"] = f"{context.trace_id:032x}"
        found["span_id"] = f"{context.span_id:016x}"
    return found


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and not re.search(r"[\s\"=]", text) else json.dumps(text, ensure_ascii=False)
