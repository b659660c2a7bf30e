"""Dead letters on a real broker: nothing gets lost in a burial, and an entry is found and cleared again."""

import asyncio
from urllib.parse import unquote

import pytest

from consumer.delivery.deadletters import DeadLetterStream
from shared.errors import TransientError, UnreachableError
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects

STREAM = "ISVC_DLQ"
SUBJECTS = Subjects(prefix="isvc", cluster="prod", shards=16)
KEY = ObjectKey(Kind.ISVC, "team-a", "fraud")
DOTTED = ObjectKey(Kind.LLMISVC, "team-a", "llama.3.1")
HEADERS = {
    "ce-id": "u1:1:7:abcdef01:u",
    "ce-kind": "isvc",
    "Nats-Msg-Id": "u1:1:7:abcdef01:u",
    "traceparent": "00-1-2-01",
}


@pytest.fixture
async def dead_letters(broker):
    return DeadLetterStream(broker, SUBJECTS, STREAM)


async def entry(broker, key=KEY):
    return await broker.jetstream.get_msg(STREAM, subject=SUBJECTS.dead_letter(key))


async def stored(broker):
    return (await broker.jetstream.stream_info(STREAM)).state.messages


async def test_an_entry_is_the_original_message_with_its_reason(dead_letters, broker):
    reason = 'model "7" gibt es nicht: für immer'
    await dead_letters.bury(KEY, HEADERS | {"isvc-seq": "41"}, b'{"kind": "InferenceService"}', reason)
    found = await entry(broker)
    assert found.data == b'{"kind": "InferenceService"}'
    kept = {name: value for name, value in HEADERS.items() if name != "Nats-Msg-Id"}
    assert {name: found.headers[name] for name in kept} == kept
    assert found.headers["isvc-seq"] == "41"
    assert found.headers["isvc-reason"].isascii()
    assert unquote(found.headers["isvc-reason"]) == reason


async def test_the_dedupe_window_does_not_swallow_a_second_burial(dead_letters, broker):
    await dead_letters.bury(KEY, HEADERS, b"first", "bad")
    await dead_letters.clear(KEY)
    await dead_letters.bury(KEY, HEADERS, b"second", "bad again")
    assert (await entry(broker)).data == b"second"


async def test_an_object_has_one_entry_the_newest(dead_letters, broker):
    for body in (b"first", b"second"):
        await dead_letters.bury(KEY, HEADERS, body, "bad")
    assert (await entry(broker)).data == b"second"
    assert (await stored(broker), dead_letters.count) == (1, 1)


async def test_orders_to_the_server_in_the_original_headers_are_not_repeated(dead_letters, broker):
    await dead_letters.bury(KEY, {}, b"other", "bad")
    hostile = {"Nats-Rollup": "all", "nats-expected-last-sequence": "99", "Nats-Expected-Stream": "OTHER"}
    await dead_letters.bury(DOTTED, hostile, b"poison", "bad")
    assert (await entry(broker, DOTTED)).data == b"poison"
    assert (await entry(broker)).data == b"other"


async def test_a_header_that_nats_cannot_send_does_not_prevent_the_burial(dead_letters, broker):
    await dead_letters.bury(KEY, {"bad name": "x", "": "y", "good": "a\r\nb"}, b"poison", "bad")
    assert (await entry(broker)).headers["good"] == "a  b"


async def test_a_message_that_grew_too_large_is_buried_without_its_body(dead_letters, broker):
    await dead_letters.bury(KEY, {"isvc-seq": "41"}, b"x" * (64 * 1024 - 50), "bad")
    found = await entry(broker)
    assert (found.data or b"", found.headers["isvc-truncated"], found.headers["isvc-seq"]) == (b"", "true", "41")
    assert broker.client.stats["reconnects"] == 0


async def test_the_largest_message_that_fits_keeps_its_body(dead_letters, broker):
    await dead_letters.bury(KEY, {}, b"x" * (64 * 1024 - 200), "bad")
    assert len((await entry(broker)).data) == 64 * 1024 - 200


async def test_a_reason_without_end_is_cut(dead_letters, broker):
    await dead_letters.bury(KEY, {}, b"", "ü" * 100_000)
    assert len(unquote((await entry(broker)).headers["isvc-reason"])) == 1000


async def test_clearing_removes_the_entry_of_that_object_only(dead_letters, broker):
    await dead_letters.bury(KEY, HEADERS, b"a", "bad")
    await dead_letters.bury(DOTTED, HEADERS, b"b", "bad")
    await dead_letters.clear(KEY)
    assert dead_letters.entries() == {DOTTED}
    assert await stored(broker) == 1
    assert (await entry(broker, DOTTED)).data == b"b"


async def test_clearing_what_has_no_entry_costs_no_call(dead_letters, broker):
    await dead_letters.load()
    before = broker.client.stats["out_msgs"]
    await dead_letters.clear(KEY)
    assert broker.client.stats["out_msgs"] == before


