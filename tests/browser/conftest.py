"""One browser for the run, a tab and a window of its own for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from replay.timeline.data import Page
from replay.timeline.html import html
from tests.browser import captures
from tests.browser.chromium import BINARY, Tab, chromium, tab


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real browser's DevTools."""
    assert BINARY, "chromium is not installed: apt-get install --no-install-recommends chromium"
    with chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address


@pytest.fixture
async def window(browser: str) -> AsyncIterator[Tab]:
    """An empty tab of 1280 by 800, that likes it light."""
    async with tab(browser) as opened:
        await opened.prefer("light")
        yield opened


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Page], Path]:
    """Write a page to a file of its own."""
    folder = tmp_path_factory.mktemp("pages")

    def write(page: Page) -> Path:
        path = folder / f"{len(list(folder.iterdir()))}.html"
        path.write_text(html(page), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def day() -> Page:
    """10,000 events of 300 objects."""
    return captures.page(captures.day())


@pytest.fixture(scope="session")
def day_file(day: Page, written) -> Path:
    return written(day)


@pytest.fixture(scope="session")
def story() -> Page:
    """Nine events of four objects."""
    return captures.page(captures.story())


@pytest.fixture(scope="session")
def story_file(story: Page, written) -> Path:
    return written(story)
