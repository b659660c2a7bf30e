"""A consumer that writes down every effect at the moment in which it begins: when, on which shard, by whom.

    WITNESS=effects.jsonl python -m tests.e2e.witness

The product is not changed by it: it listens where requests leave, at the HTTP client, and goes on from there.
"""

import json
import os
import re
import sys
import time
from pathlib import Path

import httpx

from consumer.__main__ import main
from consumer.ownership.fence import term_at_hand

_NOTICE = re.compile(r"/api/v1/namespaces/[^/]+/events")  # a courtesy to people, which needs no lease
_real_send = httpx.AsyncClient.send
_written = Path(os.environ["WITNESS"]).open("a", buffering=1)  # noqa: SIM115 - as long as the process


async def _send(self, request, **how):
    if request.method != "GET" and not _NOTICE.match(request.url.path):
        term = term_at_hand()
        effect = {
            "at": time.time(),
            "pod": os.environ["POD_NAME"],
            "shard": None if term is None else term.shard,
            "what": f"{request.method} {request.url.path}",
        }
        _written.write(json.dumps(effect) + "\n")
    return await _real_send(self, request, **how)


httpx.AsyncClient.send = _send

if __name__ == "__main__":
    sys.exit(main())
