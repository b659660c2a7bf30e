"""A producer whose clock is an hour fast: `python -m tests.e2e.fast_clock`."""

import sys
import time
from typing import Final

from producer.__main__ import main

AHEAD_S: Final = 3600.0


def _hasten() -> None:
    right = time.time
    time.time = lambda: right() + AHEAD_S


if __name__ == "__main__":
    _hasten()
    sys.exit(main())
