"""Settings: environment variables in, one frozen struct out, every mistake named at once.

Each process declares its settings as frozen `msgspec.Struct`s; a field whose type is such a struct is a group (broker,
cluster, ...), so that processes share groups. All variables live in one flat namespace: the upper-case name of the
field, or `Meta(extra={"variable": ...})` where another name is established. README's table is `describe()`.

    class HealthSettings(msgspec.Struct, frozen=True, kw_only=True):
        health_port: Annotated[int, Meta(ge=0, le=65535, description="Port of /healthz")] = 8080

Rules: an empty variable is an unset one; lists are comma-separated; durations and sizes have their unit last in the
name. Secrets never come by variable, only by the name of a file (`*_FILE`), so settings may be shown to anybody.
What a type cannot say is checked by a function, `Meta(extra={"check": ...})`: it gets the converted value and raises
ValueError with the rest of a sentence ("must begin with ..."). What concerns several fields of a group is checked by
its `__post_init__`, which raises ValueError with a whole sentence.
"""

import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from shared.errors import SettingsError

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)

# Above this similarity two names are probably meant to be the same: REGISTRY_ULR/REGISTRY_URL 0.92,
# WRITEBACK/WRITE_BACK 0.95, NATS_URLS/NATS_URL 0.94; REGISTRY_PORT/REGISTRY_URL is 0.80.
_SIMILAR = 0.85
# What the kubelet sets for every Service of the namespace ("service links"), a Service called nats included.
_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")
_SHOWN_CHARS = 40


def _readable_file(path: str) -> None:
    """Check a `*_FILE` setting. Raises ValueError."""
    if not Path(path).is_file() or not os.access(path, os.R_OK):
        raise ValueError(f"names {path}, which is no file that can be read here")


READABLE = {"check": _readable_file}  # for Meta(extra=...)


class Row(msgspec.Struct, frozen=True):
    """One variable as people see it. `default` is None where the variable must be set, "" where it may stay unset."""

    variable: str
    type: str
    default: str | None
    description: str


def load(settings: type[SettingsT], environ: Mapping[str, str]) -> SettingsT:
    """Read all variables of `settings` from `environ`.

    Raises SettingsError, one line for each wrong or missing variable, never showing what may be a secret.
    """
    problems: list[str] = []
    loaded = _load_group(settings, environ, problems)
    if loaded is None:
        raise SettingsError("\n".join(problems))
    return loaded


