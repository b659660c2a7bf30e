"""A consumer in whose cluster Services have names: the DNS, played.

Services under the cluster's own domain are all this host; under another domain there are none.

    python -m tests.integration.consumer.resolving

The product is not changed by it: the names are asked for where every program asks, at getaddrinfo.
"""

import socket
import sys

from consumer.__main__ import main

DOMAIN = "corp.internal"

_real_getaddrinfo = socket.getaddrinfo


def _getaddrinfo(host, *args, **how):
    name = host.decode() if isinstance(host, bytes) else host or ""  # anyio asks in bytes
    if name.endswith(f".svc.{DOMAIN}"):
        host = "127.0.0.1"
    elif ".svc." in name:
        raise socket.gaierror(socket.EAI_NONAME, f"there is no {name}")
    return _real_getaddrinfo(host, *args, **how)


socket.getaddrinfo = _getaddrinfo

if __name__ == "__main__":
    sys.exit(main())
