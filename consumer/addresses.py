"""Addresses of registries as text: what is one, how it is written, and where it leads. Pure."""

from ipaddress import IPv6Address
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


def host_and_port(text: str) -> tuple[str, int | None]:
    """Return the host and, where there is one, the port of `host[:port]`; `same_host` compares the host.

    Raises ValueError with the rest of a sentence ("which ...") for what is none. An IPv6 address needs brackets where
    its last group could be a port.
    """
    if _is_ipv6(text):
        rest, _, group = text.rpartition(":")
        if group.isdecimal() and _is_ipv6(rest):
            raise ValueError(f"which can be read in two ways: write [{text}] or [{rest}]:{group}")
        return text, None
    no_host = "which is no lower-case host[:port]"
    if text != text.lower() or text.endswith(":") or "*" in text:
        raise ValueError(no_host)
    try:
        _, host, _default, path = _parts(f"https://{text}")
        port = urlsplit(f"//{text}").port
    except ValueError:
        raise ValueError(no_host) from None
    if path:
        raise ValueError(no_host)
    return host, port


def same_host(one: str, other: str) -> bool:
    """Whether two hosts are the same name, or the same IPv6 address, however it is written."""
    return one == other or (_is_ipv6(one) and _is_ipv6(other) and IPv6Address(one) == IPv6Address(other))


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


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
    after_brackets = url.netloc.partition("]")[2]  # urlsplit looks at nothing between them and a colon
    if port == 0 or after_brackets.partition(":")[0]:
        raise ValueError("has a host or port that is none")
    return url.scheme, url.hostname, port or _PORTS[url.scheme], url.path
