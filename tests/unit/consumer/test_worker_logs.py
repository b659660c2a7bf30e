"""Every line that is logged while a message is at hand says which one that is: `record --log` lives on it."""

import asyncio
import io
import json
import logging

import pytest

from consumer.delivery.workqueue import WorkQueue
from consumer.verdict import Ack
from consumer.worker import Worker
from shared.logs import LogSettings, set_up_logging
from tests.unit.consumer.custody import sole_owner
from tests.unit.consumer.deliveries import look_work, small_work
from tests.unit.consumer.working import running
from tests.unit.consumer.worlds import KEY, PREFIX

pytestmark = pytest.mark.looptime(start=0)


@pytest.fixture
def log():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up_logging(LogSettings(log_format="json", log_level="DEBUG"), stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)


async def handled(*works) -> None:
    async def handle(work) -> Ack:
        logging.getLogger("deep").info("at work", extra={"own": work.message.sequence})
        await asyncio.sleep(0.1)
        logging.getLogger("deep").info("at work", extra={"own": work.message.sequence})
        await work.message.ack()
        return Ack()

    worker = Worker(WorkQueue(PREFIX), sole_owner())
    async with running(worker, handle):
        for work in works:
            worker.offer(work)
        await asyncio.sleep(2)


async def test_lines_name_object_message_and_state_however_many_are_at_hand(log):
    await handled(small_work(7, name="a", sequence=1), small_work(8, name="b", uid="other", sequence=2))
    lines = log()
    assert [line["own"] for line in lines] == [1, 2, 1, 2], "both were at hand at once"
    assert {(line["object"], line["sequence"], line["resource_version"], line["attempt"]) for line in lines} == {
        ("isvc/team-a/a", 1, "7", 1),
        ("isvc/team-a/b", 2, "8", 1),
    }
    assert not any("look" in line for line in lines)


async def test_a_look_says_that_it_is_one_and_has_no_state(log):
    await handled(look_work(KEY, sequence=9))
    assert {(line["object"], line["sequence"], line["look"]) for line in log()} == {(str(KEY), 9, True)}
    assert not any("resource_version" in line for line in log())


async def test_a_message_whose_place_was_taken_is_said_to_be_acknowledged_with_its_own_number(log):
    await handled(small_work(1), small_work(2), small_work(3))
    acknowledged = [line for line in log() if line["message"] == "acknowledged"]
    assert [(line["sequence"], line["resource_version"]) for line in acknowledged] == [(1, "1"), (2, "2")]
    assert {line["reason"] for line in acknowledged} == {"a newer state was handled in its place"}
