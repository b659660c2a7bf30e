"""How long a stream may say nothing, and live; in virtual time."""

import asyncio
from contextlib import aclosing

import pytest

from producer.hearing import LIFE_S, SILENT_S, bounded
from producer.items import Bookmark, Closed, Lost, Silent
from producer.kube import WATCH_S

pytestmark = pytest.mark.looptime
NOW = [Bookmark("5")]


class Stream:
    """An accepted request, then `said` again and again, `every_s`."""

    def __init__(self, said, every_s):
        self.said = said
        self.every_s = every_s
        self.closed = False

    async def items(self):
        try:
            yield []
            while True:
                await asyncio.sleep(self.every_s)
                yield self.said
        finally:
            self.closed = True


async def last(stream, *, slowness_s=0.0):
    """Return what a stream ends with; each batch takes the reader so long."""
    said = []
    async with aclosing(bounded(stream)) as batches:
        async for batch in batches:
            said.append(batch)
            await asyncio.sleep(slowness_s)
    return said[-1]


async def test_R10_empty_lines_and_pieces_of_lines_are_silence(looptime):
    stream = Stream([], 1.0)
    assert await last(stream.items()) == [Silent()]
    assert looptime == SILENT_S
    assert stream.closed


async def test_R10_a_request_that_is_not_accepted_is_silence(looptime):
    async def never():
        await asyncio.sleep(3600)
        yield []

    assert await last(never()) == [Silent()]
    assert looptime == SILENT_S


async def test_R10_a_bookmark_a_minute_is_no_silence_but_no_request_outlives_what_it_asked_for(looptime):
    stream = Stream(NOW, 60.0)
    assert await last(stream.items()) == [Closed(LIFE_S)]
    assert looptime == LIFE_S > WATCH_S[1]
    assert stream.closed


async def test_R10_what_the_reader_takes_is_not_the_silence_of_the_server(looptime):
    assert await last(Stream(NOW, 60.0).items(), slowness_s=100.0) == [Closed(pytest.approx(LIFE_S, abs=200))]


async def test_the_end_of_a_stream_is_its_end():
    async def short():
        yield []
        yield [Lost("reset")]

    assert await last(short()) == [Lost("reset")]
