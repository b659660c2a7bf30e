"""SQL LIKE as PostgreSQL does it: `%` and `_` are wildcards, a backslash takes the next character as it is.

The server puts names into LIKE patterns without escaping them, so these rules decide which names a find returns.
"""

import re
from collections.abc import Callable
from functools import cached_property

from sandbox.registry.errors import DatabaseError


def identity(text: str) -> str:
    return text


class Like:
    """A pattern. `exact` is the only text that it matches, when it has no wildcards."""

    def __init__(self, pattern: str, fold: Callable[[str], str] = identity) -> None:
        self._fold = fold
        self._pieces: list[str | None] = []
        """Literal characters, `%` and `_` as the wildcards that they are: None is `%`, an empty text `_`."""
        self._dangling = False
        characters = iter(pattern)
        for char in characters:
            literal = next(characters, None) if char == "\\" else char
            if literal is None:
                self._dangling = True
            else:
                self._pieces.append({"%": None, "_": ""}.get(char, literal))
        wild = self._dangling or not all(self._pieces)
        self.exact = None if wild else "".join(piece or "" for piece in self._pieces)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        pieces = (".*" if piece is None else re.escape(self._fold(piece)) or "." for piece in self._pieces)
        return re.compile("".join(pieces) + ("." if self._dangling else ""), re.DOTALL)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. Raises DatabaseError when matching runs into an escape at the end."""
        folded = self._fold(text)
        if not self._dangling:
            return self._regex.fullmatch(folded) is not None
        if self._regex.match(folded):
            raise DatabaseError("ERROR: LIKE pattern must not end with escape character (SQLSTATE 22025)")
        return False  # with nothing left of the text the unfinished pattern does not match either
