"""What it raises to decode bytes that others have written, at every border: msgspec has three ways to say no."""

from typing import Final

import msgspec

UNDECODABLE: Final = (
    msgspec.DecodeError,  # no JSON, or of another shape (a ValidationError is one)
    UnicodeDecodeError,  # no UTF-8
    RecursionError,  # nested deeper than Python's stack; the API server takes ten times as much
)
