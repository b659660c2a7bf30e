"""Has the story told and checks how it ended, on whatever cluster, registry and broker it is told."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from cli.demo import clients
from cli.demo.checks import Check, Evidence, verdicts
from cli.demo.observer import Observer
from cli.demo.processes import DemoError
from cli.demo.screen import Screen
from cli.demo.story import Story

_SETTLE_S: Final = 15.0
_SETTLE_INTERVAL_S: Final = 0.5


class Performance(msgspec.Struct, frozen=True):
    """One telling. `nats` is the broker's address, `logs` are those of producer and consumer."""

    story: Story
    observer: Observer
    screen: Screen
    nats: str
    logs: tuple[Path, ...]

    async def checks(self) -> list[Check]:
        """Have the story told, and check; wait a while for checks that do not pass yet, and then say why."""
        try:
            await self.story.tell()
        except DemoError as error:
            return [Check("the story comes to its end", False, str(error)), *await self._checked()]
        self.screen.step("Registry and cluster are compared")
        give_up = asyncio.get_running_loop().time() + _SETTLE_S
        while True:
            checks = await self._checked()
            if all(check.passed for check in checks) or asyncio.get_running_loop().time() > give_up:
                return checks
            await self.observer.linger(_SETTLE_INTERVAL_S)

    async def _checked(self) -> list[Check]:
        try:
            await self.observer.look()
            broker = await clients.heard(self.nats)
        except DemoError as error:
            return [Check("cluster, registry and broker answer", False, str(error))]
        logs = [line for log in self.logs if log.exists() for line in log.read_text().splitlines()]
        deferred = await clients.deferred(self.story.consumer_port)
        return verdicts(
            Evidence(self.observer.seen, broker.dead_letters, broker.messages, tuple(logs), self.story.secret, deferred)
        )
