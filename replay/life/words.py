"""What changed on an object between two of its events, in words. Pure; `life.py` makes a life of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from shared.objects import STOP_ANNOTATION, ReducedObject
from shared.reduce import KSERVE_PREFIXES, LOAD_FAILURES, known_prefixes

SPEC_NAMED: Final = 4  # changes of the spec that are told one by one
TEXT_MAX: Final = 120


def first_words(obj: ReducedObject, prefix: str) -> tuple[str, ...]:
    """Return what the first event shows that is known of an object. `prefix` is the configured one of our labels."""
    nothing = msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(obj.metadata, labels={}, annotations={}), status=type(obj.status)()
    )
    return changed_words(nothing, obj, prefix) or ("no label of ours",)


def changed_words(before: ReducedObject, now: ReducedObject, prefix: str) -> tuple[str, ...]:
    """Return what of an object changed, the most decisive first, a few words each; nothing where only counts did."""
    return (
        *_deletion(before, now),
        *_map_changes("label", before.metadata.labels, now.metadata.labels, prefix),
        *_stop(before, now),
        *_map_changes("annotation", before.metadata.annotations, now.metadata.annotations, prefix),
        *_status(before, now),
        *_spec(before, now),
    )


def _deletion(before: ReducedObject, now: ReducedObject) -> Iterator[str]:
    if now.metadata.deletion_timestamp and not before.metadata.deletion_timestamp:
        yield f"is being deleted since {now.metadata.deletion_timestamp}"


def _stop(before: ReducedObject, now: ReducedObject) -> Iterator[str]:
    if before.is_stopped is not now.is_stopped:
        yield "stopped" if now.is_stopped else "started again"


def _map_changes(what: str, before: Mapping[str, str], now: Mapping[str, str], prefix: str) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) == now.get(key) or key == STOP_ANNOTATION:
            continue
        name = _short(key, prefix)
        if key not in now:
            yield f"{what} {name} removed, was {_text(before[key])}"
        else:
            yield f"{what} {name} " + _arrow(before.get(key, ""), now[key])


def _short(key: str, prefix: str) -> str:
    """Return a key without a prefix that everybody knows. That of the other controllers stays: it is another label."""
    for each in (prefix, *KSERVE_PREFIXES):
        if key.startswith(each):
            return key.removeprefix(each)
    return key if key.startswith(known_prefixes(prefix)) else _text(key)


def _status(before: ReducedObject, now: ReducedObject) -> Iterator[str]:
    old, new = before.status, now.status
    ready, was_ready = new.condition("Ready").status, old.condition("Ready").status
    if ready != was_ready:
        yield "Ready " + _arrow(was_ready, ready or "unknown")
    failure, earlier = new.model_status.transition_status, old.model_status.transition_status
    if failure in LOAD_FAILURES and failure != earlier:
        yield f"cannot be loaded: {failure}"
    elif earlier in LOAD_FAILURES and failure != earlier:
        yield "can be loaded again"
    if new.url != old.url:
        yield "url " + _arrow(old.url, new.url) if new.url else "url removed"
    addresses, former = _addresses(now), _addresses(before)
    if addresses != former and not new.url:
        yield "address " + _arrow(former, addresses) if addresses else "address removed"
    if new.deployment_mode != old.deployment_mode:
        yield f"mode {_arrow(old.deployment_mode, new.deployment_mode or 'unknown')}"
    runtime, other = _runtime(now), _runtime(before)
    if runtime != other:
        yield "runtime " + _arrow(other, runtime or "none")


def _addresses(obj: ReducedObject) -> str:
    urls = (obj.status.address.url, *(each.url for each in obj.status.addresses))
    return next((url for url in urls if url), "")


def _runtime(obj: ReducedObject) -> str:
    return obj.status.cluster_serving_runtime_name or obj.status.serving_runtime_name


def _spec(before: ReducedObject, now: ReducedObject) -> Iterator[str]:
    old, new = _flat(before.spec), _flat(now.spec)
    changed = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    for path in changed[:SPEC_NAMED]:
        yield f"{path} " + _arrow(old.get(path, ""), new.get(path, "none"))
    if len(changed) > SPEC_NAMED:
        yield f"{len(changed) - SPEC_NAMED} more of the spec"


def _flat(value: Any) -> dict[str, str]:
    """Return what decisions read of a spec, as text by its path."""
    return dict(_leaves("spec", msgspec.to_builtins(value)))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(f"{path}.{name}", part)
    elif isinstance(value, list | tuple):
        for position, part in enumerate(value):
            yield from _leaves(f"{path}[{position}]", part)
    elif value not in {None, ""}:
        yield path, str(value)


def _arrow(before: str, now: str) -> str:
    return f"{_text(before)} -> {_text(now)}" if before else _text(now)


def _text(text: str) -> str:
    if text == "":
        return '""'
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
