"""A consumer that writes down every effect when it begins: on which shard, by whom, and when it asked its fence.

    WITNESS=effects.jsonl python -m tests.chaos.witness

The product is not changed by it: it listens where the fence is asked and where requests leave, and goes on from there.
Between the two a process may be paused. Then the request leaves late, and the moment of the question tells whether
there was a right to it.
"""

import os
import sys
import time
from contextvars import ContextVar
from pathlib import Path

import httpx
import msgspec

from consumer.__main__ import main
from consumer.ownership.fence import Fence, term_at_hand
from tests.chaos.judge import Effect

_real_send, _real_budget_s = httpx.AsyncClient.send, Fence.budget_s
_asked_at: ContextVar[float] = ContextVar("when the fence was asked for this request", default=0.0)
_written = Path(os.environ["WITNESS"]).open("ab", buffering=0)  # noqa: SIM115 - as long as the process


def _budget_s(self):
    _asked_at.set(time.time())  # before: a fence that is asked after a pause says no by itself
    return _real_budget_s(self)


async def _send(self, request, **how):
    if request.method != "GET":
        term = term_at_hand()
        effect = Effect(
            asked_at=_asked_at.get(),
            sent_at=time.time(),
            pod=os.environ["POD_NAME"],
            shard=None if term is None else term.shard,
            what=f"{request.method} {request.url.path}",
        )
        _written.write(msgspec.json.encode(effect) + b"\n")
    _asked_at.set(0.0)  # a request for which nobody asks shows itself
    return await _real_send(self, request, **how)


Fence.budget_s = _budget_s
httpx.AsyncClient.send = _send

if __name__ == "__main__":
    sys.exit(main())
