"""Hearing of faults in the consumer itself while its workers live through an exploration, or a simulation."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Ear(logging.Handler):
    """Hears what the consumer says of faults in itself."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.heard.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def listening() -> Iterator[Ear]:
    """Keep the consumer's log quiet, but hear of every exception that it did not expect."""
    logger = logging.getLogger("consumer")
    before = (logger.level, logger.propagate)
    ear = Ear()
    logger.addHandler(ear)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield ear
    finally:
        logger.removeHandler(ear)
        logger.setLevel(before[0])
        logger.propagate = before[1]
