"""The reflector's state machine: list, then watch, and what to do when either goes wrong. Pure: no I/O, no clock.

`step(state, item)` answers the next state and effects. An effect is either something to do with what was seen
(`Observe`, `Remove`, `EndPass`, ...) or, always last, a request for more items (`Settle`, `GetPage`, `OpenInitial`,
`OpenWatch`, `Wait`); without a request the present source goes on. The loop around it is in `producer/reflector.py`.

                 Settle               InitialStream (WatchList) ──────┐
    Expired ──────────────► Begin ──►                                 ├──► EndPass ──► Watching ──► 410 ──► Expired
       ▲                              Listing (pages, the fallback) ──┘                   │
       └────────── BackingOff ◄─────── any failure ◄──────────────────────────────────────┘

Three rules lead through the table. Only a complete pass may conclude that something is absent. The position of the
watch moves with events and bookmarks that came after a pass, never with the pass's own objects (they come in the order
of their names). What cannot be understood is never skipped in a live stream: it might be a delete.
"""

from typing import Final

import msgspec

from producer.items import (
    TOO_LARGE,
    Begin,
    Bookmark,
    Closed,
    Gone,
    Item,
    Lost,
    Malformed,
    Observed,
    Page,
    Refused,
    Resync,
    Seen,
    Silent,
    Unidentified,
    Waited,
)
from producer.states import (
    Advance,
    BackingOff,
    BeginPass,
    Effect,
    EndPass,
    Expired,
    GetPage,
    InitialStream,
    Listing,
    Memory,
    Observe,
    OpenInitial,
    OpenWatch,
    Remove,
    Settle,
    State,
    Step,
    Trouble,
    Wait,
    Watching,
)
from shared.objects import compare_resource_versions

BACKOFF_BASE_S: Final = 1.0  # the mean first pause is half of it
BACKOFF_MAX_S: Final = 30.0  # as client-go
RETRY_AFTER_MAX_S: Final = 300.0  # what a server may ask for; a proxy's page may say a day
SHORT_WATCH_S: Final = 1.0  # a watch that ends sooner, without an event, is a failure
CUTS_MAX: Final = 2  # initial streams that are tried before pages are: making progress is better
BOOKMARKS_MAX: Final = 3  # without an object between them, in an initial stream: they come once a minute
_PAGES_TOO: Final = frozenset({401, 403, 404, 429})  # answers that a list in pages would get, too


def start() -> Step:
    """Return the state in which a reflector begins: a start always lists, whatever was known before."""
    return Expired(), (Settle(),)


def step(state: State, item: Item) -> Step:  # noqa: C901, PLR0911 - a table, one row per case
    """Return what follows when `item` arrives in `state`."""
    match state, item:
        case BackingOff(), Resync(_, probe):
            memory = _probing(state.memory, probe=probe)
            return BackingOff(memory, Expired(memory)), ()
        case Expired(), Resync(_, probe):
            return Expired(_probing(state.memory, probe=probe)), ()
        case _, Resync(reason, probe):
            return Expired(_probing(state.memory, probe=probe)), (Trouble("resync", reason), Settle())
        case Expired(memory), Begin():
            return _begin(memory)
        case BackingOff(then=Watching() as then), Waited():
            return _reopened(then)
        case BackingOff(), Waited():
            return Expired(state.memory), (Settle(),)
        case Expired(), Refused() | Lost():
            return _restart(state.memory, Trouble("inventory", _text(item)))
        case Listing(), _:
            return _listing(state, item)
        case InitialStream(), _:
            return _initial(state, item)
        case Watching(), _:
            return _watching(state, item)
        case _:
            raise AssertionError(f"{type(item).__name__} cannot come in {type(state).__name__}")


def backoff_s(failures: int, chance: float) -> float:
    """Return the pause after that many failures in a row, in seconds: exponential with full jitter.

    `chance` is a random number from 0 to 1. Full jitter, because all watchers of a server lose it in the same moment.
    """
    return min(BACKOFF_MAX_S, BACKOFF_BASE_S * 2.0 ** min(failures - 1, 16)) * chance


def _begin(memory: Memory) -> Step:
    if memory.watch_list and memory.cut < CUTS_MAX:
        return InitialStream(memory), (BeginPass(), OpenInitial())
    return Listing(_unstuck(memory)), (BeginPass(), GetPage(""))


