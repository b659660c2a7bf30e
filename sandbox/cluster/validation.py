"""What the API server refuses in metadata: names and labels. Pure; the wording follows the real server."""

import re

from sandbox.cluster.resources import Kind
from sandbox.cluster.status import ApiError, Obj, invalid

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN.pattern}')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL.pattern}')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE.pattern}')"
)


def check_metadata(kind: Kind, metadata: Obj) -> None:
    """Raise ApiError 422 for a name or label that the API server would refuse."""
    name = metadata["name"]
    problem = _name_problem(kind, name)
    if problem:
        raise _invalid(kind, name, "metadata.name", f'Invalid value: "{name}": {problem}')
    for key, value in (metadata.get("labels") or {}).items():
        problem = _key_problem(key) or _value_problem(value)
        if problem:
            shown = value if _key_problem(key) is None else key
            raise _invalid(kind, name, "metadata.labels", f'Invalid value: "{shown}": {problem}')
    for key in metadata.get("annotations") or {}:
        problem = _key_problem(key.lower())
        if problem:
            raise _invalid(kind, name, "metadata.annotations", f'Invalid value: "{key}": {problem}')


def _name_problem(kind: Kind, name: str) -> str | None:
    pattern, text, length = (
        (_LABEL, _LABEL_TEXT, 63) if kind.name_rule == "label" else (_SUBDOMAIN, _SUBDOMAIN_TEXT, 253)
    )
    if len(name) > length:
        return f"must be no more than {length} bytes"
    return None if pattern.fullmatch(name) else text


def _key_problem(key: str) -> str | None:
    prefix, slash, last = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        return f"prefix part {_SUBDOMAIN_TEXT}"
    if len(last) > 63:
        return "name part must be no more than 63 bytes"
    return None if _QUALIFIED.fullmatch(last) else "name part must consist of alphanumeric characters, '-', '_' or '.'"


def _value_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return None if _VALUE.fullmatch(value) else _VALUE_TEXT


def _invalid(kind: Kind, name: str, field: str, message: str) -> ApiError:
    return invalid(kind.kind, kind.group, name, (field, "FieldValueInvalid", message))
