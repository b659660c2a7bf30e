"""The cells of `kubectl get`: a small JSONPath, and ages as people read them. Pure."""

import re
from datetime import UTC, datetime
from typing import Any

from sandbox.cluster.resources import Column
from sandbox.cluster.status import Obj

_STEP = re.compile(
    r"\.(?P<key>[A-Za-z_][\w-]*)|\[(?P<index>\d+)\]|\['(?P<quoted>[^']+)'\]"
    r"|\[\?\(@\.(?P<field>[\w]+)==(?:'(?P<text>[^']*)'|\"(?P<text2>[^\"]*)\"|(?P<bare>\w+))\)\]"
)


def find(obj: Any, path: str) -> Any:
    """Return the first value at a JSONPath of the kind that printer columns use, or None."""
    for step in _STEP.finditer(path):
        obj = _step(obj, step)
        if obj is None:
            return None
    return obj


def _step(obj: Any, step: re.Match[str]) -> Any:
    key = step["key"] or step["quoted"]
    if key:
        return obj.get(key) if isinstance(obj, dict) else None
    if not isinstance(obj, list):
        return None
    if step["index"]:
        return obj[int(step["index"])] if int(step["index"]) < len(obj) else None
    wanted = step["text"] if step["text"] is not None else step["text2"]
    for item in obj:
        value = item.get(step["field"]) if isinstance(item, dict) else None
        if value == wanted or (wanted is None and str(value).lower() == step["bare"]):
            return item
    return None


def column_definitions(columns: tuple[Column, ...]) -> list[Obj]:
    return [
        {
            "name": column.name,
            "type": "string" if column.type == "date" else column.type,
            "format": "" if column.path else "name",
            "description": column.path or "Name must be unique within a namespace.",
            "priority": 0,
        }
        for column in columns
    ]


def cells(columns: tuple[Column, ...], obj: Obj, now: datetime) -> list[Any]:
    """Return one row; what is not there is None, which kubectl shows as <none>."""
    return [_cell(column, obj, now) for column in columns]


def _cell(column: Column, obj: Obj, now: datetime) -> Any:
    if not column.path:
        return obj["metadata"]["name"]
    value = find(obj, column.path)
    if column.type == "date":
        return age(value, now) if isinstance(value, str) else "<unknown>"
    return value


def age(stamp: str, now: datetime) -> str:
    """Return the time since an RFC 3339 stamp as kubectl writes it: 45s, 3m20s, 5h, 12d."""
    try:
        then = datetime.fromisoformat(stamp)
    except ValueError:
        return "<invalid>"
    return duration(int((now - then.astimezone(UTC)).total_seconds()))


def duration(seconds: int) -> str:
    """Return a duration in at most two units, as kubectl does."""
    seconds = max(0, seconds)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    for limit, passed, text in (
        (120, seconds, f"{seconds}s"),
        (10, minutes, _two(minutes, "m", seconds % 60, "s")),
        (180, minutes, f"{minutes}m"),
        (8, hours, _two(hours, "h", minutes % 60, "m")),
        (48, hours, f"{hours}h"),
        (8, days, _two(days, "d", hours % 24, "h")),
        (730, days, f"{days}d"),
    ):
        if passed < limit:
            return text
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
