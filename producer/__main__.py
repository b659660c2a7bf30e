"""`python -m producer`: the producer, configured by environment variables only."""

import sys

from producer.app import run
from producer.settings import ProducerSettings
from shared.process import run_process


def main() -> int:
    """Run until a signal; return the exit code."""
    return run_process("producer", ProducerSettings, run)


if __name__ == "__main__":
    sys.exit(main())
