"""What a failure means for the message at hand. Pure.

Only what can never succeed is buried; everything else is tried again without limit, because a registry that is down for
hours must cost nothing but time. No number of attempts turns one into the other.
"""

from typing import Final

import msgspec

from shared.errors import (
    BadEventError,
    ConflictError,
    NotFoundError,
    NotSentError,
    PermanentError,
    TransientError,
    UnsettledError,
)

DELAY_S_MIN: Final = 0.25
DELAY_S_MAX: Final = 60.0
HELD_SPREAD_S: Final = (
    1.0  # what waits for one registry's return comes over so many seconds, the first one as the probe
)
LOOK_AGAIN_S: Final = 0.1  # a conflict is settled by reading again, not by waiting


class Ack(msgspec.Struct, frozen=True):
    """Done."""


class Retry(msgspec.Struct, frozen=True):
    """Once more after `delay_s` seconds. `held`: nothing was tried, so that it counts as no attempt.

    `yields`: a newer state of the object is not to wait for it, whatever is lost with it: it may never succeed.
    """

    delay_s: float
    reason: str
    held: bool = False
    yields: bool = False


class Bury(msgspec.Struct, frozen=True):
    """To the dead letters."""

    reason: str


Verdict = Ack | Retry | Bury


def verdict(failure: Exception | None, attempt: int, chance: float) -> Verdict:
    """Return what to do with a message after `attempt` tries (counted from one).

    `chance`, in [0, 1), spreads the delays ("full jitter"): many objects that failed together do not return together.
    An exception that is none of ours is a fault of this program: retried, too, so that a fixed version can do the work.
    """
    assert attempt >= 1, "attempts count from one"
    match failure:
        case None:
            return Ack()
        case PermanentError() | BadEventError():
            return Bury(str(failure))
        case ConflictError() | NotFoundError() if attempt == 1:
            return Retry(LOOK_AGAIN_S, str(failure))
        case NotSentError(retry_after_s=float(wait_s)):
            return Retry(wait_s + HELD_SPREAD_S * chance, str(failure), held=True)
        case TransientError(retry_after_s=float(wish)) if wish > 0:
            return Retry(min(DELAY_S_MAX, wish) * (1 + chance), str(failure))
        case _:
            ceiling = min(DELAY_S_MAX, DELAY_S_MIN * 2 ** min(attempt, 16))
            reason = str(failure) or type(failure).__name__
            return Retry(max(DELAY_S_MIN, ceiling * chance), reason, yields=isinstance(failure, UnsettledError))
