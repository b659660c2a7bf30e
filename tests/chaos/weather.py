"""What strikes when: drawn from a seed before anything runs, so that a seed is one weather. Pure.

The broker (of a cluster: the leader of the event stream) is killed every 11 s. A consumer is killed, told to stop, or
paused for 6 s every 3.5 s, each of the three once in three strikes. The registry is away for 20 s once in 45 s, and
refuses and loses in between. The producer is killed every 13 s. One node of a cluster stays away for 20 s once in 45 s.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

PODS = tuple(f"pod-{number}" for number in range(4))
ERROR_RATE = 0.02
LOST_REPLY_RATE = 0.02
OUTAGE_S = 20.0
PAUSE_S = 6.0

_BROKER_EVERY_S, _POD_EVERY_S, _PRODUCER_EVERY_S = 11.0, 3.5, 13.0
_ROUND_S = 45.0  # in which the registry is away once, and a node
_REST_S = 3.0  # a consumer that was started again is left alone for so long
_AWAKE_S = 1.0  # a paused one wakes up so long before the end: its late requests are under load, too


class What(StrEnum):
    """The faults; the value is how the verdict calls one."""

    BROKER_KILLED = "broker kill -9"
    NODE_AWAY = "node away"
    POD_KILLED = "consumer kill -9"
    POD_STOPPED = "consumer SIGTERM"
    POD_PAUSED = "consumer SIGSTOP"
    PRODUCER_KILLED = "producer kill -9"
    REGISTRY_AWAY = "registry outage"


class Strike(Struct, frozen=True):
    """One fault: `at_s` after the beginning, for `lasts_s`. `target` is the consumer's name, else empty."""

    at_s: float
    what: What
    lasts_s: float = 0.0
    target: str = ""


def weather(seed: int, duration_s: float, nodes: int) -> tuple[Strike, ...]:
    """Return all strikes in their order; each of them is over, or undone, when the time is."""
    chance = random.Random(seed)
    strikes = [
        *_broker(chance, duration_s, nodes),
        *_pods(chance, duration_s),
        *(Strike(at_s, What.PRODUCER_KILLED) for at_s in _times(_PRODUCER_EVERY_S, duration_s)),
        *_once_a_round(chance, duration_s, What.REGISTRY_AWAY),
        *(_once_a_round(chance, duration_s, What.NODE_AWAY) if nodes > 1 else ()),
    ]
    return tuple(sorted(strikes, key=lambda strike: strike.at_s))


def planned(strikes: Iterable[Strike]) -> Counter[What]:
    return Counter(strike.what for strike in strikes)


def _times(every_s: float, duration_s: float) -> list[float]:
    return [every_s * number for number in range(1, int(duration_s / every_s) + 1) if every_s * number < duration_s]


def _broker(chance: random.Random, duration_s: float, nodes: int) -> Iterator[Strike]:
    for at_s in _times(_BROKER_EVERY_S, duration_s):
        # A node of a cluster comes back when the others have had to elect another leader, which takes them seconds.
        yield Strike(at_s, What.BROKER_KILLED, chance.uniform(0.1, 1.0) if nodes == 1 else chance.uniform(2.0, 4.0))


def _pods(chance: random.Random, duration_s: float) -> Iterator[Strike]:
    busy_until = dict.fromkeys(PODS, 0.0)
    kinds: list[What] = []
    for at_s in _times(_POD_EVERY_S, duration_s):
        kinds = kinds or chance.sample((What.POD_KILLED, What.POD_STOPPED, What.POD_PAUSED), 3)
        what = kinds.pop()
        if what is What.POD_PAUSED and at_s + PAUSE_S + _AWAKE_S > duration_s:
            what = chance.choice((What.POD_KILLED, What.POD_STOPPED))
        pod = chance.choice([name for name in PODS if busy_until[name] <= at_s])
        lasts_s = PAUSE_S if what is What.POD_PAUSED else 0.0
        busy_until[pod] = at_s + lasts_s + _REST_S
        yield Strike(at_s, what, lasts_s, pod)


def _once_a_round(chance: random.Random, duration_s: float, what: What) -> Iterator[Strike]:
    began_s = 0.0
    while began_s < duration_s:
        round_s = min(_ROUND_S, duration_s - began_s)
        lasts_s = min(OUTAGE_S, round_s / 2)
        yield Strike(began_s + chance.uniform(0.1, 0.9) * (round_s - lasts_s), what, lasts_s)
        began_s += _ROUND_S
