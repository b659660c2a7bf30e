"""Serving environments of the registry: found once, made when absent, remembered by name."""

from weakref import WeakValueDictionary

import msgspec

from consumer.ports import Registry
from consumer.requests.inflight import InFlightLimit
from shared.errors import ConflictError, PermanentError


class Environments:
    """Names to ids, in one registry.

    Many consumers may create the same one at once: the registry lets one win, and the others find it.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ids: dict[str, str] = {}
        # Many ask at once, once is enough; and nobody waits for long behind one who gets no answer.
        self._asking: WeakValueDictionary[str, InFlightLimit] = WeakValueDictionary()

    async def find(self, name: str) -> str | None:
        """Return the id of an environment, or None when the registry has none of that name.

        Raises NotSentError where somebody else has been asking for it for over a second.
        """
        async with self._asking.setdefault(name, InFlightLimit(1)):
            return await self._find(name)

    async def get_or_create(self, name: str) -> str:
        """Return the id of an environment.

        Raises PermanentError when its name is taken, yet cannot be found; NotSentError as `find`.
        """
        async with self._asking.setdefault(name, InFlightLimit(1)):
            present = await self._find(name)
            if present is not None:
                return present
            try:
                self._ids[name] = await self._registry.create_environment(name)
            except ConflictError as error:
                found = await self._find(name)
                if found is None:
                    # A database that compares names without case: `Team-A` collides with `team-a`.
                    raise PermanentError(
                        f"the registry has a serving environment like {name!r}, but not of that name"
                    ) from error
            return self._ids[name]

    async def _find(self, name: str) -> str | None:
        if name not in self._ids:
            found = await self._registry.find_environment(name)
            if found is None:
                return None
            self._ids[name] = found
        return self._ids[name]

    def forget(self, name: str) -> None:
        self._ids.pop(name, None)


class Place(msgspec.Struct, frozen=True):
    """One registry, where records are written. `name` tells it apart from others: equal ids there are other things."""

    name: str
    registry: Registry
    environments: Environments
