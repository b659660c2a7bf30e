"""States of the reflector's state machine, items for it, and the gist of what follows, short enough for tables."""

from producer.items import Refused, Unidentified
from producer.states import EndPass, Memory, Remove, Trouble, Watching
from producer.watch import step

FRESH = Memory()
PAGED = Memory(watch_list=False)
LIVE = Watching(FRESH, "50", events=1)
QUIET = Watching(FRESH, "50")
NAMELESS = Unidentified("ns/a", "object ns/a lacks metadata.uid")
GONE_410 = Refused(410, "Expired", in_stream=True)


def reasons(effects):
    return [effect.reason for effect in effects if isinstance(effect, Trouble)]


def untroubled(effects):
    return tuple(effect for effect in effects if not isinstance(effect, Trouble))


def concludes(effects):
    """Whether anything may be taken for absent."""
    return any(isinstance(effect, EndPass | Remove) for effect in effects)


def run(state, *items):
    """Feed items and return the last state and all effects."""
    collected = []
    for item in items:
        state, effects = step(state, item)
        collected += effects
    return state, tuple(collected)
