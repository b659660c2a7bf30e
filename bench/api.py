"""The part of a Kubernetes API that the producer needs, over a fleet: WatchList, pages, watches, 410, bookmarks.

Not the sandbox's API: that one keeps every object and a history of their changes, which at 100,000 objects would take
more memory and time than what is to be measured. This one keeps twenty bytes per object.
"""

import asyncio
from collections.abc import Iterable
from typing import Self
from urllib.parse import parse_qs, urlsplit

from bench.fleet import Fleet

_BOOKMARK_S = 20.0
_BATCH_BYTES = 64 * 1024
_JSON = "Content-Type: application/json"
_COLLECTION = "/apis/serving.kserve.io/v1beta1/inferenceservices"


class FleetApi:
    """Serves a fleet on a port of the system's choosing. `asked` counts the requests by name."""

    def __init__(self, fleet: Fleet, *, watch_list: bool = True) -> None:
        self.fleet = fleet
        self.asked: dict[str, int] = {}
        self.bytes_sent = 0
        self.listing_began = asyncio.Event()
        self.url = ""
        self._watch_list = watch_list
        self._oldest = 0  # positions before this one are gone
        self._watches: dict[asyncio.StreamWriter, asyncio.Event] = {}
        self._watched = asyncio.Event()  # one is open; the producer never has two
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *raised: object) -> None:
        assert self._server is not None, "entered before"
        self._server.close()
        self.end_watches()

    def end_watches(self) -> None:
        for ended in self._watches.values():
            ended.set()

    def expire(self) -> None:
        """Forget what happened so far: open watches end, and the next one from before gets 410."""
        self._oldest = self.fleet.version
        self.end_watches()

    async def modified(self, numbers: Iterable[int]) -> None:
        """Tell the open watches that these objects were changed; waits for one, and while they do not read."""
        await self._watched.wait()
        lines = [_event(b"MODIFIED", self.fleet.object(number)) for number in numbers]
        for writer in list(self._watches):
            await self._send(writer, b"".join(lines))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await self._answer(urlsplit(head.split(" ")[1]).path, _query(head), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client has gone
        finally:
            writer.close()

    async def _answer(self, path: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        name = _name(path, query)
        self.asked[name] = self.asked.get(name, 0) + 1
        match name:
            case "cluster":
                _write_whole(writer, "200 OK", b'{"metadata":{"uid":"bench"}}')
            case "page":
                self.listing_began.set()
                _write_whole(writer, "200 OK", self._page(int(query.get("continue", "0")), int(query["limit"])))
            case "initial" if not self._watch_list:
                _write_whole(writer, "422 Unprocessable Entity", _status(422, "Invalid"))
            case "initial" | "watch":
                await self._watch(writer, None if name == "initial" else int(query["resourceVersion"]))
            case _:
                _write_whole(writer, "404 Not Found", _status(404, "NotFound"))
        await writer.drain()

    def _page(self, first: int, limit: int) -> bytes:
        token = str(first + limit) if first + limit < self.fleet.size else ""
        metadata = f'{{"resourceVersion":"{self.fleet.version}","continue":"{token}"}}'.encode()
        items = b",".join(self.fleet.objects(first, limit))
        return b'{"kind":"InferenceServiceList","metadata":' + metadata + b',"items":[' + items + b"]}"

    async def _watch(self, writer: asyncio.StreamWriter, position: int | None) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{_JSON}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        if position is None:
            await self._initial(writer)
        elif position < self._oldest:
            await self._send(writer, _event(b"ERROR", _status(410, "Expired")))
            writer.write(b"0\r\n\r\n")
            return
        self._watches[writer] = ended = asyncio.Event()
        self._watched.set()
        try:
            while not ended.is_set():
                try:
                    async with asyncio.timeout(_BOOKMARK_S):
                        await ended.wait()
                except TimeoutError:
                    await self._send(writer, self._bookmark(b"{}"))
            writer.write(b"0\r\n\r\n")
        finally:
            del self._watches[writer]
            self._watched.clear()

    async def _initial(self, writer: asyncio.StreamWriter) -> None:
        self.listing_began.set()
        batch: list[bytes] = []
        size = 0
        for found in self.fleet.objects():
            batch.append(_event(b"ADDED", found))
            size += len(found)
            if size > _BATCH_BYTES:
                await self._send(writer, b"".join(batch))
                batch, size = [], 0
        await self._send(writer, b"".join(batch) + self._bookmark(b'{"k8s.io/initial-events-end":"true"}'))

    def _bookmark(self, annotations: bytes) -> bytes:
        version = str(self.fleet.version).encode()
        return _event(b"BOOKMARK", b'{"metadata":{"resourceVersion":"%b","annotations":%b}}' % (version, annotations))

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self.bytes_sent += len(data)
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()


def _event(kind: bytes, found: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, found)


def _status(code: int, reason: str) -> bytes:
    return f'{{"kind":"Status","apiVersion":"v1","code":{code},"reason":"{reason}","message":"said"}}'.encode()


def _write_whole(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    writer.write(f"HTTP/1.1 {status}\r\n{_JSON}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def _query(head: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(head.split(" ")[1]).query).items()}


def _name(path: str, query: dict[str, str]) -> str:
    """Name what a request asks for."""
    if path == "/api/v1/namespaces/kube-system":
        return "cluster"
    if path != _COLLECTION:
        return path
    if query.get("watch") != "true":
        return "page"
    return "initial" if query.get("sendInitialEvents") == "true" else "watch"