def _listing(state: Listing, item: Item) -> Step:
    match item:
        case Page(items, version, token):
            if state.version not in {"", version}:
                return _restart(state.memory, Trouble("inconsistent", "pages of one list differ in resourceVersion"))
            if token in state.tokens:
                return _restart(state.memory, Trouble("inconsistent", "a continue token of a list came twice"))
            effects = tuple(_in_pass(found) for found in items)
            doubtful = state.doubtful + sum(isinstance(found, Unidentified) for found in items)
            if token:
                return Listing(state.memory, version, doubtful, state.tokens | {token}), (*effects, GetPage(token))
            watching = Watching(state.memory, version)
            return watching, (*effects, EndPass(version, doubtful), OpenWatch(version))
        case Refused():
            return _refused(state, item)
        case Lost() | Silent() | Malformed() | Closed():
            return _restart(state.memory, _trouble(item))
        case _:
            raise AssertionError(f"{type(item).__name__} cannot come in a list")


def _in_pass(found: Observed | Unidentified) -> Observe | Trouble:
    return _passed_over(found) if isinstance(found, Unidentified) else Observe(found, live=False)


def _passed_over(found: Unidentified) -> Trouble:
    return Trouble("unidentified", f"{found.name}: {found.why}")


def _initial(state: InitialStream, item: Item) -> Step:  # noqa: C901, PLR0911 - a table, one row per case
    memory = state.memory
    match item:
        case Seen(found):
            return InitialStream(memory, state.doubtful), (Observe(found, live=False),)
        case Gone(found):
            return InitialStream(memory, state.doubtful), (Remove(found),)
        case Unidentified():
            return InitialStream(memory, state.doubtful + 1), (_passed_over(item),)
        case Bookmark(version, True):
            return Watching(_unstuck(memory), version, told=version), (EndPass(version, state.doubtful),)
        case Bookmark() if state.bookmarks + 1 < BOOKMARKS_MAX:
            return InitialStream(memory, state.doubtful, state.bookmarks + 1), ()  # objects may still come
        case Bookmark():
            return _unreadable(memory, Trouble("malformed", "an initial state that does not come to its end"))
        case Refused() if _cannot_stream(item):
            return _without_watch_list(memory, _trouble(item))
        case Refused(code):
            return _refused(state if code in _PAGES_TOO else InitialStream(_cut(memory)), item)
        case Lost():
            return _restart(_cut(memory), _trouble(item))
        case Silent() | Malformed() | Closed():
            return _unreadable(memory, _trouble(item))
        case _:
            raise AssertionError(f"{type(item).__name__} cannot come in an initial stream")


def _unreadable(memory: Memory, trouble: Trouble) -> Step:
    """Try once more: a proxy that buffers, or a server that takes the request for an ordinary watch, stays so."""
    if memory.cut + 1 >= CUTS_MAX:
        return _without_watch_list(memory, trouble)
    return _restart(_cut(memory), trouble)


def _cannot_stream(item: Refused) -> bool:
    """Whether the server cannot stream its state: 422 or 400 by feature gate, ERROR 500 in the stream by old etcd."""
    return item.code in {400, 422} or (item.code == 500 and item.in_stream)


def _without_watch_list(memory: Memory, trouble: Trouble) -> Step:
    memory = msgspec.structs.replace(_unstuck(memory), watch_list=False)
    return Listing(memory), (trouble, BeginPass(), GetPage(""))


def _watching(state: Watching, item: Item) -> Step:  # noqa: C901, PLR0911 - a table, one row per case
    match item:
        case Seen(found) | Gone(found) if _disordered(state, found.resource_version):
            # Events of one watch come in order: what follows this one cannot be believed, and what was before neither.
            return _relist(state.memory, Trouble("restored", "an event is older than the one before it"))
        case Seen(found):
            return _event(state, found.resource_version, Observe(found, live=True))
        case Gone(found):
            return _event(state, found.resource_version, Remove(found))
        case Bookmark(version) if compare_resource_versions(version, state.position) < 0:
            # The server says that it has nothing newer than what we have passed: it is not the one that we followed.
            return _relist(state.memory, Trouble("restored", "a bookmark is older than the position of the watch"))
        case Bookmark(version):
            return _event(state, version, Advance(version))
        case Refused():
            return _refused(state, item)
        case Closed(lived_s) if state.events or lived_s >= SHORT_WATCH_S:
            after, effects = _reopened(msgspec.structs.replace(state, memory=_healthy(state.memory)))
            return after, (_trouble(item), *effects)
        case Lost() if state.events:
            after, effects = _reopened(state)
            return after, (_trouble(item), *effects)
        case Closed() | Lost():
            return _back_off(state, _trouble(item))
        case Malformed() | Unidentified() | Silent():
            return _stuck(state, _trouble(item))
        case _:
            raise AssertionError(f"{type(item).__name__} cannot come in a watch")


