"""What `plan` can decide: data, to be compared in tests, printed in a dry run, and carried out by `act.py`.

Every action says why (`reason`), for the log line, the replay and the person who reads either.
"""

from typing import Any

import msgspec

from consumer.notices import Topic
from consumer.writeback import WriteCost


class CreateRecord(msgspec.Struct, frozen=True, tag=True):
    """Create a record. `external_id` is ours, so that a doubled create collides instead of making a second one."""

    environment: str
    name: str
    external_id: str
    model_id: str
    version_id: str
    runtime: str
    deployed: bool
    properties: dict[str, Any]
    reason: str


class UpdateRecord(msgspec.Struct, frozen=True, tag=True):
    """Change a record. Empty texts mean: leave as it is. The state and the whole property map are always sent."""

    id: str
    deployed: bool
    properties: dict[str, Any]
    reason: str
    external_id: str = ""
    version_id: str = ""
    runtime: str = ""


class PatchObject(msgspec.Struct, frozen=True, tag=True):
    """Write a record's id to the object; always a plan's last effect.

    `record_id` None stands for the record that this plan creates. `cost` is what the write does to pods: outside the
    free class the patch holds only for exactly the `resource_version` that the cost was judged from.
    """

    record_id: str | None
    cost: WriteCost
    resource_version: str
    reason: str


class DeferPatch(msgspec.Struct, frozen=True, tag=True):
    """The id should be written, but would cost more than the setting allows: look again later."""

    record_id: str | None
    cost: WriteCost
    reason: str


class Warn(msgspec.Struct, frozen=True, tag=True):
    """A person should know, but everything that could be recorded is. `topic`: of the Event that tells its owner."""

    topic: Topic
    reason: str


class Reject(msgspec.Struct, frozen=True, tag=True):
    """A person must see this: the event goes to the dead letters. Always last: it stops nothing else."""

    reason: str


Action = CreateRecord | UpdateRecord | PatchObject | DeferPatch | Warn | Reject
