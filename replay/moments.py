"""The times of a capture, which are text, as numbers. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(time: str) -> int | None:
    """Return Unix time in microseconds of an RFC 3339 text, None where it is none. Without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(time)
    except ValueError:
        return None
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def text_of(at_us: int) -> str:
    """Return the RFC 3339 text of a Unix time in microseconds, in UTC, to the millisecond."""
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_s(time: str) -> float | None:
    """Return the same in seconds."""
    at = micros(time)
    return None if at is None else at / 1e6
