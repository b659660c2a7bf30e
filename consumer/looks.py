"""A look: the request to compare one object with its records, which its shard's owner answers by doing so. Pure.

It has no body. It may name records that the object's last event does not lead to: of an object that nobody publishes
any more, or in a registry that is the object's no longer. Their uid and model are in the externalId, which finds them.
A record that no property claims is only touched when the look says that a person has chosen it (`isvc-sync adopt`).
"""

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from consumer.records import external_id

HEADER: Final = "isvc-records"
_PREFIX: Final = "kserve:"
_UNCLAIMED: Final = " unclaimed"


class RecordRef(msgspec.Struct, frozen=True, order=True):
    """A record: the name of its registry, and the uid and registered model that it is about.

    `unclaimed`: it has no property of ours, and a person has said that it is this cluster's.
    """

    registry: str
    uid: str
    model: str
    unclaimed: bool = False


def encode(refs: Iterable[RecordRef]) -> dict[str, str]:
    """Return the headers of a look: none, when it is about the object and nothing else."""
    named = ",".join(
        f"{quote(ref.registry, safe='/:')} {external_id(ref.uid, ref.model)}{_UNCLAIMED if ref.unclaimed else ''}"
        for ref in sorted(refs)
    )
    return {HEADER: named} if named else {}


def decode(headers: Mapping[str, str]) -> tuple[RecordRef, ...]:
    """Return the records that a look names. What does not decode is left out: a look is a hint, and comes again."""
    refs = []
    for part in headers.get(HEADER, "").split(","):
        registry, _, named = part.strip().partition(" ")
        uid, _, model = named.removeprefix(_PREFIX).removesuffix(_UNCLAIMED).partition("/")
        if registry and uid and model and named.startswith(_PREFIX):
            refs.append(RecordRef(unquote(registry), uid, model, named.endswith(_UNCLAIMED)))
    return tuple(refs)
