"""Query strings as the server reads them: the first of two equal names counts, semicolons are refused."""

import re
from urllib.parse import unquote_to_bytes

from sandbox.registry.errors import ApiError

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")


def parse_query(raw: str) -> dict[str, str]:
    """Parse; bytes that are not UTF-8 come as surrogate escapes, for the database to refuse. Raises ApiError 400."""
    parsed: dict[str, str] = {}
    for pair in raw.split("&"):
        if ";" in pair:
            raise ApiError(400, "invalid semicolon separator in query")
        if pair:
            name, _, value = pair.partition("=")
            parsed.setdefault(_unescaped(name), _unescaped(value))
    return parsed


def _unescaped(text: str) -> str:
    if "%" not in text and "+" not in text:
        return text
    if bad := _BAD_ESCAPE.search(text):
        raise ApiError(400, f'invalid URL escape "{bad.group()}"')
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "surrogateescape")
