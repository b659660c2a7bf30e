"""`--step`: shows the next event, and waits for Enter."""

import asyncio
from collections.abc import Callable
from typing import TextIO

from replay.capture import Captured
from shared.errors import BadEventError
from shared.reduce import REGISTRY_PREFIXES


class Stepper:
    """Asked before each event. `keys` is a terminal; its end (Ctrl-D) ends the replay there."""

    def __init__(self, keys: TextIO, say: Callable[[str], None]) -> None:
        self._keys = keys
        self._say = say

    async def __call__(self, captured: Captured) -> bool:
        self._say(f"{described(captured)}  [Enter: let it happen, Ctrl-D: end here]")
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not typed.done():
                typed.set_result(self._keys.readline())

        # Not a thread: one that reads cannot be stopped, and would hold up the end after Ctrl-C.
        loop.add_reader(self._keys, read)
        try:
            return bool(await typed)
        finally:
            loop.remove_reader(self._keys)


def described(captured: Captured) -> str:
    """Say in one line what an event says."""
    event = captured.event
    try:
        labels = captured.obj.metadata.labels
    except BadEventError:
        labels = {}
    ids = {
        what: value
        for what, name in (("model", "registered-model-id"), ("version", "model-version-id"))
        if (value := next((labels[f"{p}{name}"] for p in REGISTRY_PREFIXES if f"{p}{name}" in labels), ""))
    }
    said = "".join(f", {what} {value}" for what, value in ids.items())
    return f"#{captured.position.seq} {event.time} {event.key} {event.type} at {event.resource_version}{said}"
