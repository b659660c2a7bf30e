"""A consumer that dies, at once and without a word, whenever it handles an object called `poison`: as out of memory.

python -m tests.e2e.poisoned
"""

import os
import signal
import sys

from consumer.__main__ import main
from consumer.reconcile import Reconciler

_real_reconcile = Reconciler.reconcile


async def _reconcile(self, seen, how):
    if seen.key.name == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    return await _real_reconcile(self, seen, how)


Reconciler.reconcile = _reconcile

if __name__ == "__main__":
    sys.exit(main())
