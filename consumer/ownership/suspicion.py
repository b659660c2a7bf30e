"""Which messages may have killed an owner: what a shard's lease remembers of it, from owner to owner. Pure.

A process that is killed by a message leaves no trace but its end, and the reset at takeover sets the broker's count of
deliveries back to one. So the lease counts. Whatever was delivered to an owner that died is suspect: it was in hand at
one death. Suspects are handled one at a time, each named in the lease before; a death meanwhile is a death of that one.
A message that was handled once without one is acquitted, whatever came of it.
"""

from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

DEATHS_MAX: Final = 3  # with the third, nobody tries again


class Suspicion(Struct, frozen=True, omit_defaults=True):
    """What is known about the messages of a shard. Numbers are sequences in the event stream.

    `until`: messages up to this one were in hand at a death, if they are not acknowledged. `at_hand`: the one that is
    being handled, 0 for none. `deaths`: how many each one was in hand at, where that is more than one.
    """

    until: int = 0
    at_hand: int = 0
    deaths: dict[int, int] = {}

    def after_death(self, delivered: int) -> Self:
        """Return what the successor of a dead owner knows; the broker had delivered up to `delivered`."""
        deaths = self.deaths
        if self.at_hand:
            deaths = deaths | {self.at_hand: self.deaths_of(self.at_hand) + 1}
        return replace(self, until=max(self.until, delivered), at_hand=0, deaths=deaths)

    def after_life(self) -> Self:
        """Return what the successor of an owner that ended in order knows."""
        return replace(self, at_hand=0)

    def suspects(self, sequence: int) -> bool:
        """Whether a message is suspect, unless it was acquitted since."""
        return 0 < sequence <= self.until

    def deaths_of(self, sequence: int) -> int:
        """Return how many deaths a suspect was in hand at."""
        return self.deaths.get(sequence, 1)

    def naming(self, sequence: int) -> Self:
        return replace(self, at_hand=sequence)

    def acquitting(self, sequence: int) -> Self:
        """Return what is known once a message was handled without a death."""
        return replace(self, at_hand=0, deaths={each: n for each, n in self.deaths.items() if each != sequence})


def sentence(suspicion: Suspicion, sequence: int) -> str:
    """Return the reason for which a suspect is buried untried, "" when it deserves a try."""
    deaths = suspicion.deaths_of(sequence)
    if deaths < DEATHS_MAX:
        return ""
    return f"the consumer died {deaths} times with this message at hand"
