"""An API server that says exactly the bytes of a script, and counts what it was asked.

A script is a list of `Response`s, data only, each for the request that is expected next (`initial`, `list`,
`list <token>`, `watch`); any other request is noted in `wrong`. What the lines of a script say comes from a `Cluster`,
so that a test can compare the broker with it afterwards, however the lines were mangled on their way.

A watch may be asked for from before the script's position, because the producer resumes behind what is acknowledged:
the server then repeats what happened in between, as a real one does.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.integration.producer.scripted_cluster import Cluster
from tests.unit.producer.observed import line

JSON = "Content-Type: application/json"
END = b"0\r\n\r\n"  # of a chunked body
_CHATTER_S = 0.05
_BLOCKED_S = 0.3


class Ending(Enum):
    """How a connection goes on or ends, after the bytes before it."""

    HOLD = auto()  # silence, until the client goes
    CHATTER = auto()  # keep-alive lines, until the client goes
    RESET = auto()
    FIN = auto()


HOLD, CHATTER, RESET, FIN = Ending
Part = bytes | Ending | asyncio.Event | Callable[[], None]  # an event is waited for; a function is called


class Response(msgspec.Struct, frozen=True):
    """What to say to the request `to`. `since`: the version of the cluster that its parts begin with."""

    to: str
    head: bytes
    parts: tuple[Part, ...] = ()
    since: int = 0
    repeats: bool = False  # what happened between the position asked for and `since`


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def answer(to: str, status: str = "200 OK", *headers: str, body: bytes = b"", parts: tuple[Part, ...] = ()) -> Response:
    """An answer of known length; `parts` come before its first byte."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *(headers or (JSON,)), "", ""]
    return Response(to, b"", (*parts, "\r\n".join(lines).encode() + body))


def refusal(to: str, code: int, reason: str, *headers: str, **details: Any) -> Response:
    return answer(to, f"{code} {reason}", JSON, *headers, body=msgspec.json.encode(status_of(code, reason, **details)))


def status_of(code: int, reason: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": "said", "details": details}


def error(code: int, reason: str, **details: Any) -> bytes:
    return line("ERROR", status_of(code, reason, **details)) + b"\n"


def silent(to: str) -> Response:
    """No byte, not even of the headers."""
    return Response(to, b"", (HOLD,))


def stream(to: str, since: int, *parts: Part, end: Part = END, headers: tuple[str, ...] = (JSON,)) -> Response:
    """A chunked answer, each of the bytes in a chunk of its own."""
    head = "\r\n".join(["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *headers, "", ""]).encode()
    sent = tuple(chunk(part) if isinstance(part, bytes) else part for part in parts)
    return Response(to, head, (*sent, end), since, repeats=to == "watch")


def initial(since: int, *parts: Part, end: Part = END) -> Response:
    return stream("initial", since, *parts, end=end)


def watch(since: int, *parts: Part, end: Part = END) -> Response:
    return stream("watch", since, *parts, end=end)


def listing(since: int, body: bytes, token: str = "") -> Response:
    """A page, which the request for `token` gets."""
    found = answer(f"list {token}".strip(), body=body)
    return msgspec.structs.replace(found, since=since)


NO_WATCH_LIST: Final = refusal("initial", 422, "Invalid")
EXPIRED: Final = stream("watch", 0, error(410, "Expired"), end=HOLD)


class ScriptedServer:
    """Plays `script`. When it is over, `finished` is true, and the last response decides what goes on."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.script: deque[Response] = deque()
        self.storm: Response | None = None  # said to every request while it is set
        self.blind = 0  # what a list of one object says that only asks for the version; 0: the truth
        self.asked: list[str] = []
        self.asked_at: list[float] = []
        self.wrong: list[str] = []
        self.positions: list[int] = []  # of the watches
        self.blocked = False  # the client does not read what was said
        self.authorizations: list[str] = []
        self.overlaps = 0  # requests that came while another answer was still open
        self.connections: list[list[str]] = []  # what was asked on each
        self.open = 0
        self.url = ""
        self._playing = 0
        self._serving: list[asyncio.Task[None]] = []
        self._floor = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *raised: object) -> None:
        assert self._server is not None
        self._server.close()
        async with asyncio.timeout(5):
            await asyncio.gather(*self._serving)  # the client has closed its side; ours follows

    @property
    def finished(self) -> bool:
        return not self.script

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        asked: list[str] = []
        self.connections.append(asked)
        self.open += 1
        try:
            while await self._exchange(reader, writer, asked):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client has gone
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]) -> bool:
        """Answer one request; return whether the connection lives on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split(" ")[1]
        if target.endswith("/namespaces/kube-system"):
            writer.write(answer("", body=b'{"metadata":{"uid":"scripted"}}').parts[0])
            return True
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        if query.get("limit") == "1" and self.storm is None:  # before each watch; not in the scripts
            writer.write(answer("", body=self.cluster.page(version=self.blind)).parts[0])
            return True
        asked.append(_name(query))
        self.authorizations += [text for text in head.split("\r\n") if text.startswith("Authorization: ")]
        for _ in range(5):  # an end that was sent before this request is heard of by now
            await asyncio.sleep(0)
        self.overlaps += self._playing > 0
        self._playing += 1
        try:
            return await self._play(query, reader, writer)
        finally:
            self._playing -= 1

    async def _play(self, query: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        position = int(query.get("resourceVersion", "0"))
        response = self._next(_name(query), position)
        writer.write(response.head)
        if response.repeats:
            missed = [said for at, said in self.cluster.history if position < at <= response.since]
            writer.write(b"".join(map(chunk, missed)))
        for part in response.parts:
            if isinstance(part, bytes):
                writer.write(part)
                await self._drained(writer)
            elif not await _do(part, reader, writer):
                return False
        return True

    async def _drained(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0)
        if not writer.transport.get_write_buffer_size():
            return
        draining = asyncio.ensure_future(writer.drain())
        _, late = await asyncio.wait([draining], timeout=_BLOCKED_S)
        self.blocked = bool(late)
        await draining

    def _next(self, asked: str, position: int) -> Response:
        self.asked_at.append(asyncio.get_running_loop().time())
        if self.storm is not None:
            self.asked.append(asked)
            return self.storm
        expected = self.script[0] if self.script else None
        if expected is None or expected.to != asked or (asked == "watch" and not self._resumes(expected, position)):
            self.wrong.append(f"{asked} {position}, and expected was {expected and (expected.to, expected.since)}")
            return silent(asked)
        if asked != "watch" and expected.since:
            self._floor = expected.since
        if asked == "watch":
            self.positions.append(position)
        self.asked.append(f"{asked} {expected.since}" if asked == "watch" else asked)
        return self.script.popleft()

    def _resumes(self, expected: Response, position: int) -> bool:
        """Whether nothing is skipped, and nothing asked again from before the last list."""
        return self._floor <= position <= (expected.since or position)


def _name(query: dict[str, str]) -> str:
    if query.get("watch") != "true":
        return f"list {query.get('continue', '')}".strip()
    return "initial" if query.get("sendInitialEvents") == "true" else "watch"


async def _do(part: Part, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Do one part; return False when the connection is over."""
    match part:
        case asyncio.Event():
            await part.wait()
        case Ending.HOLD:
            return bool(await reader.read())
        case Ending.CHATTER:
            while True:
                try:
                    async with asyncio.timeout(_CHATTER_S):
                        return bool(await reader.read(1))
                except TimeoutError:
                    writer.write(chunk(b"\n"))
        case Ending.RESET:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        case Ending.FIN:
            return False
        case _:
            assert callable(part)
            part()
    return True
