"""`python -m tests.chaos [SEED] [DURATION_S] [--nodes 3]`: one run; the last line is the verdict with its figures."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Plan, run
from tests.cluster.processes import Guard

_SHOWN = 20


def main() -> int:
    arguments = argparse.ArgumentParser(description="Producer, consumers and broker under all faults at once")
    arguments.add_argument("seed", type=int, nargs="?", default=1)
    arguments.add_argument("duration_s", type=float, nargs="?", default=40.0)
    arguments.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="servers of the broker")
    given = arguments.parse_args()
    guard = Guard()
    directory = Path(tempfile.mkdtemp(prefix="isvc-sync-chaos-"))
    try:
        outcome = asyncio.run(run(Plan(given.seed, given.duration_s, given.nodes), directory, guard))
    finally:
        guard.close()
    if outcome.is_right:
        shutil.rmtree(directory)
    else:
        shown = [*outcome.findings[:_SHOWN], f"logs: {directory}"]
        sys.stdout.write("".join(f"{line}\n" for line in shown))
    sys.stdout.write(f"{outcome}\n")
    return 0 if outcome.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
