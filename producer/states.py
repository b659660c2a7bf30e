"""The reflector's states and what it asks its shell to do, as values: what `watch.step` goes between. Pure."""

from typing import Final

import msgspec

from producer.items import Observed


class Memory(msgspec.Struct, frozen=True):
    """What outlives a state.

    `failures` in a row set the length of the pause. `stuck_at` is the position at which the stream last became
    unusable: when that happens twice at the same position, the position is given up. `watch_list` says whether the
    server can stream its initial state; `cut` counts the initial streams in a row that did not come to their end.
    """

    watch_list: bool = True
    failures: int = 0
    stuck_at: str = ""
    cut: int = 0


class Expired(msgspec.Struct, frozen=True):
    """There is no position to go on from: a pass begins as soon as all that was published is acknowledged."""

    memory: Memory = Memory()


class Listing(msgspec.Struct, frozen=True):
    """Reading a list page by page; `version` is the list's resourceVersion, which all pages must share.

    `tokens` are those that were followed: one that comes again leads in a circle.
    """

    memory: Memory
    version: str = ""
    doubtful: int = 0
    tokens: frozenset[str] = frozenset()


class InitialStream(msgspec.Struct, frozen=True):
    """Reading the initial state from a watch that goes on as the live one.

    `bookmarks` counts those since the last object: with too many of them, it will not come to its end.
    """

    memory: Memory
    doubtful: int = 0
    bookmarks: int = 0


class Watching(msgspec.Struct, frozen=True):
    """Following the changes after `position`; `events` counts what moved it in the present stream.

    `told` is the version of the last event in the present stream: behind `position` as long as it repeats, but never
    behind itself.
    """

    memory: Memory
    position: str
    events: int = 0
    told: str = ""


class BackingOff(msgspec.Struct, frozen=True):
    """Pausing, then going on with `then`."""

    memory: Memory
    then: Watching | Expired


State = Expired | Listing | InitialStream | Watching | BackingOff


class BeginPass(msgspec.Struct, frozen=True):
    """Forget what an unfinished pass has seen, and begin one."""


class Observe(msgspec.Struct, frozen=True):
    """This object exists and looks like this; `live`: it has just changed, otherwise it belongs to the pass."""

    object: Observed
    live: bool


class Remove(msgspec.Struct, frozen=True):
    """This object was deleted; we saw it go."""

    object: Observed


class EndPass(msgspec.Struct, frozen=True):
    """The pass is complete at `version`; with `doubtful` objects it may conclude no absence."""

    version: str
    doubtful: int


class Advance(msgspec.Struct, frozen=True):
    """Everything up to `position` has been seen (a bookmark says so)."""

    position: str


class Trouble(msgspec.Struct, frozen=True):
    """To be counted by `reason` and logged: why a stream or list ended, or that one object was passed over."""

    reason: str
    detail: str = ""


class Settle(msgspec.Struct, frozen=True):
    """Wait until all that was published is acknowledged, read the inventory, then answer `Begin`."""


class GetPage(msgspec.Struct, frozen=True):
    token: str


class OpenInitial(msgspec.Struct, frozen=True):
    """Open a watch that begins with the complete state (WatchList)."""


class OpenWatch(msgspec.Struct, frozen=True):
    position: str


class Wait(msgspec.Struct, frozen=True):
    """Pause for `backoff_s(failures, chance)`, and at least `at_least_s`; then answer `Waited`."""

    failures: int
    at_least_s: float = 0.0


Request = Settle | GetPage | OpenInitial | OpenWatch | Wait
Effect = BeginPass | Observe | Remove | EndPass | Advance | Trouble | Request
Step = tuple[State, tuple[Effect, ...]]


# What a trouble means for people; its short name is the label of the metric.
QUIET: Final = frozenset({"closed", "expired", "resync"})  # the daily life of a watch
HELD: Final = (
    "too many objects are gone at once; their deletes are held until a second list agrees, or, when none is left at "
    "all, until a person says that it is true: `isvc-sync release` shows and releases them"
)
SENTENCES: Final = {
    "absent": "the kind is not installed in the cluster (or not in LLMISVC_API_VERSION); waiting for it, "
    "nothing counts as deleted",
    "forbidden": "the API server refuses: grant get, list and watch on the kind to the producer",
    "unauthorized": "the API server does not accept the credentials",
    "unidentified": "an object cannot be identified",
    "inventory": "the inventory cannot be read yet",
    "closed": "the watch was ended by the server",
    "expired": "the position of the watch has expired; listing again",
    "refused": "the API server refuses the request; are OBJECT_SELECTOR and NAMESPACES right?",
    "restored": "the API server is behind the watch; was etcd restored? Listing again",
    "resync": "listing again",
    "stuck": "the watch does not come to what a list shows, although it is open; listing again",
}