def _event(state: Watching, version: str, effect: Effect) -> Step:
    """Follow an event. What the server repeats, because the checkpoint is behind, is neither news nor progress."""
    if compare_resource_versions(version, state.position) <= 0:
        return Watching(state.memory, state.position, state.events, version), ()
    return Watching(_healthy(state.memory), version, state.events + 1, version), (effect,)


def _disordered(state: Watching, version: str) -> bool:
    return bool(state.told) and compare_resource_versions(version, state.told) < 0


def _reopened(state: Watching) -> Step:
    return Watching(state.memory, state.position), (OpenWatch(state.position),)


def _refused(state: Listing | InitialStream | Watching, item: Refused) -> Step:
    trouble = _trouble(item)
    if not isinstance(state, Watching):
        if item.code == 410:
            return _relist(state.memory, trouble)
        return _restart(state.memory, trouble, item.retry_after_s)
    match trouble.reason:
        case "expired" | "restored":
            return _relist(state.memory, trouble)
        case "absent":
            return _restart(state.memory, trouble)
        case "throttled" | "unavailable" | "unauthorized" | "forbidden":
            return _back_off(state, trouble, item.retry_after_s)
        case _:
            return _stuck(state, trouble)


def _relist(memory: Memory, trouble: Trouble) -> Step:
    """List again: at once, because it is routine, but not in a loop."""
    if memory.failures:
        return _restart(memory, trouble)
    return Expired(_failed(memory)), (trouble, Settle())


def _stuck(state: Watching, trouble: Trouble) -> Step:
    """Try the same position once more; at the second failure there give it up. Never skip what was not understood."""
    if state.memory.stuck_at == state.position:
        return _restart(_unstuck(state.memory), trouble)
    memory = msgspec.structs.replace(state.memory, stuck_at=state.position)
    if trouble.reason == "silent":  # 70 s of silence are pause enough
        after, effects = _reopened(msgspec.structs.replace(state, memory=memory))
        return after, (trouble, *effects)
    return _back_off(msgspec.structs.replace(state, memory=memory), trouble)


def _back_off(state: Watching, trouble: Trouble, retry_after_s: float | None = None) -> Step:
    memory = _failed(state.memory)
    then = Watching(memory, state.position)
    return BackingOff(memory, then), (trouble, _wait(memory, retry_after_s))


def _restart(memory: Memory, trouble: Trouble, retry_after_s: float | None = None) -> Step:
    """Begin from nothing after a pause: an unfinished pass is worth nothing."""
    memory = _failed(memory)
    return BackingOff(memory, Expired(memory)), (trouble, _wait(memory, retry_after_s))


def _wait(memory: Memory, retry_after_s: float | None) -> Wait:
    return Wait(memory.failures, min(retry_after_s or 0.0, RETRY_AFTER_MAX_S))


def _failed(memory: Memory) -> Memory:
    return msgspec.structs.replace(memory, failures=memory.failures + 1)


def _healthy(memory: Memory) -> Memory:
    return msgspec.structs.replace(memory, failures=0) if memory.failures else memory


def _probing(memory: Memory, *, probe: bool) -> Memory:
    return msgspec.structs.replace(memory, watch_list=True) if probe else memory


def _cut(memory: Memory) -> Memory:
    return msgspec.structs.replace(memory, cut=memory.cut + 1)


def _unstuck(memory: Memory) -> Memory:
    return msgspec.structs.replace(memory, stuck_at="", cut=0)


def _trouble(item: Refused | Closed | Lost | Silent | Malformed | Unidentified) -> Trouble:
    """Return the reason under which an end of a stream or list is counted, and what it says."""
    match item:
        case Closed():
            return Trouble("closed")
        case Silent():
            return Trouble("silent")
        case Lost(why):
            return Trouble("lost", why)
        case Malformed(why):
            return Trouble("malformed", why)
        case Unidentified():
            return _passed_over(item)
        case Refused():
            return Trouble(_refusal_reason(item), _text(item))


def _refusal_reason(item: Refused) -> str:
    if item.code == 410 or item.reason in {"Expired", "Gone"}:
        return "expired"
    if TOO_LARGE in item.causes:
        return "restored"  # the server is behind us: etcd was put back to an older copy
    fixed = {401: "unauthorized", 403: "forbidden", 404: "absent", 429: "throttled"}
    return fixed.get(item.code, "unavailable" if item.code >= 500 else "refused")


def _text(item: Refused | Lost) -> str:
    if isinstance(item, Lost):
        return item.why
    return f"{item.code} {item.reason} {item.message}".replace("  ", " ").strip()
