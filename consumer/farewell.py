"""Close an object's records in registries that it has left for another one. A registry that fails holds up nothing.

One that is away is tried again until it is done. One that refuses for good, because it was made read-only, say, is for
a person to see; it is asked again when the object changes, and by the sweep.
"""

from collections.abc import Iterable

import msgspec

from consumer.act import Actor
from consumer.lookup import Lookup
from consumer.observation import Observation
from consumer.plan import PlanSettings, leave
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError


class Farewell(msgspec.Struct):
    """What came of it. `failure`: why one of `left` failed; `refusals`: why each of `refused` did, for people."""

    wrote: bool = False
    left: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    failure: TransientError | None = None
    refusals: tuple[str, ...] = ()


async def bid_farewell(seen: Observation, lookups: Iterable[Lookup], actor: Actor, settings: PlanSettings) -> Farewell:
    """Close the object's records in these registries, one after the other."""
    farewell = Farewell()
    for lookup in lookups:
        name = lookup.place.name
        try:
            records = await lookup.records(seen, seen.models, thorough=True)
            outcome = await actor.perform(leave(seen, records, settings), seen, lookup.place)
        except TransientError as error:
            farewell.left |= {name}
            farewell.failure = error
        except (PermanentError, ConflictError, NotFoundError) as error:
            farewell.refused |= {name}
            farewell.refusals += (f"its record in registry {name}, which it has left, cannot be closed: {error}",)
        else:
            farewell.wrote = farewell.wrote or outcome.wrote
    return farewell
