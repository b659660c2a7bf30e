"""How long a stream may say nothing, and how long it may live, whatever the server does.

A read timeout counts bytes, and a proxy can send empty lines for ever. What counts here is what was said: events and
bookmarks.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from producer.items import Closed, Item, Silent
from producer.kube import WATCH_S

SILENT_S: Final = 70.0  # bookmarks come every minute, and the server keeps 75 s of history
LIFE_S: Final = WATCH_S[1] + 30.0  # a server ends a watch at its timeoutSeconds; here is who does if it does not


async def bounded(stream: AsyncGenerator[list[Item], None]) -> AsyncGenerator[list[Item], None]:
    """Pass a stream on until it is silent or too old. Only the time in which the server is waited for is silence."""
    loop = asyncio.get_running_loop()
    began = heard = loop.time()
    opened = False
    async with aclosing(stream):
        while True:
            try:
                async with asyncio.timeout_at(min(heard + SILENT_S, began + LIFE_S)):
                    batch = await anext(stream, None)
            except TimeoutError:
                lived_s = loop.time() - began
                yield [Closed(lived_s) if lived_s >= LIFE_S else Silent()]
                return
            if batch is None:
                return
            yield batch
            if batch or not opened:  # that the server accepts the request is said, too
                heard, opened = loop.time(), True
