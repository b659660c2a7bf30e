"""Addresses of registries as text: what is one, how it is written, and where it leads. Pure."""

from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}


def normal(address: str) -> str:
    """Return the address in the one form in which addresses are compared: `scheme://host[:port][/path]`.

    Scheme and host in lower case, without the scheme's own port and the slash at the end. Raises ValueError with the
    rest of a sentence ("must begin with ...") for what is no address; it repeats nothing, as a password may be in it.
    """
    scheme, host, port, path = _parts(address)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}{'' if port == _PORTS[scheme] else f':{port}'}{path.rstrip('/')}"


def origin(address: str) -> tuple[str, str, int]:
    """Return scheme, host and port: two addresses with the same ones lead to the same server."""
    return _parts(address)[:3]


def _parts(address: str) -> tuple[str, str, int, str]:
    if not address.isprintable() or any(map(str.isspace, address)) or "\\" in address:
        raise ValueError("must hold no spaces, backslashes or control characters")
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise ValueError("has a host or port that is none") from None
    if url.scheme not in _PORTS or not url.hostname:
        raise ValueError("must begin with http:// or https:// and a host")
    if "@" in url.netloc or "?" in address or "#" in address:
        raise ValueError("must hold no credentials, query or fragment; a token comes by REGISTRY_TOKEN_FILE")
    if port == 0:
        raise ValueError("has a host or port that is none")
    return url.scheme, url.hostname, port or _PORTS[url.scheme], url.path
