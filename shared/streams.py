"""Streams and durable consumers: created if absent, checked if present, never deleted.

Producer and consumer both call `ensure_streams` at start, whoever comes first creates. The names are derived from
the setting SUBJECT_PREFIX, so that a replay on a shared broker has streams of its own.
"""

import logging
from enum import Enum
from typing import Any

import nats.js.errors
from msgspec import Struct
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from shared.broker import BrokerSettings
from shared.broker_errors import translated
from shared.errors import PermanentError, RefusedToStartError
from shared.subjects import Subjects

logger = logging.getLogger(__name__)

SHARDS_KEY = "isvc-sync.shards"  # in the metadata of the event stream: all parties must divide the keys alike

_DEDUPLICATION_WINDOW_S = 600.0  # outlasts a producer's retries and the overlap of two producers
_SERVER_WINDOW_S = 120.0  # the server's default
_EVENTS_PER_OBJECT = 64
_ACK_WAIT_S = 30.0  # in-progress acks come every third of it; only a dead owner lets it pass
_MAX_ACK_PENDING = 10_000
_ALREADY_EXISTS = {10058, 10148}  # a stream, a consumer of that name exists with other settings

# What an operator may change without breaking us; anything else that differs is a warning all the same.
_CHECKED_STREAM = (
    "subjects", "retention", "storage", "discard", "max_age", "max_msgs_per_subject", "max_bytes", "num_replicas",
    "duplicate_window", "deny_delete", "allow_direct", "allow_msg_ttl",
)  # fmt: skip
_UPDATED_CONSUMER = ("ack_wait", "max_deliver", "max_ack_pending")
_FIXED_CONSUMER = ("filter_subject", "ack_policy", "deliver_policy")


class StreamNames(Struct, frozen=True):
    """Names of our streams under one subject prefix: ISVC_EVENTS, ISVC_DLQ, ISVC_LEASE for `isvc`."""

    events: str
    dlq: str
    lease: str


def stream_names(prefix: str) -> StreamNames:
    upper = prefix.upper()
    return StreamNames(f"{upper}_EVENTS", f"{upper}_DLQ", f"{upper}_LEASE")


def stream_configs(settings: BrokerSettings) -> tuple[StreamConfig, ...]:
    """Our streams exactly as they are created."""
    prefix, names = settings.subject_prefix, stream_names(settings.subject_prefix)
    # Everything that is compared later is said here, also where it is the server's default.
    common: dict[str, Any] = {
        "retention": RetentionPolicy.LIMITS,
        "storage": StorageType.FILE,
        "num_replicas": settings.stream_replicas,
        "max_age": 0.0,
    }
    return (
        StreamConfig(
            name=names.events,
            description="isvc-sync: work log, history and inventory of watched objects",
            subjects=[f"{prefix}.*.evt.>", f"{prefix}.*.look.>", f"{prefix}.*.sync.>"],
            max_msgs_per_subject=_EVENTS_PER_OBJECT,
            max_bytes=settings.stream_max_bytes,
            discard=DiscardPolicy.NEW,  # a full stream refuses: losing an unread event is worse than waiting
            duplicate_window=_DEDUPLICATION_WINDOW_S,
            allow_direct=True,
            deny_delete=True,  # purge stays allowed: it forgets tombstones
            allow_msg_ttl=False,
            metadata={SHARDS_KEY: str(settings.shards)},
            **common,
        ),
        StreamConfig(
            name=names.dlq,
            description="isvc-sync: events that can never succeed, one per object",
            subjects=[f"{prefix}.*.dlq.>"],
            max_msgs_per_subject=1,
            max_bytes=-1,
            duplicate_window=_SERVER_WINDOW_S,
            allow_direct=True,
            allow_msg_ttl=False,
            **common,
        ),
        StreamConfig(
            name=names.lease,
            description="isvc-sync: owners of shards, members of the group",
            subjects=[f"{prefix}.*.lease.>"],
            max_msgs_per_subject=1,
            max_bytes=-1,
            duplicate_window=_SERVER_WINDOW_S,
            allow_direct=False,  # leases are read from the leader only
            allow_msg_ttl=True,
            **common,
        ),
    )


async def ensure_streams(js: JetStreamContext, settings: BrokerSettings) -> tuple[str, ...]:
    """Create what is absent, check what exists. The answer: sentences about settings that differ, logged as well.

    Raises RefusedToStartError when the event stream was made for another number of shards, when its subjects are not
    ours, or when the server refuses to create it; UnreachableError while JetStream does not answer.
    """
    found = [(wanted, await _create_or_read(js, wanted)) for wanted in stream_configs(settings)]
    _require_shards(found[0][1], settings.shards)
    warnings = tuple(sentence for wanted, actual in found for sentence in _differences(wanted, actual))
    for sentence in warnings:
        logger.warning("stream differs from what isvc-sync would create", extra={"difference": sentence})
    return warnings


