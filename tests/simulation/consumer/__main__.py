"""`python -m tests.simulation.consumer [SEED] [HISTORIES]`: live through histories, and say what happened."""

import sys
import time
from collections import Counter

from tests.simulation.consumer.history import live, of, report


def main(first: int = 0, histories: int = 1000) -> str:
    seen: Counter[str] = Counter()
    began_s = time.monotonic()
    for seed in range(first, first + histories):
        try:
            seen.update(live(of(seed)))
        except AssertionError:
            return report(seed)
    took_s = time.monotonic() - began_s
    counted = "".join(f"\n{count:9} {name}" for name, count in sorted(seen.items()))
    sys.stdout.write(f"{histories} histories from seed {first} in {took_s:.1f} s{counted}\n")
    return ""


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) or 0)
