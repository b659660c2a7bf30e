"""Lines that take the place of others: what this release does not know of a line stays in it. Pure."""

from typing import Final

import msgspec

from replay.capture import EVENT_MEMBERS, Action, Captured, CaptureError, Facts, Footer, Line, encode
from shared.decoding import UNDECODABLE

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_EMPTY: Final = msgspec.Raw(b"{}")


def encode_over(line: Line, text: bytes) -> bytes:
    """Return a line that takes the place of `text`; members of that which this release does not know stay.

    Raises CaptureError when the text does not decode.
    """
    try:
        former = _MEMBERS.decode(text)
    except UNDECODABLE as error:
        raise CaptureError(f"does not decode: {error}") from error
    members = _MEMBERS.decode(encode(line))
    if isinstance(line, Facts | Action | Footer):
        name = type(line).__name__.lower()
        inner = {**_unknown(former.get(name, _EMPTY), type(line)), **_MEMBERS.decode(members[name])}
        members[name] = msgspec.Raw(msgspec.json.encode(inner))
        return msgspec.json.encode({**former, **members})
    known = EVENT_MEMBERS if isinstance(line, Captured) else frozenset(type(line).__struct_encode_fields__)
    return msgspec.json.encode({**members, **{name: raw for name, raw in former.items() if name not in known}})


def _unknown(text: msgspec.Raw, known: type[msgspec.Struct]) -> dict[str, msgspec.Raw]:
    return {name: raw for name, raw in _MEMBERS.decode(text).items() if name not in known.__struct_encode_fields__}
