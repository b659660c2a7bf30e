"""Send the recorded requests to a registry and compare the answers (rules: recordings/README.md)."""

import asyncio
import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from sandbox.registry import RegistryServer

RECORDING = Path(__file__).parent / "recordings" / "registry-v1alpha3.jsonl"
DATABASE = {
    None: "well",
    "database stopped": "stopped",
    "database refuses connections": "refusing",
    "database never reached since start": "never_reached",
}
COMPARED_HEADERS = {"content-type", "allow", "x-content-type-options", "location", "etag", "content-encoding"}
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{13}")

Exchange = dict[str, Any]


def exchanges() -> list[Exchange]:
    return [json.loads(line) for line in RECORDING.read_text().splitlines()]


async def replay(server: RegistryServer) -> dict[str, list[str]]:
    """Return the differences of each case, by its name; an empty list is a case that passed."""
    differences: dict[str, list[str]] = {exchange["case"]: [] for exchange in exchanges()}
    async with aiohttp.ClientSession(auto_decompress=False) as client:
        for group in steps():
            first = group[0]
            server.switch(database=DATABASE[first.get("during")])
            found = await (
                _race(client, server.url, group) if "concurrent" in first else _one(client, server.url, first)
            )
            differences[first["case"]] += [f"step {first['step']}: {problem}" for problem in found]
    return differences


def steps() -> Iterator[list[Exchange]]:
    """Single exchanges, and the lines of one race together."""
    for _, group in groupby(enumerate(exchanges()), key=lambda at: at[1]["case"] if "concurrent" in at[1] else at[0]):
        yield [exchange for _, exchange in group]


async def _one(client: aiohttp.ClientSession, url: str, exchange: Exchange) -> list[str]:
    got = await _send(client, url, exchange["request"])
    return list(_differences(exchange, _expanded(exchange["response"]), got))


async def _race(client: aiohttp.ClientSession, url: str, group: list[Exchange]) -> list[str]:
    template = json.dumps(group[0]["request"])
    requests = [
        json.loads(re.sub(r'"(race-|k)\d+"', rf'"\g<1>{number}"', template)) for number in range(group[0]["concurrent"])
    ]
    answers = await asyncio.gather(*(_send(client, url, request) for request in requests))
    wanted = {exchange["response"]["status"]: exchange["times"] for exchange in group}
    got = Counter(answer["status"] for answer in answers)
    return [] if got == wanted else [f"answers by status {dict(got)}, recorded {wanted}"]


async def _send(client: aiohttp.ClientSession, url: str, request: dict[str, Any]) -> dict[str, Any]:
    headers = request.get("headers", {"Content-Type": "application/json"})
    text = json.dumps(_expanded(request["body"])) if "body" in request else request.get("text", "")
    target = URL(url + request["path"], encoded=True)
    skip = ["Content-Type"] if "Content-Type" not in headers else []
    try:
        async with client.request(
            request["method"], target, data=text.encode() or None, headers=headers, skip_auto_headers=skip
        ) as response:
            kept: dict[str, str] = {}
            for name, value in response.headers.items():
                if name.lower() in COMPARED_HEADERS:
                    kept[name.lower()] = f"{kept[name.lower()]}, {value}" if name.lower() in kept else value
            answer = {"status": response.status, "headers": kept, "text": (await response.read()).decode()}
    except aiohttp.ServerDisconnectedError:
        return {"closed": True, "status": None}
    if answer["headers"].get("content-type", "").startswith("application/json"):
        answer["body"] = json.loads(answer.pop("text"))
    return answer


def _expanded(value: Any) -> Any:
    match value:
        case {"$repeat": str(text), "times": int(times)}:
            return text * times
        case dict():
            return {key: _expanded(item) for key, item in value.items()}
        case list():
            return [_expanded(item) for item in value]
        case _:
            return value


def _differences(exchange: Exchange, wanted: dict[str, Any], got: dict[str, Any]) -> Iterator[str]:
    if wanted.get("closed") or got.get("closed"):
        if wanted.get("closed") != got.get("closed"):
            yield f"closed without an answer: {got.get('closed', False)}"
        return
    if got["status"] != wanted["status"]:
        yield f"status {got['status']}, recorded {wanted['status']}"
    if _headers(got["headers"]) != _headers(wanted["headers"]):
        yield f"headers {got['headers']}, recorded {wanted['headers']}"
    either_field = exchange["request"].get("body", {}) is None  # a null body misses two required fields
    for part in ("body", "text"):
        if (want := wanted.get(part, "")) != (have := got.get(part, "")):
            yield from _value_differences(part, _normal(want, either_field), _normal(have, either_field))


def _headers(headers: dict[str, str]) -> dict[str, Any]:
    return {name: set(value.split(", ")) if name == "allow" else value for name, value in headers.items()}


def _value_differences(at: str, wanted: Any, got: Any) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in sorted(wanted.keys() | got.keys()):
            yield from _value_differences(f"{at}.{key}", wanted.get(key, "(absent)"), got.get(key, "(absent)"))
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, (want, have) in enumerate(zip(wanted, got, strict=True)):
            yield from _value_differences(f"{at}[{index}]", want, have)
    elif wanted != got:
        yield f"{at} is {got!r}, recorded {wanted!r}"


def _normal(value: Any, either_field: bool) -> Any:
    """The value with everything that may differ replaced by its shape."""
    match value:
        case dict():
            shaped = {key: _normal(_shape(key, item), either_field) for key, item in value.items()}
            if "createTimeSinceEpoch" in value:
                shaped["(updated)"] = value["createTimeSinceEpoch"] < value["lastUpdateTimeSinceEpoch"]
            survivors = [key for key in value if re.fullmatch(r"k\d+", key)]
            return {("(the key that is left)" if survivors == [key] else key): item for key, item in shaped.items()}
        case list():
            return [_normal(item, either_field) for item in value]
        case str():
            text = re.sub(r"failed to connect to .*", "failed to connect", value)
            return re.sub(r"required field '\w+'", "required field", text) if either_field else text
        case _:
            return value


def _shape(key: str, value: Any) -> Any:
    match key:
        case "createTimeSinceEpoch" | "lastUpdateTimeSinceEpoch" if TIME.fullmatch(value):
            return "(time)"
        case "name" if UUID.fullmatch(value):
            return "(uuid)"
        case "nextPageToken" if value:
            return re.sub(r":\d{13}$", ":(time)", base64.b64decode(value).decode())
        case "timestamp" if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value):
            return "(timestamp)"
        case "check_duration_ms" if isinstance(value, int):
            return "(duration)"
        case _:
            return value
