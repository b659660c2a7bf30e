"""`python -m consumer`: the consumer, configured by environment variables only."""

import sys

from consumer.app import run
from consumer.settings import ConsumerSettings
from shared.process import run_process


def main() -> int:
    """Run until a signal; return the exit code."""
    return run_process("consumer", ConsumerSettings, run)


if __name__ == "__main__":
    sys.exit(main())
