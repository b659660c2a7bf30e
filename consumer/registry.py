"""The Model Registry as the consumer uses it: a dozen requests, sent exactly as meant, answers believed only where due.

What the server does and its API description does not say: a PATCH without `desiredState` deploys, and one with
properties replaces all of them; names are found by LIKE; a 404 by id can be a fault; nothing can be deleted; a create
without a name makes a new record each time; a 409 blames the name for everything. Records are paged by id, because an
order by time loses rows.

An answer that is about something else than what was asked is none of the registry's: transient, as garbage is.
"""

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from consumer.actions import CreateRecord, UpdateRecord
from consumer.records import Record
from consumer.requests.exchange import Budget
from consumer.requests.registry_client import RegistryClient, decoded
from consumer.requests.registry_errors import AmbiguousError, Request, RequestKind, UnprovenError
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError
from shared.objects import is_registry_id

_NO_CLAIM: Final = "though the change has neither a name nor an externalId"
PAGE_SIZE: Final = 200  # each record costs the server one more query, whatever the page's size

State = Literal["DEPLOYED", "UNDEPLOYED"]


class _Item(msgspec.Struct, frozen=True, rename="camel"):
    """What has an id and, nearly always, a name: an environment, a registered model.

    The server leaves absent fields out. Null is taken as well, so that one odd object in a list does not hide others.
    """

    id: str
    name: str | None = None


class _Service(_Item, frozen=True):
    """An InferenceService."""

    external_id: str | None = None
    serving_environment_id: str | None = None
    registered_model_id: str | None = None
    model_version_id: str | None = None
    runtime: str | None = None
    desired_state: str | None = None
    custom_properties: dict[str, Any] | None = None

    def record(self) -> Record:
        return Record(
            id=self.id,
            name=self.name or "",
            external_id=self.external_id or "",
            environment_id=self.serving_environment_id or "",
            model_id=self.registered_model_id or "",
            version_id=self.model_version_id or "",
            runtime=self.runtime or "",
            deployed={"DEPLOYED": True, "UNDEPLOYED": False}.get(self.desired_state or ""),
            properties=self.custom_properties or {},
        )


class _Version(_Item, frozen=True, kw_only=True):
    registered_model_id: str


Item = TypeVar("Item", bound=_Item)


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    items: tuple[msgspec.Raw, ...]
    next_page_token: str = ""


