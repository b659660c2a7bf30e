"""What `plan` decides about the small world of worlds.py, and what an action says; RECORD is the record of LINKED."""

import msgspec

from consumer.plan import plan
from consumer.records import PROPERTY, Stamp
from tests.unit.consumer.worlds import FACTS, SETTINGS, an_object, carrying, record_of, seen

LINKED = carrying(an_object(), "7")
IN_SYNC = seen(LINKED)
RECORD = record_of(IN_SYNC)


def decided(observation, *records, facts=FACTS, settings=SETTINGS):
    return plan(observation, {record.model_id: record for record in records}, facts, settings)


def kinds(actions):
    return [type(action).__name__ for action in actions]


def only(kind, actions):
    """Return the one action of that kind."""
    (action,) = [action for action in actions if isinstance(action, kind)]
    return action


def stamp_in(action) -> Stamp:
    return msgspec.json.decode(action.properties[PROPERTY]["string_value"], type=Stamp)
