"""The whole producer against a real broker and the sandbox's Kubernetes API: what it publishes, and what not."""

from shared.events import decode
from tests.eventually import eventually
from tests.integration.producer.published import len_is, relabel
from tests.integration.producer.worlds import isvc


async def last_of(world, name):
    return (await world.events(name))[-1]


async def test_what_exists_at_the_first_start_is_published_once_and_then_announced(world):
    world.cluster.create(isvc("a", model="1"))
    world.cluster.create(isvc("b"))
    async with world.producing():
        subjects = [message.subject for message in await world.messages()]
        assert [event.synthetic for event in await world.events()] == [True, True]
        assert await world.said() == ["created", "created"]
        assert subjects.index("isvc.test.sync.isvc") > 1
    async with world.producing():
        assert await world.said() == ["created", "created"]


async def test_live_changes_are_published_in_order_with_their_trace(world):
    async with world.producing():
        world.cluster.create(isvc("a", model="1"))
        relabel(world, "a", "7")
        world.cluster.delete("InferenceService", "ns", "a")
        await eventually(lambda: world.events("a"))
        await eventually(lambda: len_is(world, "a", 3))
    events = await world.events("a")
    assert [event.type.value for event in events] == ["created", "updated", "deleted"]
    assert [event.synthetic for event in events] == [False] * 3
    assert {event.models for event in events} == {("1",)}
    traces = {
        message.headers["traceparent"].split("-")[1] for message in await world.messages() if ".evt." in message.subject
    }
    assert len(traces) == 3


async def test_changes_that_say_nothing_are_not_published(world):
    async with world.producing():
        world.cluster.create(isvc("a"))
        world.cluster.patch("InferenceService", ("ns", "a"), {"metadata": {"annotations": {"foreign": "x"}}})
        world.cluster.patch("InferenceService", ("ns", "a"), {"status": {"observedGeneration": 3}}, part="status")
        relabel(world, "a", "7")
        await eventually(lambda: len_is(world, "a", 2))
    assert await world.said("a") == ["created", "updated"]


async def test_R27_R28_what_happens_while_no_producer_runs_is_found(world):
    for name in ("changed", "deleted", "recreated", "same"):
        world.cluster.create(isvc(name, model="1"))
    async with world.producing():
        pass
    relabel(world, "changed", "7")
    for name in ("deleted", "recreated"):
        world.cluster.delete("InferenceService", "ns", name)
    world.cluster.create(isvc("recreated", model="2"))
    world.cluster.create(isvc("new"))
    before = {event.key.name: event for event in await world.events()}
    async with world.producing():
        pass
    assert await world.said("changed") == ["created", "updated"]
    assert await world.said("deleted") == ["created", "deleted"]
    assert await world.said("recreated") == ["created", "deleted", "created"]
    assert await world.said("same") == ["created"]
    assert await world.said("new") == ["created"]
    created, deleted, again = await world.events("recreated")
    assert (created.uid, created.models) == (deleted.uid, deleted.models)
    assert again.uid != created.uid
    assert (await last_of(world, "deleted")).uid == before["deleted"].uid


async def test_R27_a_tombstone_has_the_last_published_body_and_names_what_it_corrects(world):
    world.cluster.create(isvc("a", model="5"))
    async with world.producing():
        pass
    world.cluster.delete("InferenceService", "ns", "a")
    world.cluster.create(isvc("b"))
    async with world.producing():
        pass
    messages = [m for m in await world.messages() if m.subject.endswith(".a")]
    assert decode(messages[-1].headers).corrects == messages[0].seq
    assert messages[-1].data == messages[0].data


async def test_kinds_are_followed_side_by_side(world):
    async with world.producing():
        world.cluster.create(isvc("same"))
        world.cluster.create(isvc("same", kind="LLMInferenceService"))
        await eventually(lambda: len_is(world, "same", 2))
    assert {event.key.kind.value for event in await world.events("same")} == {"isvc", "llmisvc"}
