"""`isvc-sync history`: which versions were deployed when, from the registry alone.

Reads every record of one registry. No cluster and no broker is needed: the record is the audit trail.
"""

import asyncio
import math
import os
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from opentelemetry.trace import NoOpTracer

from cli.ending import REFUSED, Endings, guarded
from cli.output import console, failed, silence_logs, write_json
from cli.versions import as_data, object_listing, of_object, of_version, version_listing
from consumer.records import Record
from consumer.registry import ModelRegistry
from consumer.requests.exchange import Instruments
from consumer.requests.inflight import InFlightLimit
from consumer.requests.registry_client import RegistryAccess, RegistryClient
from consumer.settings import RegistrySettings
from shared.errors import SettingsError
from shared.settings import load

if TYPE_CHECKING:
    from rich.console import RenderableType

COMMAND: Final = "history"
FOUND, NOTHING, UNREACHABLE = 0, 1, 3
_ENDINGS: Final = Endings(unread=FOUND, unreachable=UNREACHABLE)


class HistorySettings(Struct, frozen=True, kw_only=True):
    """What of the consumer's settings says where the registry is."""

    registry: RegistrySettings


class Options(Struct, frozen=True, kw_only=True):
    """Whose history: of an object `<namespace>/<name>`, or of a version; of one cluster, or of all; how to show it."""

    name: str = ""
    version: str = ""
    cluster: str = ""
    output: Literal["table", "json"] = "table"

    @property
    def contradiction(self) -> str:
        """Return a sentence when the options do not go together."""
        if bool(self.name) == bool(self.version):
            return "give either an object, NAMESPACE/NAME, or --version ID."
        parts = self.name.split("/")
        return "" if self.version or (len(parts) == 2 and all(parts)) else f"{self.name!r} is not NAMESPACE/NAME."


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Show a history; return the exit code."""
    if options.contradiction:
        return failed(COMMAND, options.contradiction, REFUSED)
    return guarded(COMMAND, _ENDINGS, lambda: _run(options, environ))


def _run(options: Options, environ: Mapping[str, str]) -> int:
    settings = load(HistorySettings, environ).registry
    silence_logs()
    return _show(options, asyncio.run(_records(settings)))


async def _records(settings: RegistrySettings) -> list[Record]:
    if settings.registry_url is None:
        raise SettingsError("REGISTRY_URL is not set: it says which registry is asked.")
    try:
        access = RegistryAccess(
            base_url=settings.registry_url,
            token_file=Path(settings.registry_token_file) if settings.registry_token_file else None,
            ca_file=Path(settings.registry_ca_file) if settings.registry_ca_file else None,
            api_version=settings.registry_api_version,
        )
    except ValueError as error:
        raise SettingsError(f"REGISTRY_URL: {error}") from error
    client = RegistryClient(access, InFlightLimit(1), Instruments(NoOpTracer(), lambda *_: None))
    try:
        async with aclosing(ModelRegistry(client, lambda: math.inf).all_records()) as records:
            return [record async for record in records]
    finally:
        await client.close()


def _show(options: Options, records: list[Record]) -> int:
    if options.version:
        periods = of_version(records, options.version, options.cluster)
        data = [as_data(each) | {"versions": [period]} for each, period in periods]
        drawn: RenderableType = version_listing(periods)
        nothing = f"no record says that version {options.version} was ever deployed."
    else:
        namespace, _, name = options.name.partition("/")
        deployments = of_object(records, namespace, name, options.cluster)
        data, drawn = [as_data(each) for each in deployments], object_listing(deployments)
        nothing = f"no record of isvc-sync is about {options.name}."
    if options.output == "json":
        write_json(data)
    elif data:
        console().print(drawn)
    else:
        failed(COMMAND, nothing, NOTHING)
    return FOUND if data else NOTHING