async def require_shards(js: JetStreamContext, settings: BrokerSettings) -> None:
    """Make sure that the event stream is there, for our number of shards. Creates nothing.

    Raises RefusedToStartError when it was made for another number, PermanentError when there is none.
    """
    name = stream_names(settings.subject_prefix).events
    with translated(f"reading the stream {name}"):
        config = (await js.stream_info(name)).config
    _require_shards(config, settings.shards)


async def ensure_consumer(js: JetStreamContext, subjects: Subjects, shard: int) -> str:
    """Create the durable consumer of a shard if absent, set back limits that differ, and return its name.

    Raises RefusedToStartError when a consumer of that name reads something else; UnreachableError as above.
    """
    stream, name = stream_names(subjects.prefix).events, subjects.durable(shard)
    wanted = ConsumerConfig(
        durable_name=name,
        description=f"isvc-sync: shard {shard} of {subjects.shards}",
        filter_subject=subjects.shard_filter(shard),
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=_ACK_WAIT_S,
        max_deliver=-1,  # we bury ourselves: a message that used up its deliveries vanishes from every number
        max_ack_pending=_MAX_ACK_PENDING,
    )
    with translated(f"setting up the consumer {name} of {stream}"):
        try:
            actual = (await js.consumer_info(stream, name)).config
        except nats.js.errors.NotFoundError:
            actual = (await js.add_consumer(stream, wanted)).config
        for field in _FIXED_CONSUMER:
            if _shown(actual, field) != _shown(wanted, field):
                raise RefusedToStartError(
                    f"The consumer {name} of {stream} has {field} {_shown(actual, field)} instead of "
                    f"{_shown(wanted, field)}, and this cannot be changed: delete it (its shard is then read from "
                    "the beginning), or choose another cluster name."
                )
        if any(getattr(actual, field) != getattr(wanted, field) for field in _UPDATED_CONSUMER):
            logger.warning("limits of a consumer were changed by others and are set back", extra={"consumer": name})
            await js.add_consumer(stream, wanted)
    return name


async def _create_or_read(js: JetStreamContext, wanted: StreamConfig) -> StreamConfig:
    try:
        with translated(f"setting up the stream {wanted.name}"):
            try:
                return (await js.stream_info(str(wanted.name))).config
            except nats.js.errors.NotFoundError:
                return await _create(js, wanted)
    except PermanentError as error:
        raise RefusedToStartError(
            f"{error}. Create it by hand with the settings in the documentation, or change SUBJECT_PREFIX, "
            "STREAM_MAX_BYTES or STREAM_REPLICAS to what the server can give."
        ) from error


async def _create(js: JetStreamContext, wanted: StreamConfig) -> StreamConfig:
    try:
        config = (await js.add_stream(wanted)).config
    except nats.js.errors.BadRequestError as error:
        if error.err_code not in _ALREADY_EXISTS:
            raise
        return (await js.stream_info(str(wanted.name))).config  # somebody was faster, with other settings
    logger.info("stream created", extra={"stream": wanted.name})
    return config


def _require_shards(events: StreamConfig, shards: int) -> None:
    stored = (events.metadata or {}).get(SHARDS_KEY)
    if stored is None:
        raise RefusedToStartError(
            f"The stream {events.name} does not say for how many shards it is (metadata {SHARDS_KEY}): "
            f"if all its producers use SHARDS={shards}, run "
            f"`nats stream edit {events.name} --metadata {SHARDS_KEY}={shards}`."
        )
    if stored != str(shards):
        raise RefusedToStartError(
            f"The stream {events.name} is for {stored} shards, and SHARDS is {shards}: set SHARDS={stored}. "
            "To change the number, stop all producers and consumers and start with a new SUBJECT_PREFIX; "
            "the producer then publishes everything anew."
        )


def _differences(wanted: StreamConfig, actual: StreamConfig) -> list[str]:
    missing = sorted(set(wanted.subjects or ()) - set(actual.subjects or ()))
    if missing:
        raise RefusedToStartError(
            f"The stream {wanted.name} does not take the subjects {', '.join(missing)}: add them, "
            "or choose another SUBJECT_PREFIX."
        )
    return [
        f"{wanted.name}: {field} is {actual_value}, isvc-sync would set {wanted_value}"
        for field in _CHECKED_STREAM
        if (actual_value := _shown(actual, field)) != (wanted_value := _shown(wanted, field))
    ]


def _shown(config: StreamConfig | ConsumerConfig, field: str) -> str:
    """Render a setting as text: the server answers with plain strings where nats-py has enumerations."""
    value = getattr(config, field)
    if isinstance(value, Enum):
        return str(value.value)
    return ", ".join(sorted(value)) if isinstance(value, list) else str(value)
