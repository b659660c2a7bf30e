"""What the mass-delete guard keeps back, told to people, and released by them (`isvc-sync release`).

A release is no delete: it ends the guard's doubt about exactly these objects. The next list still has to lack them.
"""

import time
from collections.abc import Callable
from typing import Final

from producer.relay import Relay
from shared.holds import Held, HoldServer

_ABSENT: Final = "the kind is not installed in the cluster, or not in this version"
_NONE_LEFT: Final = "no object is left where these were"
_TOO_MANY: Final = "too many objects are gone at once, and a second list has not confirmed it yet"


class Holding:
    """Speaks for the guards of all relays of a term. `now` is the wall clock."""

    def __init__(self, relays: tuple[Relay, ...], now: Callable[[], float] = time.time) -> None:
        self._relays = relays
        self._now = now
        self._before: dict[Relay, Held] = {}

    def register(self, server: HoldServer) -> None:
        server.register("producer", self.held, self.release)

    def held(self) -> list[Held]:
        """Return what is held at present; it is as old as the first call that returned it."""
        found = {relay: held for relay in self._relays if (held := self._held_by(relay)) is not None}
        self._before = {relay: held.continued(self._before.get(relay)) for relay, held in found.items()}
        return list(self._before.values())

    def release(self, held: Held) -> bool:
        """Let the next list of the relay that holds this delete it."""
        relay = next((relay for relay, before in self._before.items() if before == held), None)
        if relay is None:
            return False
        relay.approve(held.objects)
        return True

    def _held_by(self, relay: Relay) -> Held | None:
        objects = relay.inventory.held
        if not objects:
            return None
        remaining = relay.inventory.living() - relay.inventory.left_scope - len(objects)
        why = _ABSENT if relay.reflector.kind_is_absent else _TOO_MANY if remaining else _NONE_LEFT
        return Held(
            kind=relay.kind,
            why=why,
            objects=objects,
            known=relay.inventory.living(),
            since_s=self._now(),
            scope=tuple(sorted(relay.scope or ())),
        )
