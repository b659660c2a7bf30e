"""What the consumer does not promise: each known limit by its name in docs/consumer-simulation.md, as narrow as can be.

`claims.py` leaves these out and nothing else; `test_consumer_limits.py` shows those for which a seed is known.
"""

from typing import TYPE_CHECKING

from tests.simulation.consumer import truth as said

if TYPE_CHECKING:
    from tests.simulation.consumer.truth import Truth
    from tests.simulation.consumer.world import World


def passed_over(world: "World", truth: "Truth") -> bool:
    """Known limit: a state that is met after a newer one is old news, and nothing tells its model or version.

    So it is when a producer says it late, or a delivery was lost. What a late request wrote over is lost likewise.
    """
    if truth.uid in world.overtaken:
        return True
    highest: said.Freshness = (0, False, 0)
    lost = {sequence for durable in world.broker.durables for sequence in durable.lost}
    for one in world.broker.told:
        if one.event is None or one.living is None or one.event.uid != truth.uid:
            continue
        freshness = said.freshness_of(one.event, one.living)
        if freshness < highest or one.sequence in lost:
            return True
        highest = freshness
    return False


def overtaken(world: "World", truth: "Truth") -> bool:
    """Known limit: a request that nobody waits for any more may land on what was written after it, until the sweep.

    The registry has no condition for a write, so nothing can refuse it.
    """
    state = said.freshness_of(truth.event, truth.living)
    late = world.landed_late.get(truth.uid, [])
    return truth.uid in world.overtaken or any(said.is_older(each, state) for each in late)


def out_of_reach(world: "World", truth: "Truth") -> bool:
    """Known limit: a look that names no record finds the present owner of a name, not an earlier one's records."""
    owners = [one.event.uid for one in world.broker.told if one.event is not None and one.key == truth.key]
    return overtaken(world, truth) and owners[-1] != truth.uid


def unrecorded_end(world: "World", truth: "Truth") -> bool:
    """Known limit: what ended without a model label has no record that could say so to a late event with one.

    When another owner of the name is told of after that, no list finds it either; the sweep does.
    """
    del world
    return truth.event.models == () and truth.carried != ()


def undone_unseen(world: "World", truth: "Truth") -> bool:
    """Known limit: our id was written and taken away while no producer watched: no event says so, the sweep does."""
    return (truth.event.epoch, int(truth.event.resource_version)) < world.patched.get(truth.uid, (0, 0))


def due_forgotten(world: "World", truth: "Truth") -> bool:
    """Known limit: that an id is due is remembered by the shard's owner only; after its end the sweep finds it."""
    return truth.uid in world.due_forgotten


def dead_letter_unsure(world: "World", truth: "Truth") -> bool:
    """Known limit: dead letters have no freshness; a late request may bury or clear after the next owner did."""
    return truth.key in world.buried_late
