"""Debian's chromium, headless, driven over the Chrome DevTools Protocol; with no way to any network."""

import asyncio
import base64
import itertools
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

BINARY = shutil.which("chromium")
STARTS_WITHIN_S = 60.0
ANSWERS_WITHIN_S = 60.0
_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}
_FLAGS = (
    "--headless",
    "--no-sandbox",  # it cannot have one as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)


@contextmanager
def chromium(folder: Path) -> Iterator[str]:
    """Run a browser with its profile in a folder; yield the address of its DevTools socket."""
    assert BINARY is not None
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [BINARY, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            port, path = _announced(process, folder / "profile" / "DevToolsActivePort", folder / "log")
            yield f"ws://127.0.0.1:{port}{path}"
        finally:
            process.send_signal(signal.SIGTERM)  # it ends its own children
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _announced(process: subprocess.Popen[bytes], file: Path, log: Path) -> tuple[str, str]:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return lines[0], lines[1]
        assert process.poll() is None, f"chromium ended: {log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.02)  # a fixture without a loop
    raise AssertionError(f"chromium did not start: {log.read_text(errors='replace')[-2000:]}")


class Devtools:
    """The socket: commands with their answers, events by session."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.ensure_future(self._read())
        self.events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.came = asyncio.Condition()

    async def call(self, method: str, session: str = "", **params: Any) -> Any:
        """Send a command and return its result. Raises AssertionError with the browser's own words."""
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        await self._socket.send_json(message)
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            answer = await future
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
                continue
            async with self.came:
                self.events[told.get("sessionId", "")].append(told)
                self.came.notify_all()

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class Tab:
    """One page. Everything that it logs, throws or asks of a network is kept."""

    def __init__(self, devtools: Devtools, session: str) -> None:
        self._devtools = devtools
        self._session = session

    async def call(self, method: str, **params: Any) -> Any:
        return await self._devtools.call(method, self._session, **params)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return what the browser told by events of that name."""
        return [each["params"] for each in self._devtools.events[self._session] if each["method"] == method]

    @property
    def complaints(self) -> list[str]:
        """Return exceptions, and whatever reached the console."""
        return [
            *(str(each["exceptionDetails"]) for each in self.told("Runtime.exceptionThrown")),
            *(str(each["args"]) for each in self.told("Runtime.consoleAPICalled")),
            *(f"{each['entry']['text']} {each['entry'].get('url')}" for each in self.told("Log.entryAdded")),
        ]

    @property
    def requested(self) -> list[str]:
        return [each["request"]["url"] for each in self.told("Network.requestWillBeSent")]

    async def open(self, path: Path) -> None:
        """Open a file, and wait until it is loaded and has drawn once."""
        loaded = len(self.told("Page.loadEventFired"))
        await self.call("Page.navigate", url=path.as_uri())
        async with asyncio.timeout(ANSWERS_WITHIN_S), self._devtools.came:
            await self._devtools.came.wait_for(lambda: len(self.told("Page.loadEventFired")) > loaded)
        await self.frame()

    async def run(self, script: str) -> Any:
        """Return the value of an expression, also of a promise."""
        result = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def frame(self) -> None:
        """Wait until what was asked for is drawn."""
        await self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    async def press(self, *keys: str) -> None:
        """Press keys one after the other: a character, or a name such as `ArrowLeft`."""
        for key in keys:
            named = len(key) > 1
            told = {"key": key, "code": key if named else ""} | ({} if named else {"text": key})
            if key == "Enter":
                told["text"] = "\r"
            if key in _CODES:  # what the browser itself does with a key goes by its number
                told["windowsVirtualKeyCode"] = _CODES[key]
            await self.call("Input.dispatchKeyEvent", type="keyDown", **told)
            await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        await self.frame()

    async def type(self, text: str) -> None:
        """Write into what has the focus."""
        await self.call("Input.insertText", text=text)
        await self.frame()

    async def click(self, x: float, y: float) -> None:
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        await self.frame()

    async def size(self, width: int, height: int, *, ratio: float = 1) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=False
        )

    async def prefer(self, scheme: str) -> None:
        """Be a browser that likes `light` or `dark`."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self) -> bytes:
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def pdf(self) -> bytes:
        return base64.b64decode(
            (await self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True))["data"]
        )


@asynccontextmanager
async def tab(address: str) -> AsyncIterator[Tab]:
    """Open a tab of its own, and close it in the end."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(address, max_msg_size=_MESSAGE_BYTES_MAX) as socket,
    ):
        devtools = Devtools(socket)
        try:
            context = (await devtools.call("Target.createBrowserContext"))["browserContextId"]
            target = await devtools.call("Target.createTarget", url="about:blank", browserContextId=context)
            attached = await devtools.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            page = Tab(devtools, attached["sessionId"])
            for domain in ("Page", "Runtime", "Log", "Network"):
                await page.call(f"{domain}.enable")
            await page.size(1280, 800)
            yield page
            await devtools.call("Target.disposeBrowserContext", browserContextId=context)
        finally:
            await devtools.close()
