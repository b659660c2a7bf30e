"""The life of one object as it is now: cluster, broker and registries connected, for `isvc-sync explain`. Reads only.

It sees what `drift` sees (`reading.py`), of one object, and what the stream has kept of its history.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from opentelemetry.trace import NoOpTracer

from cli.reading import Reading, reading
from consumer.connections import discovery_settings
from consumer.requests.exchange import Exchanger, Instruments
from consumer.services import ServiceCatalog
from consumer.settings import ConsumerSettings
from replay.capture import FORMAT, Deciding, Header
from replay.life.conclusion import Life, life
from replay.life.live import Sources, found_now
from replay.planning import Planner
from shared.objects import ObjectKey
from shared.settings import load
from shared.streams import stream_names


async def live_of(keys: tuple[ObjectKey, ...], environ: Mapping[str, str]) -> list[Life]:
    """Return the lives of those of these objects that anybody knows, else that of the first.

    Raises SettingsError and RefusedToStartError for what cannot be used, UnreachableError, TransientError and
    PermanentError when cluster or broker do not answer.
    """
    settings = load(ConsumerSettings, environ)
    async with AsyncExitStack() as stack:
        read = await reading(settings, environ, stack, role="explain")
        header = await _header(read, settings)
        lives = []
        for key in keys:
            sources = Sources(
                broker=read.broker,
                subjects=read.subjects,
                streams=stream_names(settings.broker.subject_prefix),
                cluster=read.cluster.kubernetes,
                registries=read.cluster.registries,
                settings=read.deciding,
                planner=lambda: Planner(header, strict=True),
                marker=await read.stream.marker(key.kind),
            )
            lives.append(life(await found_now(key, sources)))
        return [each for each in lives if each.sections] or lives[:1]


async def _header(read: Reading, settings: ConsumerSettings) -> Header:
    """Return the header that a capture made here would have: by it the object's events are decided again."""
    deciding = read.deciding
    exchanger = Exchanger(read.cluster.http, Instruments(NoOpTracer(), lambda *_: None))
    catalog = ServiceCatalog(exchanger, settings.registry.registry_namespaces)
    return Header(
        capture=FORMAT,
        created="",
        tool="",
        cluster=deciding.us.cluster,
        cluster_id=deciding.us.cluster_id,
        source="stream",
        deciding=Deciding(
            prefix=deciding.prefix,
            environment=deciding.environment,
            write_back=deciding.write_back,
            write_back_form=deciding.target.form,
            denied_labels=tuple(deciding.target.lists.labels),
            denied_annotations=tuple(deciding.target.lists.annotations),
            discovery=discovery_settings(settings),
            services=tuple(await catalog.services()),
        ),
    )
