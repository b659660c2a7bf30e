"""Start producer or consumer, which take no options: everything comes by environment variables."""

# ruff: noqa: PLC0415 - a process imports the daemon that it becomes, and not the other

from msgspec import Struct


def run(role: str) -> int:
    """Become the producer or the consumer; return its exit code."""
    if role == "producer":
        from producer.__main__ import main as producer

        return producer()
    from consumer.__main__ import main as consumer

    return consumer()


def settings_of(role: str) -> type[Struct]:
    """Return the settings that `role` reads from its environment."""
    if role == "producer":
        from producer.settings import ProducerSettings

        return ProducerSettings
    from consumer.settings import ConsumerSettings

    return ConsumerSettings
