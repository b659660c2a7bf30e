"""The list of Services when the API server hangs, fails and comes back. In virtual time."""

import asyncio
import logging

import httpx
import pytest

from consumer.requests.exchange import REQUEST_TIMEOUT_S
from consumer.services import AGAIN_S, KEPT_S, PATIENCE_S, ServiceCatalog
from consumer.worker import AT_HAND_MAX
from shared.errors import NotSentError, UnreachableError

pytestmark = pytest.mark.looptime


class Server:
    """Lists one Service; `hangs` as an exchanger sees it, and `takes_s` for an answer. `lists`: when it was asked."""

    def __init__(self):
        self.hangs, self.fails, self.takes_s, self.lists = False, False, 0.0, []

    async def send(self, _outgoing, _budget):
        self.lists.append(now())
        await asyncio.sleep(REQUEST_TIMEOUT_S if self.hangs else self.takes_s)
        if self.hangs or self.fails:
            raise UnreachableError("no answer within 5.0 s")
        name = f"mr-{len(self.lists)}"
        item = {"metadata": {"name": name, "namespace": "kubeflow"}, "spec": {"ports": [{"port": 8080}]}}
        return httpx.Response(200, json={"items": [item]})


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def catalog(server):
    return ServiceCatalog(server, ["kubeflow"])


async def names(catalog, **asked) -> list[str]:
    return [each.name for each in await catalog.services(**asked)]


async def crowd(catalog, number=AT_HAND_MAX, **asked) -> list[float]:
    """Return after how many seconds each of a crowd had its answer."""
    began = now()

    async def one() -> float:
        await catalog.services(**asked)
        return now() - began

    return await asyncio.gather(*(one() for _ in range(number)))


@pytest.mark.parametrize("asked", [{}, {"not_older_than_s": AGAIN_S}], ids=["any", "fresh"])
async def test_when_a_list_hangs_what_is_known_is_handed_out_to_all_after_a_moment(server, catalog, asked):
    await catalog.services()
    await asyncio.sleep(KEPT_S)
    server.hangs = True
    assert await crowd(catalog, **asked) == pytest.approx([PATIENCE_S] * AT_HAND_MAX)
    assert len(server.lists) == 2
    await catalog.close()


@pytest.mark.parametrize("asked", [{}, {"not_older_than_s": AGAIN_S}], ids=["any", "fresh"])
async def test_once_a_list_has_failed_nobody_waits_for_the_next_one(server, catalog, asked):
    await catalog.services()
    await asyncio.sleep(KEPT_S)
    server.hangs = True
    await catalog.services()
    await asyncio.sleep(REQUEST_TIMEOUT_S)
    for _ in range(100):
        assert await crowd(catalog, 5, **asked) == [0.0] * 5
        await asyncio.sleep(0.3)
    await catalog.close()


async def test_a_list_that_hangs_is_asked_for_again_a_pause_after_its_end(server, catalog):
    await catalog.services()
    await asyncio.sleep(KEPT_S)
    server.hangs = True
    while len(server.lists) < 4:
        await catalog.services()
        await asyncio.sleep(0.1)
    pauses = [later - earlier for earlier, later in zip(server.lists[1:], server.lists[2:], strict=False)]
    assert pauses == pytest.approx([REQUEST_TIMEOUT_S + AGAIN_S] * 2, abs=0.2)
    await catalog.close()


async def test_after_its_return_the_list_is_read_within_a_pause_and_waited_for_again(server, catalog):
    await catalog.services()
    await asyncio.sleep(KEPT_S)
    server.fails = True
    assert await names(catalog) == ["mr-1"]
    server.fails = False
    await asyncio.sleep(AGAIN_S)
    assert await names(catalog) == ["mr-1"], "the one that is under way is not waited for"
    await asyncio.sleep(0.01)
    assert await names(catalog) == ["mr-3"]
    await asyncio.sleep(KEPT_S)
    assert await names(catalog) == ["mr-4"]


async def test_the_first_list_is_waited_for_by_all_together(server, catalog):
    server.takes_s = 3.0
    assert await crowd(catalog) == pytest.approx([3.0] * AT_HAND_MAX)
    assert len(server.lists) == 1


async def test_a_first_list_that_hangs_sends_all_away_together_and_they_are_held(server, catalog):
    server.hangs = True
    began = now()
    results = await asyncio.gather(*(catalog.services() for _ in range(AT_HAND_MAX)), return_exceptions=True)
    assert now() - began == pytest.approx(REQUEST_TIMEOUT_S)
    assert {type(each) for each in results} == {NotSentError}
    assert "no answer within 5.0 s" in str(results[0])
    assert results[0].retry_after_s == AGAIN_S
    assert len(server.lists) == 1


async def test_in_the_pause_after_a_first_list_that_failed_nobody_waits(server, catalog):
    server.fails = True
    for _ in range(10):
        began = now()
        with pytest.raises(NotSentError):
            await catalog.services()
        assert now() == began
    assert len(server.lists) == 1


async def test_whoever_is_cancelled_while_waiting_takes_the_list_from_nobody(server, catalog):
    server.takes_s = 3.0
    impatient, patient = (asyncio.create_task(catalog.services()) for _ in range(2))
    await asyncio.sleep(1.0)
    impatient.cancel()
    assert [each.name for each in await patient] == ["mr-1"]


async def test_closed_it_leaves_no_task_behind(server, catalog):
    before = asyncio.all_tasks()
    server.hangs = True
    waiting = asyncio.create_task(catalog.services())
    await asyncio.sleep(1.0)
    waiting.cancel()
    await catalog.close()
    await asyncio.wait([waiting])
    assert asyncio.all_tasks() == before
    await catalog.close()


async def test_a_fault_of_this_program_is_logged_and_tried_again(server, catalog, caplog):
    await catalog.services()
    await asyncio.sleep(KEPT_S)
    good, server.send = server.send, None
    assert await names(catalog) == ["mr-1"]
    assert caplog.records[0].exc_info is not None
    server.send = good
    await asyncio.sleep(AGAIN_S)
    await catalog.services()
    await asyncio.sleep(0.01)
    assert await names(catalog) == ["mr-2"]


async def test_one_line_says_when_lists_begin_to_fail_and_one_when_they_are_well(server, catalog, caplog):
    with caplog.at_level(logging.INFO, "consumer"):
        await catalog.services()
        await asyncio.sleep(KEPT_S)
        server.fails = True
        for _ in range(20):
            await catalog.services()
            await asyncio.sleep(1.0)
        server.fails = False
        for _ in range(20):
            await catalog.services()
            await asyncio.sleep(1.0)
    assert [each.getMessage() for each in caplog.records] == [
        "registries' Services cannot be read, the last ones count",
        "registries' Services can be read again",
    ]
