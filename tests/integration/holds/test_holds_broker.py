"""Holds over a real nats-server: several holders, one that dies, nobody at all."""

import asyncio
import signal

import pytest

from shared.broker import BrokerSettings
from shared.errors import PermanentError
from shared.holds import PARTS, HoldClient, HoldServer, Outcome, Patience
from shared.objects import Kind
from shared.streams import ensure_streams, stream_names
from shared.subjects import Subjects
from tests.eventually import eventually
from tests.integration.holds.holding import CLUSTER_ID, SUBJECTS, Keeper, connected, held, id_of, mortal


async def test_every_holder_answers_also_one_that_holds_nothing(serve, holders):
    await serve("pod-1", producer=Keeper(held(7), held(9, Kind.LLMISVC)))
    await serve("pod-2", sweep=Keeper())
    answers = {answer.holder: answer for answer in await holders.ask()}
    assert [(hold.kind, hold.count) for hold in answers["pod-1"].holds] == [(Kind.ISVC, 7), (Kind.LLMISVC, 9)]
    assert (answers["pod-2"].parts, answers["pod-2"].holds) == (("sweep",), ())
    assert {answer.cluster_id for answer in answers.values()} == {CLUSTER_ID}


async def test_a_release_ends_that_hold_and_no_other(serve, holders):
    first, second = Keeper(held(7), held(9, Kind.LLMISVC)), Keeper(held(7))
    await serve("pod-1", producer=first)
    await serve("pod-2", sweep=second)
    assert await holders.release(id_of(held(7)), ("pod-1",)) is Outcome.RELEASED
    assert (first.holds, second.holds) == ([held(9, Kind.LLMISVC)], [held(7)])


async def test_what_has_changed_since_it_was_shown_is_not_released(serve, holders):
    keeper = Keeper(held(7))
    await serve("pod-1", producer=keeper, sweep=Keeper())
    [answer] = await holders.ask()
    keeper.holds = [held(8)]
    assert await holders.release(answer.holds[0].id, ("pod-1",)) is Outcome.CHANGED
    assert keeper.holds == [held(8)]


async def test_a_holder_that_declines_has_not_released(serve, holders):
    keeper = Keeper(held(7))
    keeper.release = lambda _: False
    await serve("pod-1", producer=keeper)
    assert await holders.release(id_of(held(7)), ("pod-1",)) is Outcome.CHANGED


async def test_a_new_leader_that_holds_the_same_may_be_the_one_that_releases_it(serve, holders):
    await serve("successor", producer=Keeper(held(7)))
    assert await holders.release(id_of(held(7)), ("predecessor",)) is Outcome.RELEASED


async def test_nobody_there_is_known_at_once(broker):
    patient = HoldClient(broker, SUBJECTS, Patience(within_s=60))
    async with asyncio.timeout(5):
        assert await patient.ask() == ()
        assert await patient.release(id_of(held(7)), ("pod-1",)) is Outcome.UNKNOWN


async def test_a_holder_that_dies_in_mid_answer_leaves_those_of_the_others(server, serve, hasty):
    dying = await mortal(server, "asked")
    await serve("pod-2", sweep=Keeper(held(9)))
    assert [answer.holder for answer in await hasty.ask()] == ["pod-2"]
    assert await dying.wait() == -signal.SIGKILL


async def test_a_holder_that_dies_while_it_releases_leaves_the_outcome_open(server, serve, holders, hasty):
    dying = await mortal(server, "released")
    await serve("pod-2", sweep=Keeper())
    shown = {hold.id: answer.holder for answer in await holders.ask() for hold in answer.holds}
    assert shown == {id_of(held(7)): "mortal"}
    assert await hasty.release(id_of(held(7)), ("mortal",)) is Outcome.UNKNOWN
    assert await dying.wait() == -signal.SIGKILL


async def test_a_fault_in_a_holder_is_told_and_the_next_question_is_answered(serve, holders, hasty):
    keeper, told = Keeper(), []
    (await serve("pod-1", producer=keeper, sweep=Keeper())).on_event(told.append)
    keeper.holds = None
    assert await hasty.ask() == ()
    await eventually(lambda: told == ["TypeError"])
    keeper.holds = [held(7)]
    [answer] = await holders.ask()
    assert [hold.count for hold in answer.holds] == [7]


async def test_an_answer_that_cannot_be_read_is_an_error_and_not_silence(broker, holders):
    async def answer(message) -> None:
        await broker.client.publish(message.reply, b'{"holder": "x"}')

    await broker.client.subscribe(SUBJECTS.holds(), cb=answer)
    with pytest.raises(PermanentError, match="use the isvc-sync of the version that runs"):
        await holders.ask()


async def test_holders_answer_again_after_the_broker_was_killed(server, broker, serve, hasty):
    await serve("pod-1", producer=Keeper(held(7)), sweep=Keeper())
    await server.kill()
    await server.start()

    async def answered() -> bool:
        return broker.client.is_connected and len(await hasty.ask()) == 1

    await eventually(answered)


async def test_who_stopped_answers_no_more(broker, holders):
    answering = HoldServer(broker, SUBJECTS, CLUSTER_ID, "pod-1")
    for part in PARTS:
        answering.register(part, list, lambda _: True)
    async with answering:
        assert len(await holders.ask()) == 1
    assert await holders.ask() == ()


@pytest.mark.parametrize("broken", ["frozen", "killed", "closed for good"])
async def test_stopping_waits_for_no_broker(server, broken):
    async with connected(server) as broker:
        async with HoldServer(broker, SUBJECTS, CLUSTER_ID, "pod-1") as answering:
            answering.register("producer", list, lambda _: True)
            if broken == "frozen":
                server.pause()
            elif broken == "killed":
                await server.kill()
                await eventually(lambda: not broker.client.is_connected)
            else:
                await broker.client.close()
            async with asyncio.timeout(1):
                await answering.stop()
        if broken == "frozen":
            server.resume()


async def test_questions_and_releases_are_stored_in_no_stream(server, broker, serve, holders):
    await ensure_streams(broker.jetstream, BrokerSettings(nats_url=(server.url,), stream_max_bytes=2**26))
    await serve("pod-1", producer=Keeper(held(7)), sweep=Keeper())
    assert len(await holders.ask()) == 1
    assert await holders.release(id_of(held(7)), ("pod-1",)) is Outcome.RELEASED
    names = stream_names("isvc")
    for name in (names.events, names.dlq, names.lease):
        assert (await broker.jetstream.stream_info(name)).state.messages == 0


async def test_another_cluster_on_the_same_broker_is_not_asked(broker, serve):
    await serve("pod-1", producer=Keeper(held(7)))
    other = HoldClient(broker, Subjects("isvc", "eu", 16), Patience(within_s=0.5))
    assert await other.ask() == ()
