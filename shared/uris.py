"""URIs without the places in which credentials travel: userinfo, query, fragment. Pure; used by `shared/reduce.py`."""

import re
from typing import Final

_AUTHORITY_END: Final = re.compile(r"[/\s\\]")
# From `://` on: up to the last at sign, which may stand behind any mark; then up to a mark that ends a URI in a text; a
# query to its end. Without the scheme, so that the search stays linear in a long text.
_EMBEDDED_URI: Final = re.compile(r"""://(?:(?:(?!://)[^\s"<>])*@)?[^\s"'<>,;?#]*(?:[?#][^\s"<>]*)?""")


def clean_uri(uri: str) -> str:
    """Return the URI without userinfo, query and fragment.

    Broken URIs lose more rather than less: a password may hold an unescaped slash, question mark or at sign.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        scheme, rest = "", uri
    rest, *dropped = re.split(r"[?#]", rest, maxsplit=1)
    authority, slash, path = _split_authority(rest)
    if "@" in authority:
        authority = authority.rpartition("@")[2]
        if "@" in path:  # `user:p@ss/word@host`
            authority, slash, path = _split_authority(path.rpartition("@")[2])
        elif dropped and "@" in dropped[0]:  # `user:p@ss?word@host`
            authority, slash, path = "", "", ""
    elif separator and _password_like(authority):
        # `user:pa/ss@host`: what stands at the place of the port is a password, and goes on behind the slash.
        authority, slash, path = _split_authority(path.rpartition("@")[2]) if "@" in path else ("", "", "")
    return f"{scheme}{separator}{authority}{slash}{path}"


def clean_text(text: str) -> str:
    """Return text with every URI in it cleaned; for values that are not known to be a URI."""
    return _EMBEDDED_URI.sub(lambda match: clean_uri(match[0]), text)


def clean_image(image: str) -> str:
    """Return an image reference without userinfo and query; a digest (`@sha256:...`) is neither, and stays."""
    name, at, digest = image.partition("@sha256:")
    return clean_uri(name) + at + re.split(r"[?#@]", digest, maxsplit=1)[0]


def _split_authority(rest: str) -> tuple[str, str, str]:
    end = _AUTHORITY_END.search(rest)
    return (rest, "", "") if end is None else (rest[: end.start()], rest[end.start()], rest[end.end() :])


def _password_like(authority: str) -> bool:
    host, colon, port = authority.rpartition(":")
    return bool(colon) and port != "" and not port.isdigit() and not host.startswith("[")
