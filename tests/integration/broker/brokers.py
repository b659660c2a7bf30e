"""Settings of a broker with small streams, whose connection must hold."""

from shared.broker import BrokerSettings

SMALL = 64 * 1024 * 1024


def settings(*urls: str, **others: object) -> BrokerSettings:
    return BrokerSettings(nats_url=urls, stream_max_bytes=SMALL, **others)


def must_not_close() -> None:
    raise AssertionError("the connection was given up for good")