async def test_entries_of_an_earlier_process_are_known_after_load(dead_letters, broker):
    await dead_letters.bury(KEY, HEADERS, b"a", "bad")
    await dead_letters.bury(DOTTED, HEADERS, b"b", "bad")
    await dead_letters.bury_unknown("isvc.prod.evt.3.strange", {}, b"c", "no subject of ours")
    await DeadLetterStream(broker, Subjects("isvc", "other", 16), STREAM).bury(KEY, HEADERS, b"d", "bad")
    successor = DeadLetterStream(broker, SUBJECTS, STREAM)
    await successor.load()
    assert successor.entries() == {KEY, DOTTED}
    assert successor.count == 3
    await successor.clear(DOTTED)
    assert await stored(broker) == 3


async def test_an_empty_stream_has_no_entries(dead_letters):
    await dead_letters.load()
    assert (dead_letters.entries(), dead_letters.count) == (frozenset(), 0)


async def test_loading_again_forgets_what_others_cleared(dead_letters, broker):
    await dead_letters.bury(KEY, HEADERS, b"a", "bad")
    assert await broker.jetstream.purge_stream(STREAM)
    await dead_letters.load()
    assert dead_letters.count == 0


class SlowList:
    """The broker, but something happens between its list of subjects and our receipt of it."""

    def __init__(self, broker, meanwhile):
        self._real = broker
        self._meanwhile = meanwhile
        self.max_payload_bytes = broker.max_payload_bytes
        self.jetstream = self
        self.publish = broker.jetstream.publish

    async def stream_info(self, name, subjects_filter):
        info = await self._real.jetstream.stream_info(name, subjects_filter)
        await self._meanwhile()
        return info


async def test_a_burial_while_loading_stays_known(broker):
    async def meanwhile():
        await dead_letters.bury(KEY, HEADERS, b"a", "bad")
        await dead_letters.bury_unknown("strange", HEADERS, b"a", "bad")

    dead_letters = DeadLetterStream(SlowList(broker, meanwhile), SUBJECTS, STREAM)
    await dead_letters.load()
    assert (dead_letters.entries(), dead_letters.count) == ({KEY}, 2)


async def test_a_strange_subject_has_one_entry_of_its_own(dead_letters, broker):
    for body in (b"first", b"second"):
        await dead_letters.bury_unknown("isvc.prod.evt.3.>strange", {"a": "b"}, body, "no subject of ours")
    found = await broker.jetstream.get_msg(STREAM, subject="isvc.prod.dlq.unknown.isvc=2Eprod=2Eevt=2E3=2E=3Estrange")
    assert (found.data, found.headers["a"]) == (b"second", "b")
    assert (dead_letters.count, dead_letters.entries()) == (1, frozenset())


async def test_an_entry_whose_subject_does_not_decode_counts_as_unknown(dead_letters, broker):
    await broker.jetstream.publish("isvc.prod.dlq.isvc.team=FF.fraud", b"")
    await dead_letters.load()
    assert (dead_letters.count, dead_letters.entries()) == (1, frozenset())


async def test_without_the_stream_the_broker_counts_as_unreachable(dead_letters, broker):
    assert await broker.jetstream.delete_stream(STREAM)
    with pytest.raises(UnreachableError, match=r"burying a message as isvc\.prod\.dlq\.isvc\.team-a\.fraud"):
        await dead_letters.bury(KEY, HEADERS, b"a", "bad")


async def test_a_refusal_is_no_reason_to_give_up(dead_letters, broker):
    config = (await broker.jetstream.stream_info(STREAM)).config
    await broker.jetstream.update_stream(config, max_msg_size=10)
    with pytest.raises(TransientError, match="burying a message"):
        await dead_letters.bury(KEY, HEADERS, b"x" * 100, "bad")


async def test_what_may_have_been_buried_unconfirmed_is_cleared_all_the_same(dead_letters, broker):
    config = (await broker.jetstream.stream_info(STREAM)).config
    await broker.jetstream.update_stream(config, no_ack=True)  # stored, and the confirmation is lost
    burial = asyncio.create_task(dead_letters.bury(KEY, HEADERS, b"a", "bad"))
    async with asyncio.timeout(10):
        while True:
            if await stored(broker) == 1:
                break
            await asyncio.sleep(0.005)
    burial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await burial
    await dead_letters.clear(KEY)
    assert await stored(broker) == 0


async def test_clearing_when_the_stream_is_gone_is_transient_and_may_be_repeated(dead_letters, broker):
    await dead_letters.bury(KEY, HEADERS, b"a", "bad")
    assert await broker.jetstream.delete_stream(STREAM)
    with pytest.raises(TransientError, match="clearing the dead letter of isvc/team-a/fraud"):
        await dead_letters.clear(KEY)
    assert dead_letters.entries() == {KEY}
