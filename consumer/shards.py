"""Which shards this process owns, and for how long an effect may still happen.

One consumer process owns every shard for now, by its deployment (`replicas: 1`, `strategy: Recreate`). Ownership by
leases takes the place of `SoleOwner`; what asks it is written for several owners already: the fence is checked right
before every effect, each request is given the time that is left, and takeover is the pull loop's reset.
"""

import math

from shared.objects import ObjectKey


class SoleOwner:
    """The owner of all shards."""

    def __init__(self, shards: int) -> None:
        self.owned = frozenset(range(shards))

    def fence(self, key: ObjectKey) -> None:
        """Return if an effect on the object may happen now. Another ownership raises TransientError when it is lost."""

    def budget_s(self) -> float:
        """Return the seconds in which an effect may still happen."""
        return math.inf
