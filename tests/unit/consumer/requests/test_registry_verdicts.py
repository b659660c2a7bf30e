"""Every error that was recorded from a real registry, byte for byte through the adapter, to its named verdict.

`test_registry_errors.py` says what each means; here the recorded answers travel the whole way: HTTP client, API
version, circuit, classification, the port's methods, and the verdict on the message at hand.
"""

import json
from typing import Any

import httpx
import pytest

from consumer.actions import UpdateRecord
from consumer.registry import ModelRegistry
from consumer.requests.circuit import Bearing
from consumer.requests.registry_errors import Answer, Request, RequestKind, bearing_of, classify
from consumer.verdict import LOOK_AGAIN_S, Bury, Retry, verdict
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError, UnreachableError
from tests.unit.consumer.requests.recorded_errors import CLASSES, RECORDED, RECORDING, expected
from tests.unit.consumer.requests.registry_script import ANY_VERSION, EMPTY_PAGE, Script, creation, ok, plenty

# The name of each verdict; the letters are those of the table of recorded errors.
NAMES = {
    "N": "believed absence",
    "A": "ambiguous name: list and compare",
    "U": "unproven absence: look again",
    "V": "another API version: probe again",
    "P": "permanent: dead letter",
    "C": "conflict: read again",
    "T": "transient: try again",
}
BURIED = {"P"}
AT_ONCE = {"N", "C"}


def told(answer: Answer) -> httpx.Response:
    return httpx.Response(answer.status, headers={"Content-Type": answer.content_type}, content=answer.body)


def telling(*answers: httpx.Response) -> ModelRegistry:
    """Return a registry that gives these answers, after the one to the question for its API version."""
    return Script(ok(EMPTY_PAGE), *answers).registry(ANY_VERSION)


def with_verdicts() -> list[Any]:
    return [
        pytest.param(
            asked, answer, expected(case)[step], id=f"{param.id}-{NAMES[expected(case)[step]].partition(':')[0]}"
        )
        for param in RECORDED
        for case, step, asked, answer in [param.values]
    ]


@pytest.mark.parametrize(("asked", "answer", "letter"), with_verdicts())
async def test_recorded_bytes_come_to_their_verdict(asked, answer, letter):
    script = Script(ok(EMPTY_PAGE), told(answer))
    with pytest.raises(CLASSES[letter]) as raised:
        await script.client(ANY_VERSION).call(asked, plenty)
    assert type(raised.value) is CLASSES[letter]
    assert script.replies == []
    decision = verdict(raised.value, 1, 0.5)
    if letter in BURIED:
        assert isinstance(decision, Bury)
    else:
        assert isinstance(decision, Retry)
        assert (decision.delay_s == LOOK_AGAIN_S) is (letter in AT_ONCE)
        assert isinstance(verdict(raised.value, 10**6, 0.5), Retry), "no number of tries buries"


def test_every_recorded_error_has_a_verdict_and_no_status_is_missing():
    recorded = [json.loads(line)["response"] for line in RECORDING.read_text().splitlines()]
    errors = [response for response in recorded if response.get("status", 0) >= 400]
    assert len(errors) == len(RECORDED) == 153
    assert {response["status"] for response in errors} == {400, 404, 405, 409, 422, 500, 503}
    assert {expected(param.values[0])[param.values[1]] for param in RECORDED} == set(NAMES)


async def test_the_recorded_connection_that_was_closed_without_an_answer_is_tried_again():
    recorded = [json.loads(line)["response"] for line in RECORDING.read_text().splitlines()]
    assert sum(response.get("closed", False) for response in recorded) == 1
    closed = httpx.RemoteProtocolError("Server disconnected without sending a response.")
    with pytest.raises(UnreachableError) as raised:
        await Script(closed).client().call(Request(RequestKind.CREATE_RECORD, "POST", "/inference_services"), plenty)
    assert isinstance(verdict(raised.value, 1, 0.5), Retry)


# --- what the methods of the port make of them ---


def recorded(*kinds: RequestKind) -> list[Any]:
    return [
        pytest.param(answer, expected(case)[step], id=param.id)
        for param in RECORDED
        for case, step, asked, answer in [param.values]
        if asked.kind in kinds
    ]


async def ask(registry: ModelRegistry, letter: str, call: Any) -> None:
    with pytest.raises(CLASSES[letter]):
        await call(registry)


@pytest.mark.parametrize(("answer", "letter"), recorded(RequestKind.FIND))
async def test_a_find_says_none_only_for_a_believed_absence(answer, letter):
    registry = telling(told(answer))
    if letter == "N":
        assert await registry.find_record("kserve:5a1e/1") is None
    else:
        await ask(registry, letter, lambda it: it.find_record("kserve:5a1e/1"))


@pytest.mark.parametrize(("answer", "letter"), recorded(RequestKind.CREATE_RECORD))
async def test_a_create_is_never_taken_for_done(answer, letter):
    await ask(telling(told(answer)), letter, lambda it: it.create_record(creation(), "11"))


@pytest.mark.parametrize(("answer", "letter"), recorded(RequestKind.UPDATE))
async def test_an_update_is_never_taken_for_done(answer, letter):
    change = UpdateRecord("17", deployed=False, properties={}, reason="x")
    await ask(telling(told(answer)), letter, lambda it: it.update_record(change))


def outage(kind: str, path: str) -> httpx.Response:
    """Return the recorded answer to a path during an outage."""
    for line in RECORDING.read_text().splitlines():
        exchange = json.loads(line)
        if exchange.get("during") == kind and exchange["request"]["path"].endswith(path):
            response = exchange["response"]
            content = json.dumps(response["body"]).encode() if "body" in response else response["text"].encode()
            return httpx.Response(response["status"], headers=response["headers"], content=content)
    raise LookupError(path)


@pytest.mark.parametrize("kind", ["database stopped", "database refuses connections"])
async def test_a_model_that_an_outage_hides_is_not_believed_to_be_missing(kind):
    by_id, listing = outage(kind, "/registered_models/1"), outage(kind, "/inference_services?pageSize=1")
    assert (by_id.status_code, listing.status_code) in {(404, 500), (404, 400)}
    with pytest.raises(TransientError):
        await telling(by_id, listing).model_exists("1")
    with pytest.raises(TransientError):
        await telling(by_id, listing).model_of_version("1")


# --- what each says of the registry's health ---


@pytest.mark.parametrize(
    ("letter", "bearing"),
    [
        ("N", Bearing.WELL),
        ("A", Bearing.WELL),
        ("C", Bearing.WELL),
        ("P", Bearing.WELL),
        ("U", Bearing.NOTHING),
        ("V", Bearing.NOTHING),
        ("T", Bearing.ILL),
    ],
    ids=NAMES.get,
)
def test_what_a_recorded_error_says_of_health(letter, bearing):
    said = set()
    for param in RECORDED:
        case, step, asked, answer = param.values
        error = classify(asked, answer)
        if expected(case)[step] == letter and asked.kind is not RequestKind.CREATE_RECORD:
            said.add(bearing_of(asked, error))
    assert said == {bearing}


def test_a_create_whose_environment_is_missing_says_nothing_of_health():
    create = Request(RequestKind.CREATE_RECORD, "POST", "/inference_services")
    assert bearing_of(create, NotFoundError("x")) is Bearing.NOTHING
    assert bearing_of(create, ConflictError("x")) is Bearing.WELL
    assert bearing_of(create, PermanentError("x")) is Bearing.WELL
