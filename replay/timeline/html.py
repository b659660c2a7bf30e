"""The timeline page in one file: nothing is loaded, and only our own script runs.

The page's policy names script and style by their hashes, so that nothing else runs even if a text got out of its place.
The data are JSON in an element that is no script. No text in them can end that element: `<` is written as an escape.
"""

import base64
import hashlib
import re
from importlib import resources
from typing import Final

import msgspec

from replay.timeline.data import Page

SCRIPTS: Final = ("data.js", "words.js", "signs.js", "view.js", "draw.js", "panel.js", "input.js", "main.js")
_PLACE: Final = re.compile(r"\{(policy|style|data|script)\}")
_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def html(page: Page) -> str:
    """Return the whole page."""
    style = _text("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_text, SCRIPTS)) + "})();\n"
    parts = {"policy": _policy(style, script), "style": style, "data": _embedded(page), "script": script}
    return _PLACE.sub(lambda found: parts[found[1]], _text("page.html"))


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(page: Page) -> str:
    return msgspec.json.encode(page).decode().translate(_ESCAPES)


def _text(name: str) -> str:
    return (resources.files("replay.timeline") / "page" / name).read_text(encoding="utf-8")