class _Creation(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Body of a create. `desired_state` is never null: that would store a record without one."""

    name: str
    external_id: str
    serving_environment_id: str
    registered_model_id: str
    desired_state: State
    custom_properties: dict[str, Any]
    model_version_id: str | UnsetType = UNSET
    runtime: str | UnsetType = UNSET


class _Change(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Body of a PATCH. The state is always in it, the properties are the full map; what is unset stays as it is."""

    desired_state: State
    custom_properties: dict[str, Any]
    external_id: str | UnsetType = UNSET
    model_version_id: str | UnsetType = UNSET
    runtime: str | UnsetType = UNSET


class ModelRegistry:
    """One registry, for as long as `budget` grants; implements the port `Registry`.

    Light: the connection is the client's, so that each owner of effects may hold an instance with its own budget.
    """

    def __init__(self, client: RegistryClient, budget: Budget) -> None:
        self._client = client
        self._budget = budget

    async def find_environment(self, name: str) -> str | None:
        request = Request(RequestKind.FIND, "GET", "/serving_environment", {"name": escape_like(name)})
        found = await self._find_by_name(request, name, "/serving_environments", _Item)
        return None if found is None else found.id

    async def create_environment(self, name: str) -> str:
        body = msgspec.json.encode({"name": name})
        request = Request(RequestKind.CREATE_ENVIRONMENT, "POST", "/serving_environments", body=body)
        made = decoded(await self._call(request), _Item, request)
        _expect(request, name, made.name)
        return made.id

    async def find_record(self, external_id: str) -> Record | None:
        request = Request(RequestKind.FIND, "GET", "/inference_service", {"externalId": external_id})
        try:
            record = decoded(await self._call(request), _Service, request).record()
        except NotFoundError:
            return None
        _expect(request, external_id, record.external_id)
        return record

    async def find_record_by_name(self, name: str, environment_id: str) -> Record | None:
        parameters = {"name": escape_like(name), "parentResourceId": environment_id}
        request = Request(RequestKind.FIND, "GET", "/inference_service", parameters)
        everything = f"/serving_environments/{quote(environment_id, safe='')}/inference_services"
        found = await self._find_by_name(request, name, everything, _Service)
        return None if found is None else found.record()

    async def all_records(self) -> AsyncGenerator[Record, None]:
        """Yield every record, those of others, too; one request at a time."""
        async for service in self._items("/inference_services", _Service):
            yield service.record()

    async def create_record(self, action: CreateRecord, environment_id: str) -> Record:
        creation = _Creation(
            name=action.name,
            external_id=action.external_id,
            serving_environment_id=environment_id,
            registered_model_id=action.model_id,
            desired_state=_state(action.deployed),
            custom_properties=action.properties,
            model_version_id=action.version_id or UNSET,
            runtime=action.runtime or UNSET,
        )
        body = msgspec.json.encode(creation)
        request = Request(RequestKind.CREATE_RECORD, "POST", "/inference_services", body=body)
        claim = f"its name or its externalId {action.external_id} is taken by something else"
        record = decoded(await self._write(request, claim), _Service, request).record()
        _expect(request, (action.name, action.external_id), (record.name, record.external_id))
        return record

    async def update_record(self, action: UpdateRecord) -> Record:
        """Change a record. Raises TransientError on 404; ConflictError when another record has the externalId."""
        change = _Change(
            desired_state=_state(action.deployed),
            custom_properties={key: _as_sent(value) for key, value in action.properties.items()},
            external_id=action.external_id or UNSET,
            model_version_id=action.version_id or UNSET,
            runtime=action.runtime or UNSET,
        )
        path = f"/inference_services/{quote(action.id, safe='')}"
        request = Request(RequestKind.UPDATE, "PATCH", path, body=msgspec.json.encode(change))
        claim = f"its externalId {action.external_id} is taken by something else" if action.external_id else _NO_CLAIM
        record = decoded(await self._write(request, claim), _Service, request).record()
        _expect(request, action.id, record.id)
        return record

    async def model_exists(self, model_id: str) -> bool:
        return await self._by_id("/registered_models", model_id, _Item) is not None

    async def model_of_version(self, version_id: str) -> str | None:
        version = await self._by_id("/model_versions", version_id, _Version)
        return None if version is None else version.registered_model_id

    async def _call(self, request: Request) -> bytes:
        return await self._client.call(request, self._budget)

    async def _write(self, request: Request, claim: str) -> bytes:
        """Send a write; to a 409 add what it can be about, which the registry does not tell."""
        try:
            return await self._call(request)
        except ConflictError as error:
            raise ConflictError(f"{error} ({claim})") from error

    async def _find_by_name(self, request: Request, name: str, everything: str, shape: type[Item]) -> Item | None:
        """Send a find whose name is a LIKE pattern, and accept exactly this name only.

        Where the pattern's answer leaves a doubt, all of the list `everything` is compared: several matches, another
        name, or nothing for a name that had to be escaped (a server that compares by `=` takes the escapes literally).
        """
        try:
            found = decoded(await self._call(request), shape, request)
        except NotFoundError:
            if request.params["name"] == name:
                return None
        except AmbiguousError:
            pass
        else:
            if found.name == name:
                return found
        return await self._named(name, everything, shape)

    async def _named(self, name: str, path: str, shape: type[Item]) -> Item | None:
        """Return the item of exactly this name from a list."""
        async with aclosing(self._items(path, shape)) as items:
            async for item in items:
                if item.name == name:
                    return item
        return None

    async def _items(self, path: str, shape: type[Item]) -> AsyncGenerator[Item, None]:
        """Yield a list, read page by page."""
        parameters = {"pageSize": str(PAGE_SIZE), "orderBy": "ID", "sortOrder": "ASC"}
        while True:
            request = Request(RequestKind.LIST, "GET", path, parameters)
            page = decoded(await self._call(request), _Page, request)
            for raw in page.items:
                yield decoded(raw, shape, request)
            token = page.next_page_token
            if not token:
                return
            if token == parameters.get("nextPageToken"):
                raise TransientError(f"{request}: the registry sends the same page again and again")
            parameters = {**parameters, "nextPageToken": token}

    async def _by_id(self, path: str, number: str, shape: type[Item]) -> Item | None:
        """Return the object, or None when the registry proves that it has none: by a list, as its 404 is no proof."""
        if not is_registry_id(number):
            raise PermanentError(f"{number[:40]!r} is no id of the registry")
        request = Request(RequestKind.BY_ID, "GET", f"{path}/{number}")
        try:
            item = decoded(await self._call(request), shape, request)
        except UnprovenError as error:
            # A fault answers 400 or 500 here, never an empty list.
            confirmation = Request(RequestKind.LIST, "GET", path, {"pageSize": "1", "filterQuery": f"id={number}"})
            page = decoded(await self._call(confirmation), _Page, confirmation)
            if not page.items:
                return None
            item = decoded(page.items[0], shape, confirmation)
            if item.id != number:
                raise TransientError(f"{confirmation}: the registry ignored the filter") from error
        else:
            _expect(request, number, item.id)
        return item


def _expect(request: Request, asked: object, said: object) -> None:
    """Raise TransientError where an answer is about something else than what was asked."""
    if said != asked:
        raise TransientError(f"{request}: the answer is about {said!r:.200}, not {asked!r:.200}")


def escape_like(name: str) -> str:
    r"""Escape what the registry's look-up by name takes for a pattern: `%`, `_` and the escape character `\` itself."""
    return name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _as_sent(value: Any) -> Any:
    """Turn a property as the registry gave it into what it takes back: a struct is read as JSON, and sent as base64."""
    match value:
        case {"metadataType": "MetadataStructValue", "struct_value": str(text)}:
            return {**value, "struct_value": base64.b64encode(text.encode()).decode()}
        case _:
            return value


def _state(deployed: bool) -> State:
    return "DEPLOYED" if deployed else "UNDEPLOYED"
