"""What a complete list is compared by: its scope, what was found out about its gaps, how it ended, the epoch. Pure."""

from collections.abc import Iterable

import msgspec

from producer.changes import Change
from shared.objects import ObjectKey

Scope = frozenset[str] | None  # the namespaces that a pass lists completely; None: all of them


class Verified(msgspec.Struct, frozen=True):
    """What was found out about entries that a list lacks, by asking for each of them.

    `elsewhere`: objects that have not gone but left the selection, and those of which that cannot be ruled out.
    `vanished`: namespaces outside the scope that do not exist any more.
    """

    elsewhere: frozenset[ObjectKey] = frozenset()
    vanished: frozenset[str] = frozenset()


class Outcome(msgspec.Struct, frozen=True):
    """How a pass ended. Only a complete one may be announced: up to here the stream is the cluster.

    `held` are the deletes that the guard keeps back; `left_scope` counts living entries that are out of the selection.
    """

    changes: tuple[Change, ...]
    complete: bool
    held: int = 0
    left_scope: int = 0


class Pass(msgspec.Struct):
    """What an unfinished pass has seen.

    `known` counts the living entries in `scope` when it began; `highest` is the highest resourceVersion that the
    broker knew in `epoch`. `unseen` names the entries that it has not seen: pointers to what is there, where a set of
    what was seen would hold keys of its own.
    """

    known: int
    epoch: int
    highest: str
    unseen: set[str]
    seen: int = 0


class Epoch:
    """The Unix second in which the present numbering of resourceVersions began; one for all kinds of a cluster."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def known(self, value: int) -> None:
        """Take over an epoch that was found in the broker."""
        self.value = max(self.value, value)

    def begin(self, now_s: int) -> None:
        """Begin a new one."""
        self.value = max(now_s, self.value + 1)


def within(scope: Scope, key: ObjectKey) -> bool:
    return scope is None or key.namespace in scope


def highest_of(versions: Iterable[str]) -> str:
    """Return the greatest resourceVersion, or an empty text."""
    return max(versions, key=lambda version: (len(version), version), default="")
