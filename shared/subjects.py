"""The subjects of the pipeline and the function that spreads objects over shards.

    <prefix>.<cluster>.evt.<shard>.<kind>.<namespace>.<name>     a change of an object
    <prefix>.<cluster>.look.<shard>.<kind>.<namespace>.<name>    please look at the live object
    <prefix>.<cluster>.sync.<kind>                               the inventory was complete at this moment
    <prefix>.<cluster>.dlq.<kind>.<namespace>.<name>             dead letters, one per object
    <prefix>.<cluster>.holds                                     a question: what is held back? (in no stream)
    <prefix>.<cluster>.release                                   end this hold (in no stream)

Cluster, namespace and name are escaped, so that each is one token.
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from shared.errors import BadEventError
from shared.objects import Kind, ObjectKey

_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_-]")
_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_OBJECT_TOKENS: Final = 7


def escape(text: str) -> str:
    """Return text as one subject token: all but letters, digits, `-` and `_` become `=XX`.

    A dot would split the token, blanks and wildcards are refused by the server.
    """
    return _UNSAFE.sub(lambda match: b"=%02X" % match[0][0], text.encode()).decode()


def unescape(token: str) -> str:
    """Undo `escape`. `=` plays the part that `%` plays in a URL."""
    return unquote_to_bytes(token.replace("%", "%25").replace("=", "%")).decode()


def shard_of(key: ObjectKey, shards: int) -> int:
    """Return the shard of an object, 0 to shards - 1: fnv1a32(escaped namespace + escaped name) % shards.

    The same as the server's subject transform `partition(shards, namespace, name)`, which hashes the tokens without a
    separator (tests/integration/test_subjects.py holds the two together). The kind is left out on purpose: it keeps
    the shard of an object independent of how many kinds are watched.
    """
    hashed = _FNV_OFFSET
    for byte in (escape(key.namespace) + escape(key.name)).encode():
        hashed = ((hashed ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return hashed % shards


class Subjects(msgspec.Struct, frozen=True):
    """Builds the subjects of one cluster; `shards` is P, the number of shards of the stream."""

    prefix: str
    cluster: str
    shards: int

    def event(self, key: ObjectKey) -> str:
        return self._of("evt", key)

    def look(self, key: ObjectKey) -> str:
        return self._of("look", key)

    def sync(self, kind: Kind) -> str:
        return f"{self._base}.sync.{kind}"

    def dead_letter(self, key: ObjectKey) -> str:
        return f"{self._base}.dlq.{key.kind}.{escape(key.namespace)}.{escape(key.name)}"

    def all_events(self, kind: Kind, namespace: str = "") -> str:
        """Return the filter that selects every object of a kind, in one namespace or in all: the inventory."""
        return f"{self._base}.evt.*.{kind}.{escape(namespace) if namespace else '*'}.*"

    def everything(self) -> str:
        """Return the filter that selects all that the cluster has on the broker."""
        return f"{self._base}.>"

    def all_dead_letters(self) -> str:
        return f"{self._base}.dlq.>"

    def holds(self) -> str:
        return f"{self._base}.holds"

    def release(self) -> str:
        return f"{self._base}.release"

    def shard_filter(self, shard: int) -> str:
        """Return the filter of a shard's durable consumer: its events and looks, nothing else."""
        return f"{self._base}.*.{shard}.>"

    def durable(self, shard: int) -> str:
        return f"isvc-{escape(self.cluster)}-{shard}"

    @property
    def _base(self) -> str:
        return f"{self.prefix}.{escape(self.cluster)}"

    def _of(self, channel: str, key: ObjectKey) -> str:
        shard = shard_of(key, self.shards)
        return f"{self._base}.{channel}.{shard}.{key.kind}.{escape(key.namespace)}.{escape(key.name)}"


def parse_object_subject(subject: str) -> tuple[str, ObjectKey]:
    """Return channel (`evt` or `look`) and object of a subject. Raises BadEventError when it is none of ours."""
    tokens = subject.split(".")
    if len(tokens) != _OBJECT_TOKENS or tokens[2] not in {"evt", "look"} or tokens[4] not in set(Kind):
        raise BadEventError(f"subject {subject[:200]!r} is not <prefix>.<cluster>.evt|look.<shard>.<kind>.<ns>.<name>")
    try:
        return tokens[2], ObjectKey(Kind(tokens[4]), unescape(tokens[5]), unescape(tokens[6]))
    except UnicodeDecodeError as error:
        raise BadEventError(f"subject {subject[:200]!r} holds an escaped name that is no UTF-8") from error
