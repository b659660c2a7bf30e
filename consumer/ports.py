"""What the consumer needs from the outside, in its own words; the adapters of the same names provide it.

Every method raises the errors of `shared/errors.py` and nothing else.
"""

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from consumer.actions import CreateRecord, UpdateRecord
from consumer.observation import LastEvent, Observation
from consumer.records import Record
from shared.objects import ObjectKey


class Registry(Protocol):
    """One Model Registry. Names are compared exactly, whatever wildcards the server sees in them."""

    async def find_environment(self, name: str) -> str | None:
        """Return the id of a serving environment, or None when the registry says that there is none."""

    async def create_environment(self, name: str) -> str:
        """Return the id of a new serving environment. Raises ConflictError when the name is taken."""

    async def find_record(self, external_id: str) -> Record | None:
        """Return the record with that externalId, or None when the registry says that there is none."""

    async def find_record_by_name(self, name: str, environment_id: str) -> Record | None:
        """Return the record of exactly that name in an environment, or None when there is none."""

    def all_records(self) -> AsyncGenerator[Record, None]:
        """Yield every record of the registry, those of others, too."""

    async def create_record(self, action: CreateRecord, environment_id: str) -> Record:
        """Create and return a record.

        Raises ConflictError when name or externalId is taken, NotFoundError when the registry says that the
        environment does not exist (which a database fault says, too: look again before believing it).
        """

    async def update_record(self, action: UpdateRecord) -> Record:
        """Change a record.

        Raises TransientError on 404, which proves nothing: find it again. Raises ConflictError when its new externalId
        is taken.
        """

    async def model_exists(self, model_id: str) -> bool:
        """Whether a registered model exists; False only when a list that filters by id came back empty."""

    async def model_of_version(self, version_id: str) -> str | None:
        """Return the registered model of a version, or None when a list that filters by id came back empty."""


class Kubernetes(Protocol):
    """The API server, as far as the consumer needs it."""

    async def get(self, key: ObjectKey) -> Any | None:
        """Return the live object as the API server sends it, or None when it does not exist."""

    async def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        """Send one JSON patch.

        Raises ConflictError when a test in it failed or the object has moved on or is gone (404, 409, 422): look
        again. Raises PermanentError when an admission webhook denied it.
        """


class LastEvents(Protocol):
    """The stream as a memory."""

    async def last(self, key: ObjectKey) -> LastEvent | None:
        """Return the last event of an object, or None when the stream holds none."""


class Live(Protocol):
    """The object itself."""

    async def __call__(self, last: Observation, /) -> Observation | None:
        """Return the object as it stands now, or None when that uid is gone."""


class DeadLetters(Protocol):
    """The stream of what a person must see; one entry for each object."""

    async def bury(self, key: ObjectKey, headers: dict[str, str], body: bytes, reason: str) -> None:
        """Store the message with its reason; returns when the broker has it."""

    def holds(self, key: ObjectKey) -> bool:
        """Whether the object has an entry, or may have one."""

    async def clear(self, key: ObjectKey) -> None:
        """Remove the object's entry, if there is one: a later event of it was applied."""
