"""The timeline page and the world: it loads nothing, and runs nothing but its own script, whatever a capture holds."""

import pytest
from aiohttp import web

from tests.browser import captures
from tests.browser.chromium import tab

pytestmark = pytest.mark.browser

REACHING = """async (address) => {
  const loading = (tag, parent) => new Promise((done) => {
    const element = document.createElement(tag);
    element.onload = element.onerror = done;
    element.src = `${address}/${tag}`;
    parent.append(element);
    setTimeout(done, 500);
  });
  await Promise.allSettled([fetch(`${address}/fetch`), loading("img", document.body), loading("script", document.head),
    loading("iframe", document.body)]);
  navigator.sendBeacon(`${address}/beacon`);
}"""
INJECTIONS = {
    "script": """const script = document.createElement("script");
        script.textContent = "window.stolen = 1";
        document.body.append(script);""",
    "onerror": """document.body.insertAdjacentHTML("beforeend", '<img src=x onerror="window.stolen = 1">');""",
    "onclick": """document.body.insertAdjacentHTML("beforeend", '<button id=b onclick="window.stolen = 1">');
        b.click();""",
}


@pytest.fixture
async def listener():
    """A server on loopback that anything could reach; counts what did."""
    reached: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response(text="window.stolen = 1", content_type="text/javascript")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", reached
    await runner.cleanup()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_opens_from_disk_without_a_request_or_a_complaint(window, day_file, scheme):
    await window.prefer(scheme)
    await window.open(day_file)
    await window.press("d", "+", "?", "Escape", "/", "a")
    assert [url for url in window.requested if not url.startswith("file:")] == []
    assert window.complaints == []


async def test_it_may_not_reach_a_network(window, story_file, listener, browser):
    address, reached = listener
    await window.open(story_file)
    await window.run(f"({REACHING})('{address}')")
    async with tab(browser) as other:  # what the page had sent would be there before this
        await other.run(f"fetch('{address}/control', {{mode: 'no-cors'}}).then(() => 1)")
    assert reached == ["/control"]
    assert any("Content Security Policy" in each for each in window.complaints)


@pytest.mark.parametrize("injection", INJECTIONS.values(), ids=INJECTIONS.keys())
async def test_no_other_script_runs_even_when_it_got_in(window, story_file, injection):
    await window.open(story_file)
    await window.run(f"(() => {{ {injection} }})()")
    await window.frame()
    assert await window.run("window.stolen") is None
    assert any("Content Security Policy" in each for each in window.complaints)


async def test_hostile_texts_do_not_run_and_are_shown_as_they_are(window, written):
    lines = list(captures.hostile())
    await window.open(written(captures.page(lines, cluster=captures.HOSTILE[0], tool=captures.HOSTILE[1])))
    for _ in range(len(captures.HOSTILE)):
        await window.press("N")
        await window.run("document.getElementById('live').textContent")
    shown = (await window.run("timeline.state()"))["visible"]
    assert await window.run("window.stolen") is None
    assert window.complaints == []
    assert {*captures.HOSTILE[:4], "__proto__", "constructor"} <= set(shown)
    assert await window.run("document.querySelectorAll('script').length") == 2
    assert await window.run("document.querySelectorAll('img').length") == 0


async def test_a_text_that_turns_its_surroundings_is_shown_by_its_number(window, written):
    await window.open(written(captures.page(list(captures.hostile()))))
    shown = (await window.run("timeline.state()"))["visible"]
    assert "\\u202egnp.exe\\u2028window.stolen=1\\u2029" in shown
