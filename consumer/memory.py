"""What the owner of a shard remembers of the objects it handled, so that what is known costs no call.

Only a saving: the truth stands in the record. It lasts as long as the term of its shard: another owner may have written
since. Lost with that, or at a restart, and then a repeated event costs one read.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from consumer.discovery import Asked, asked_of
from consumer.freshness import Freshness
from consumer.observation import Observation, Wanted, want
from consumer.ownership.fence import Term, term_at_hand
from consumer.plan import PlanSettings

UIDS_MAX: Final = 100_000  # about 1 KB each


class Inputs(msgspec.Struct, frozen=True):
    """Everything of an object that decides; equal inputs lead to the same end.

    `id_value`: our id on it. `asked`: the registry it asks for.
    """

    wanted: Wanted
    models: tuple[str, ...]
    id_value: str | None
    asked: Asked = Asked()


class Known(msgspec.Struct, frozen=True):
    """The last handled state of a uid.

    `digest`: its content, as it was before we wrote to it. `record_id`: the record of the present model. `closed`: the
    models whose records are known to be closed or never were. `due`: the id should be on the object, but writing it was
    too costly. `registry`: the name of the registry that all of this is about, "" where it has none. `left`: registries
    that it had before, and in which its records could not be closed yet; `refused`: nor ever, it seems. `rejections`:
    what a person is to be told of this state, said again with each event that changes nothing until it is `buried`.
    `unsure`: a later state was tried and not finished, and what of it was written nobody knows, so that not even a
    return to this state may be taken as done; or a look came before the event that is to do its work. `own`: the ids of
    all records that it ever had, as far as they were seen.
    """

    freshness: Freshness
    digest: str
    inputs: Inputs
    record_id: str | None = None
    closed: frozenset[str] = frozenset()
    due: bool = False
    registry: str = ""
    left: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    rejections: tuple[str, ...] = ()
    buried: bool = False
    unsure: bool = False
    own: frozenset[str] = frozenset()


def inputs_of(seen: Observation, settings: PlanSettings) -> Inputs:
    return Inputs(
        want(seen, settings.prefix),
        seen.models,
        settings.target.value_on(seen.obj),
        asked_of(seen.obj, settings.prefix),
    )


class Memory:
    """The last handled state of each uid, the least recently used forgotten first."""

    def __init__(self, uids_max: int = UIDS_MAX) -> None:
        self._uids_max = uids_max
        self._known: OrderedDict[str, tuple[Known, Term | None]] = OrderedDict()

    def get(self, uid: str) -> Known | None:
        """Return what is known since the term of the work at hand began."""
        known, term = self._known.get(uid, (None, None))
        if known is None or term is not term_at_hand():
            return None
        self._known.move_to_end(uid)
        return known

    def put(self, uid: str, known: Known) -> None:
        self._known[uid] = known, term_at_hand()
        self._known.move_to_end(uid)
        if len(self._known) > self._uids_max:
            self._known.popitem(last=False)

    def doubt(self, uid: str) -> None:
        """Let the next event of a uid read its records, whatever it says."""
        known = self.get(uid)
        if known is not None:
            self.put(uid, msgspec.structs.replace(known, unsure=True))

    def forget(self, uid: str) -> None:
        """Know nothing of a uid any more: what its record was written from has been taken back."""
        self._known.pop(uid, None)

    def bury(self, uid: str) -> None:
        """Note that what is known of a uid was stored as a dead letter; nothing, where nothing is known."""
        known = self.get(uid)
        if known is not None:
            self.put(uid, msgspec.structs.replace(known, buried=True))

    def deferred(self) -> int:
        """Return how many objects wait for their id."""
        return sum(known.due for known, term in self._known.values() if term is None or not term.over)
