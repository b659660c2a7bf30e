"""What came of one event when it was decided again: the common language of plan, diff, explain and timeline. Pure.

`planning.py` makes steps from a capture; everything that shows or compares decisions reads these.
"""

from typing import Any, Final, get_args

import msgspec

from consumer import actions
from shared.events import EventType
from shared.objects import ObjectKey

DECISIONS: Final = frozenset(kind.__name__ for kind in get_args(actions.Action))
"""The kinds of actions that `plan` decides."""

ENDS: Final = frozenset({"ack", "retry", "dead"})
"""What becomes of a message."""


class Taken(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One action that `plan` decided, in order. `kind`: its name in `consumer/actions.py`.

    `record`: the id of the record that it concerns, "" where there is none; `registry`: the name of its registry.
    `fields`: what the action holds beside its reason (desired state, model, version, runtime, the properties that
    change, the cost of a patch).
    """

    kind: str
    reason: str
    record: str = ""
    registry: str = ""
    fields: dict[str, Any] = {}


class Step(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One event and its end; or, `look`, what a look found that the consumer asked of itself (an id that was due).

    A look that changes nothing is no step. `seq` is then the object's last event's, `time` that of the look.

    `result` is the word of the metric: applied, noop, duplicate, stale; or dead, retry. `reason` is why it is among the
    dead letters, or is tried again. `model`, `version`: the object's labels, "" where it has none. `registry`: the name
    of the one that was chosen, "" for none. `notices`: what the object's owner is told, as `<Topic>: <message>`.
    """

    seq: int
    time: str
    key: ObjectKey
    uid: str
    type: EventType
    resource_version: str
    initial: bool = False
    look: bool = False
    model: str = ""
    version: str = ""
    registry: str = ""
    result: str
    reason: str = ""
    taken: tuple[Taken, ...] = ()
    notices: tuple[str, ...] = ()
