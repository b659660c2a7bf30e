"""`python -m tests.simulation.producer [SEED] [HISTORIES]`: live through histories, and say what happened."""

import sys

from tests.simulation.producer.history import SIMULATION

if __name__ == "__main__":
    sys.exit(SIMULATION.main(*map(int, sys.argv[1:])) or 0)
