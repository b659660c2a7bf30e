"""When a kind may be announced as complete: when each of its lists is. Pure; shared by the relays of a process.

One list covers all namespaces, or one each where only some may be read. The sync marker of a kind has one subject, so
it speaks for all of them.
"""

from collections.abc import Iterable

from producer.items import Watched
from producer.passes import Scope
from shared.events import SyncMarker


class Completeness:
    """Which lists have been complete, and at which resourceVersion, since the event stream was created."""

    def __init__(self, lists: Iterable[Watched]) -> None:
        self._lists = frozenset(lists)
        self._reached: dict[Watched, tuple[Scope, str]] = {}

    def forget(self) -> None:
        """Begin anew: the stream is another one, and holds nothing yet."""
        self._reached.clear()

    def reached(self, watched: Watched, scope: Scope, version: str, epoch: int) -> SyncMarker | None:
        """Note a complete list, all of whose events are acknowledged; return what may be announced now.

        At the highest resourceVersion of the lists: each of them will be newer when it is read again. Nothing, while
        one is missing, or when no namespace is selected.
        """
        self._reached[watched] = (scope, version)
        those = [each for each in self._lists if each.kind == watched.kind]
        if any(each not in self._reached for each in those):
            return None
        scopes = [self._reached[each][0] for each in those]
        if all(scope is not None and not scope for scope in scopes):
            return None
        named = () if None in scopes else tuple(sorted({name for scope in scopes for name in scope or ()}))
        highest = max((self._reached[each][1] for each in those), key=lambda version: (len(version), version))
        return SyncMarker(named, highest, epoch)