def near_misses(settings: type[msgspec.Struct], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Sentences about variables that look like ours but are not read: typing errors, secrets given by value."""
    known = {_variable(field) for field in _fields(settings)}
    return tuple(
        sentence
        for name, value in sorted(environ.items())
        if name not in known and not _is_service_link(name, value) and (sentence := _near_miss(name, known))
    )


def describe(settings: type[msgspec.Struct]) -> tuple[Row, ...]:
    """All variables of `settings`, in the order of the fields; each must carry a description."""
    return tuple(
        Row(_variable(field), _type_text(field.type), _default_text(field), _description(field))
        for field in _fields(settings)
    )


def _load_group(
    group: type[SettingsT], environ: Mapping[str, str], problems: list[str]
) -> SettingsT | None:  # None: something was wrong, and is in `problems`
    before = len(problems)
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(group):
        if _is_group(field.type):
            values[field.name] = _load_group(field.type, environ, problems)
            continue
        raw = environ.get(_variable(field), "").strip()
        if raw:
            values[field.name] = _convert(field, raw, problems)
        elif field.required:
            problems.append(
                f"{_variable(field)} is not set: it must be {_type_text(field.type)}. {_description(field)}."
            )
    if len(problems) > before:
        return None
    try:
        return group(**values)
    except ValueError as error:  # raised on purpose by the group's own __post_init__
        problems.append(str(error))
        return None


def _convert(field: FieldInfo, raw: str, problems: list[str]) -> Any:
    value = tuple(item for part in raw.split(",") if (item := part.strip())) if _is_list(field.type) else raw
    try:
        converted = msgspec.convert(value, field.type, strict=False)
    except msgspec.ValidationError:
        converted = None
    if converted is None or (isinstance(converted, float) and not math.isfinite(converted)):
        # A text that does not fit may be a secret in the wrong place; numbers, flags and choices are none.
        shown = "has a value that does not fit" if _holds_text(field.type) else f"is {raw[:_SHOWN_CHARS]!r}"
        problems.append(f"{_variable(field)} {shown}: it must be {_type_text(field.type)}. {_description(field)}.")
        return converted
    for meta in _meta(field):
        check = (meta.extra or {}).get("check")
        if check is not None:
            try:
                check(converted)
            except ValueError as error:  # raised on purpose, with a sentence for people
                problems.append(f"{_variable(field)} {error}.")
    return converted


def _fields(settings: type[msgspec.Struct]) -> Iterator[FieldInfo]:
    for field in msgspec.structs.fields(settings):
        if _is_group(field.type):
            yield from _fields(field.type)
        else:
            yield field


def _is_group(field_type: Any) -> bool:
    return isinstance(field_type, type) and issubclass(field_type, msgspec.Struct)


def _meta(field: FieldInfo) -> tuple[msgspec.Meta, ...]:
    if get_origin(field.type) is not Annotated:
        return ()
    return tuple(extra for extra in get_args(field.type)[1:] if isinstance(extra, msgspec.Meta))


def _variable(field: FieldInfo) -> str:
    for meta in _meta(field):
        if meta.extra and "variable" in meta.extra:
            return str(meta.extra["variable"])
    return field.name.upper()


def _description(field: FieldInfo) -> str:
    for meta in _meta(field):
        if meta.description:
            return meta.description.rstrip(".")
    raise TypeError(f"the setting {_variable(field)} has no description")


def _default_text(field: FieldInfo) -> str | None:
    if field.required:
        return None
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)


def _inspected(field_type: Any) -> msgspec.inspect.Type:
    """Take off the type's wrappers: the description, and `| None` for what may stay unset."""
    found = msgspec.inspect.type_info(field_type)
    while True:
        if isinstance(found, msgspec.inspect.Metadata):
            found = found.type
        elif isinstance(found, msgspec.inspect.UnionType):
            (found,) = (one for one in found.types if not isinstance(one, msgspec.inspect.NoneType))
        else:
            return found


def _is_list(field_type: Any) -> bool:
    return isinstance(_inspected(field_type), msgspec.inspect.VarTupleType)


def _holds_text(field_type: Any) -> bool:
    found = _inspected(field_type)
    return isinstance(found, msgspec.inspect.StrType | msgspec.inspect.VarTupleType)


def _type_text(field_type: Any) -> str:
    match _inspected(field_type):
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(str(value) for value in values)
        case msgspec.inspect.VarTupleType():
            return "a comma-separated list"
        case msgspec.inspect.IntType(ge=least, le=most):
            return f"a whole number{_range_text(least, most)}"
        case msgspec.inspect.FloatType(gt=above, ge=least, le=most):
            return f"a number{_range_text(least, most)}{'' if above is None else f' above {above:g}'}"
        case msgspec.inspect.StrType(pattern=pattern):
            return f"a text that matches {pattern}" if pattern else "a text"
        case other:
            raise TypeError(f"settings cannot be {type(other).__name__}")


def _range_text(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if least is not None:
        return f", at least {least}"
    return "" if most is None else f", at most {most}"


def _is_service_link(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK.search(name)) or (name.endswith("_PORT") and "://" in value)


def _near_miss(name: str, known: set[str]) -> str | None:
    if f"{name}_FILE" in known:
        return f"{name} is not read: a secret is given by the name of a file, set {name}_FILE."
    close = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR)
    return f"{name} is not a setting of isvc-sync and is not read: is {close[0]} meant?" if close else None
