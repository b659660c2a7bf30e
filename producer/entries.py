"""The entries of an inventory, packed: a text and some bytes for each, because there may be 100,000 of them. Pure.

An `Entry` with its key is about ten Python objects, 700 bytes in all; packed it is 250, and nothing that the garbage
collector has to walk through. What does not fit the packing (a uid that is no UUID, say) is kept as the text it is.
"""

from collections.abc import Callable, Iterator, KeysView, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from producer.changes import Entry
from shared.objects import Kind, ObjectKey, is_registry_id
from shared.reduce import DIGEST_VERSION

_DIGEST_PREFIX: Final = f"{DIGEST_VERSION}:"
_INT_DIGITS_MAX: Final = 18  # of a resourceVersion that surely fits the 64 bits of MessagePack
_UUID_BYTES: Final = 16


class _Packed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An entry as a MessagePack array. `uid` and `digest` are bytes or a text, a union that msgspec cannot declare."""

    deleted_at: int
    epoch: int
    resource_version: int | str
    uid: Any
    digest: Any
    models: tuple[int | str, ...]
    sequence: int


class _Place(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How the array begins: what a walk over all entries asks for."""

    deleted_at: int
    epoch: int
    resource_version: int | str


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Packed).decode
_place_of: Final = msgspec.msgpack.Decoder(_Place).decode


class Entries(MutableMapping[ObjectKey, Entry]):
    """The entry of each key. What is walked over is unpacked one by one; its own walks hardly unpack anything."""

    def __init__(self, given: Mapping[ObjectKey, Entry] | None = None) -> None:
        self._packed: dict[str, bytes] = {}  # by the key's text: one object, where a key is two
        self._living = 0
        self.update(given or {})

    @property
    def living(self) -> int:
        """How many are not deleted."""
        return self._living

    def living_keys(self) -> Iterator[ObjectKey]:
        return (key_of(name) for name, packed in self._packed.items() if not _place_of(packed).deleted_at)

    def tombstones(self) -> Iterator[tuple[ObjectKey, Entry]]:
        return self._walk(lambda _, packed: _place_of(packed).deleted_at > 0)

    def before(self, epoch: int) -> Iterator[tuple[ObjectKey, Entry]]:
        """Walk over what was last said in an earlier epoch."""
        return self._walk(lambda _, packed: _place_of(packed).epoch < epoch)

    def unlike(self, other: "Entries") -> Iterator[tuple[ObjectKey, Entry]]:
        """Walk over those of ours of which `other` says something else, or nothing."""
        theirs = other._packed  # noqa: SLF001 - of the same class
        return self._walk(lambda name, packed: theirs.get(name) != packed)

    def versions_in(self, epoch: int) -> Iterator[str]:
        places = map(_place_of, self._packed.values())
        return (str(place.resource_version) for place in places if place.epoch == epoch)

    def names(self) -> KeysView[str]:
        """Return the texts of all keys: what there is already, where many keys would have to be made (`key_of`)."""
        return self._packed.keys()

    def _walk(self, wanted: Callable[[str, bytes], bool]) -> Iterator[tuple[ObjectKey, Entry]]:
        for name, packed in self._packed.items():
            if wanted(name, packed):
                yield key_of(name), _unpacked(packed)

    def __getitem__(self, key: ObjectKey) -> Entry:
        return _unpacked(self._packed[str(key)])

    def __setitem__(self, key: ObjectKey, entry: Entry) -> None:
        name = str(key)
        before = self._packed.get(name)
        self._living += (not entry.deleted) - (before is not None and not _place_of(before).deleted_at)
        self._packed[name] = _packed(entry)

    def __delitem__(self, key: ObjectKey) -> None:
        self._living -= not _place_of(self._packed.pop(str(key))).deleted_at

    def __iter__(self) -> Iterator[ObjectKey]:
        return map(key_of, self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, key: object) -> bool:
        return str(key) in self._packed


def key_of(name: str) -> ObjectKey:
    """Return the key that this is the text of. The API server takes no slash in a namespace or a name."""
    kind, namespace, called = name.split("/", 2)
    return ObjectKey(Kind(kind), namespace, called)


def _packed(entry: Entry) -> bytes:
    return _encode(
        _Packed(
            deleted_at=entry.deleted_at,
            epoch=entry.epoch,
            resource_version=_version_packed(entry.resource_version),
            uid=_uid_packed(entry.uid),
            digest=_digest_packed(entry.digest),
            models=tuple(int(model) if is_registry_id(model) else model for model in entry.models),
            sequence=entry.sequence,
        )
    )


def _unpacked(packed: bytes) -> Entry:
    found = _decode(packed)
    return Entry(
        uid=found.uid if isinstance(found.uid, str) else _uuid(found.uid),
        epoch=found.epoch,
        resource_version=str(found.resource_version),
        digest=found.digest if isinstance(found.digest, str) else _DIGEST_PREFIX + found.digest.hex(),
        models=tuple(map(str, found.models)),
        deleted_at=found.deleted_at,
        sequence=found.sequence,
    )


def _version_packed(text: str) -> int | str:
    plain = len(text) <= _INT_DIGITS_MAX and text.isascii() and text.isdigit() and text[0] != "0"
    return int(text) if plain else text


def _uid_packed(text: str) -> bytes | str:
    try:
        packed = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return text
    return packed if len(packed) == _UUID_BYTES and _uuid(packed) == text else text


def _uuid(packed: bytes) -> str:
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _digest_packed(text: str) -> bytes | str:
    try:
        packed = bytes.fromhex(text.removeprefix(_DIGEST_PREFIX))
    except ValueError:
        return text
    return packed if _DIGEST_PREFIX + packed.hex() == text else text
