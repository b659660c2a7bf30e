"""The registries of this process: which one is an object's, and a client for each, opened when it is first needed.

Several at once, and nothing is shared between two of them: each has its own connections, limit on requests in flight,
circuit, API version, and memory of environments and models. One that hangs stops its own objects and no others.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from consumer.discovery import (
    DiscoverySettings,
    Located,
    Refused,
    Resolution,
    asked_of,
    known_registries,
    registry_named,
    resolve,
)
from consumer.environments import Environments, Place
from consumer.lookup import Lookup
from consumer.observation import Observation
from consumer.plan import PlanSettings
from consumer.registry import ModelRegistry
from consumer.requests.exchange import Budget, Instruments
from consumer.requests.inflight import InFlightLimit, share
from consumer.requests.registry_client import RegistryAccess, RegistryClient
from consumer.services import AGAIN_S, ServiceCatalog
from shared.errors import PermanentError, TransientError, UnsettledError

logger = logging.getLogger(__name__)

CHOSEN_MAX: Final = 64
"""Addresses that only objects have named. On an allowed host they may choose the path, and each address costs a client
and a metric. What settings and Services name has its place whatever objects say."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """How a registry is opened. `access` makes an address reachable; `on_circuit` is told (registry's name, state)."""

    access: Callable[[str], RegistryAccess]
    in_flight: int
    instruments: Instruments
    on_circuit: Callable[[str, str], None]
    budget: Budget
    now: Callable[[], float]


class _Opened(msgspec.Struct, frozen=True):
    client: RegistryClient
    limit: InFlightLimit
    lookup: Lookup


class Registries:
    """Implements what `reconcile.py` asks for."""

    def __init__(
        self, opening: Opening, catalog: ServiceCatalog, discovery: DiscoverySettings, deciding: PlanSettings
    ) -> None:
        self._opening = opening
        self._catalog = catalog
        self._discovery = discovery
        self._deciding = deciding
        self._in_flight = opening.in_flight
        self._opened: dict[str, _Opened] = {}  # by address
        self._latest: dict[str, str] = {}  # a registry's name to its address as it was last found
        self._by_settings = {discovery.url, *(each for rule in discovery.rules for each in rule.registries)}

    async def choose(self, seen: Observation) -> Lookup:
        """Return the registry of an object.

        Raises PermanentError when it is not allowed, UnsettledError when there is none, or it is not clear which.
        """
        found = await self._resolve(seen)
        match found:
            case Located():
                return self._opened_at(found).lookup
            case Refused(reason):
                raise PermanentError(reason)
            case _:
                raise UnsettledError(found.reason)

    def named(self, name: str) -> Lookup:
        """Return a registry that was chosen before."""
        return self._opened[self._latest[name]].lookup

    async def find(self, name: str) -> Lookup | None:
        """Return the registry of that name, chosen before or not; None when requests to it are not allowed (now)."""
        if name in self._latest:
            return self.named(name)
        located = registry_named(name, await self._catalog.services(), self._discovery)
        return None if located is None else self._opened_at(located).lookup

    async def everywhere(self) -> tuple[Lookup, ...]:
        """Return the registries that are known without an object, and those that objects have named."""
        for located in known_registries(await self._catalog.services(), self._discovery):
            self._opened_at(located)
        return tuple(self.named(name) for name in sorted(self._latest))

    def resize(self, *, owned: int, shards: int, members: int) -> None:
        """Take our part of the requests in flight, as owner of so many of all shards among so many consumers."""
        self._in_flight = share(self._opening.in_flight, owned=owned, shards=shards, members=members)
        for opened in self._opened.values():
            opened.limit.resize(self._in_flight)

    async def close(self) -> None:
        for opened in self._opened.values():
            await opened.client.close()

    async def _resolve(self, seen: Observation) -> Resolution:
        """Resolve with the Services that are known; where that leads nowhere, with those of this moment."""
        asked = asked_of(seen.obj, self._discovery.prefix)
        found = resolve(seen.key.namespace, asked, await self._catalog.services(), self._discovery)
        if isinstance(found, Located):
            return found
        services = await self._catalog.services(not_older_than_s=AGAIN_S)
        return resolve(seen.key.namespace, asked, services, self._discovery)

    def _opened_at(self, found: Located) -> _Opened:
        opened = self._opened.get(found.address) or self._open(found)
        self._latest[found.name] = found.address
        return opened

    def _open(self, found: Located) -> _Opened:
        chosen = [address for address, each in self._opened.items() if self._is_chosen(each.lookup.place.name, address)]
        if self._is_chosen(found.name, found.address) and len(chosen) >= CHOSEN_MAX:
            raise TransientError(f"registry {found.name}: objects have named {CHOSEN_MAX} others, which is the limit")
        opening, name = self._opening, found.name
        limit = InFlightLimit(self._in_flight)
        try:
            access = opening.access(found.address)
        except ValueError as error:
            raise PermanentError(f"registry {name}: {error}") from error
        client = RegistryClient(
            access,
            limit,
            opening.instruments,
            lambda state: opening.on_circuit(name, state),
        )
        registry = ModelRegistry(client, opening.budget)
        place = Place(name, registry, Environments(registry))
        opened = _Opened(client, limit, Lookup(place, self._deciding, opening.now))
        self._opened[found.address] = opened
        logger.info("using a registry", extra={"registry": name, "address": found.address})
        return opened

    def _is_chosen(self, name: str, address: str) -> bool:
        """Whether only objects name this registry: it is no Service's, and no setting's."""
        return name == address and address not in self._by_settings
