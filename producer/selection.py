"""Which objects are wanted, and what it means when one of them is no longer seen.

Deleted, or only outside of what is asked for? An API server says DELETED for both, and a list lacks both. Here is
where the difference is found out, before anything is published: an object that still exists has left the selection,
and that is never a delete.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar

from producer.passes import Scope, Verified
from shared.errors import IsvcSyncError
from shared.objects import ObjectKey

logger = logging.getLogger(__name__)

T = TypeVar("T")
# Answer the uid of an object, whatever its labels (None: there is none), and whether a namespace exists (or may not be
# asked for). Both raise an IsvcSyncError when there is no answer.
UidOf = Callable[[ObjectKey], Awaitable[str | None]]
NamespaceExists = Callable[[str], Awaitable[bool]]

_AT_ONCE: Final = 16  # questions about objects under way; a pass may have thousands when the selector has changed
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 30.0


class Scoped(Protocol):
    """Which namespaces are wanted at present."""

    async def known(self) -> None:
        """Return when it is known."""

    def scope(self) -> Scope:
        """Return the namespaces, None for all of them."""

    def met(self, namespace: str) -> None:
        """Note a namespace, outside of the scope, that has objects."""


class Fixed:
    """The namespaces of a setting, or all."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def known(self) -> None:
        """Return at once."""

    def scope(self) -> Scope:
        return self._scope

    def met(self, namespace: str) -> None:
        """Ignore what is not in the setting."""


class Selection:
    """The wanted namespaces; with `uid_of`, objects are chosen by their labels, too."""

    def __init__(self, namespaces: Scoped, namespace_exists: NamespaceExists, uid_of: UidOf | None = None) -> None:
        self._namespaces = namespaces
        self._namespace_exists = namespace_exists
        self._uid_of = uid_of

    async def known(self) -> None:
        await self._namespaces.known()

    def scope(self) -> Scope:
        return self._namespaces.scope()

    def met(self, namespace: str) -> None:
        self._namespaces.met(namespace)

    async def exists_still(self, key: ObjectKey, uid: str) -> bool:
        """Whether the object of a DELETED event has only lost the labels that it is chosen by."""
        uid_of = self._uid_of
        return uid_of is not None and await _answered(lambda: uid_of(key)) == uid

    async def verified(self, absent: Mapping[ObjectKey, str], scope: Scope) -> Verified:
        """Find out about objects (key -> uid) that a complete list of `scope` lacks.

        With labels, those that still exist; and of the namespaces outside the scope, those that are no more.
        """
        outside = {key.namespace for key in absent if scope is not None and key.namespace not in scope}
        inside = [] if self._uid_of is None else [key for key in absent if key.namespace not in outside]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def exists(key: ObjectKey) -> bool:
            async with limit:
                return await self.exists_still(key, absent[key])

        async def vanished(name: str) -> bool:
            async with limit:
                return not await _answered(lambda: self._namespace_exists(name))

        exist = await asyncio.gather(*map(exists, inside))
        gone = await asyncio.gather(*map(vanished, sorted(outside)))
        return Verified(
            elsewhere=frozenset(key for key, there in zip(inside, exist, strict=True) if there),
            vanished=frozenset(name for name, is_gone in zip(sorted(outside), gone, strict=True) if is_gone),
        )


async def _answered(question: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: a guess could be a delete."""
    pause_s = _RETRY_S
    while True:
        try:
            return await question()
        except IsvcSyncError as error:
            fields = {"error": str(error), "pause_s": pause_s}
            logger.warning("cannot find out whether an object still exists; asking again", extra=fields)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
