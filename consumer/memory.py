"""What the owner of a shard remembers of the objects it handled, so that what is known costs no call.

Only a saving: the truth stands in the record. Lost at a restart or takeover, and then a repeated event costs one read.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from consumer.freshness import Freshness
from consumer.observation import Observation, Wanted, want
from consumer.plan import PlanSettings

UIDS_MAX: Final = 100_000  # about 1 KB each


class Inputs(msgspec.Struct, frozen=True):
    """Everything of an object that `plan` looks at; equal inputs lead to the same end. `id_value`: our id on it."""

    wanted: Wanted
    models: tuple[str, ...]
    id_value: str | None


class Known(msgspec.Struct, frozen=True):
    """The last handled state of a uid.

    `digest`: its content, as it was before we wrote to it. `record_id`: the record of the present model. `closed`: the
    models whose records are known to be closed or never were. `due`: the id should be on the object, but writing it was
    too costly.
    """

    freshness: Freshness
    digest: str
    inputs: Inputs
    record_id: str | None = None
    closed: frozenset[str] = frozenset()
    due: bool = False


def inputs_of(seen: Observation, settings: PlanSettings) -> Inputs:
    return Inputs(want(seen, settings.prefix), seen.models, settings.target.value_on(seen.obj))


class Memory:
    """The last handled state of each uid, the least recently used forgotten first."""

    def __init__(self, uids_max: int = UIDS_MAX) -> None:
        self._uids_max = uids_max
        self._known: OrderedDict[str, Known] = OrderedDict()

    def get(self, uid: str) -> Known | None:
        known = self._known.get(uid)
        if known is not None:
            self._known.move_to_end(uid)
        return known

    def put(self, uid: str, known: Known) -> None:
        self._known[uid] = known
        self._known.move_to_end(uid)
        if len(self._known) > self._uids_max:
            self._known.popitem(last=False)

    def deferred(self) -> int:
        """Return how many objects wait for their id."""
        return sum(known.due for known in self._known.values())

    def clear(self) -> None:
        """Forget everything: the shards may have had another owner meanwhile."""
        self._known.clear()
