"""JSON patch (RFC 6902), merge patch (RFC 7386), strategic merge as far as needed. Pure: documents in, document out."""

import copy
from typing import Any

from sandbox.cluster.status import ApiError, Obj, bad_request

STRATEGIC_KEYS = {"finalizers": None, "ownerReferences": "uid", "ports": "port", "conditions": "type"}
"""Lists that a strategic merge merges instead of replacing: by this key, or as a set (None)."""


def _failed(_why: str) -> ApiError:
    # The real server hides the reason; so clients must not rely on it.
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request")


def json_patch(document: Obj, operations: object) -> Obj:
    """Apply RFC 6902 operations to a copy.

    Raises ApiError 400 for what is no patch, 422 when an operation (a `test` among them) does not apply.
    """
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("error decoding patch: json: cannot unmarshal the body into a list of operations")
    result: Any = copy.deepcopy(document)
    for operation in operations:
        result = _operate(result, operation)
    if not isinstance(result, dict):
        raise _failed("the whole document was replaced by something else")
    return result


def _operate(document: Any, operation: Obj) -> Any:
    match operation:
        case {"op": "test", "path": str(path)}:
            if not _same(_read(document, path), operation.get("value")):
                raise _failed(f"testing value {path} failed")
            return document
        case {"op": "add" | "replace" as op, "path": str(path), "value": value}:
            return _write(document, path, copy.deepcopy(value), op)
        case {"op": "remove", "path": str(path)}:
            return _write(document, path, None, "remove")
        case {"op": "move", "from": str(source), "path": str(path)}:
            value = _read(document, source)
            return _write(_write(document, source, None, "remove"), path, value, "add")
        case {"op": "copy", "from": str(source), "path": str(path)}:
            return _write(document, path, copy.deepcopy(_read(document, source)), "add")
        case _:
            raise bad_request(f"unsupported JSON patch operation: {operation.get('op')!r}")


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON: true is not 1, at any depth."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(one, two) for one, two in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _tokens(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise _failed(f"{path} is no JSON pointer")
    return [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]


def _read(document: Any, path: str) -> Any:
    for token in _tokens(path):
        document = _child(document, token)
    return document


def _child(container: Any, token: str) -> Any:
    if isinstance(container, dict) and token in container:
        return container[token]
    if isinstance(container, list) and token.isdecimal() and int(token) < len(container):
        return container[int(token)]
    raise _failed(f"no value at {token}")


def _write(document: Any, path: str, value: Any, op: str) -> Any:
    tokens = _tokens(path)
    if not tokens:
        return value
    container = document
    for token in tokens[:-1]:
        container = _child(container, token)
    last = tokens[-1]
    if op != "add":
        _child(container, last)  # must exist
    if isinstance(container, dict):
        if op == "remove":
            del container[last]
        else:
            container[last] = value
    elif isinstance(container, list):
        _write_item(container, last, value, op)
    else:
        raise _failed(f"no container at {path}")
    return document


def _write_item(items: list[Any], at: str, value: Any, op: str) -> None:
    if op == "add":
        index = len(items) if at == "-" else int(at) if at.isdecimal() else -1
        if not 0 <= index <= len(items):
            raise _failed(f"no index {at}")
        items.insert(index, value)
    elif op == "remove":
        del items[int(at)]
    else:
        items[int(at)] = value


def merge_patch(document: Any, patch: Any) -> Any:
    """Apply RFC 7386: null removes, objects merge, everything else replaces. The arguments stay as they are."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(document: Any, patch: Any) -> Any:
    """Apply a strategic merge to a built-in kind: a merge patch, except for the few lists in STRATEGIC_KEYS.

    Only the directives that kubectl writes for these kinds are known: `$patch: delete` in a list item and
    `$setElementOrder/...`, which says nothing that matters here.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            _directive(result, key, value)
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in STRATEGIC_KEYS:
            result[key] = _merge_list(result.get(key) or [], value, STRATEGIC_KEYS[key])
        else:
            result[key] = strategic_merge(result.get(key), value)
    return result


def _directive(result: Obj, key: str, value: Any) -> None:
    name, _, field = key.partition("/")
    if name == "$deleteFromPrimitiveList":
        result[field] = [item for item in result.get(field, []) if item not in value]
    elif name not in {"$setElementOrder", "$retainKeys"}:
        raise bad_request(f"the sandbox does not know the strategic merge directive {key}")


def _merge_list(items: list[Any], patch: list[Any], merge_key: str | None) -> list[Any]:
    if merge_key is None:
        return items + [item for item in patch if item not in items]
    merged = {item.get(merge_key): item for item in items}
    for item in patch:
        identity = item.get(merge_key)
        if item.get("$patch") == "delete":
            merged.pop(identity, None)
        else:
            merged[identity] = strategic_merge(merged.get(identity), item)
    return list(merged.values())
