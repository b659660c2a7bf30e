"""The initial state and lists that are cut, mixed, empty or older than what is known: only a complete one concludes."""

import msgspec
import pytest

from producer import relay
from tests.eventually import eventually
from tests.integration.producer.scripted import (
    CHATTER,
    END,
    EXPIRED,
    FIN,
    HOLD,
    NO_WATCH_LIST,
    RESET,
    error,
    initial,
    listing,
    refusal,
    watch,
)

GARBAGE = b"{]\n"
CUTS = [
    (END,),
    (FIN,),
    (RESET,),
    (HOLD,),
    (error(410, "Expired"), HOLD),
    (error(429, "TooManyRequests"), HOLD),
    (GARBAGE, HOLD),
    (b'{"type":"ADD', END),
]


async def test_R06_R07_an_initial_state_cut_short_concludes_nothing_and_starts_again(stage, cluster):
    stage.lose_patience_after(0.3)
    script = [initial(cluster.version, cluster.initial(), cluster.create("d"))]
    expected = ["created 11!"]
    for number, (*more, end) in enumerate(CUTS):
        cluster.modify("a", model=str(20 + number))  # the newest, and the first by name
        expected += [f"updated {cluster.version}!"]
        script += [EXPIRED, initial(0, cluster.state("a"), *more, end=end)]
        script += [initial(cluster.version, cluster.initial(), cluster.recreate("d"))]
    await stage.perform(*script, watch(cluster.version, cluster.delete("d"), end=CHATTER))
    assert await stage.said("a") == expected
    assert await stage.said("b") == ["created 12!"]


async def test_R01_R07_an_initial_state_cut_again_and_again_is_read_in_pages(stage, cluster):
    pages = [listing(13, cluster.page("a", "b", token="t")), listing(13, cluster.page("c"), "t")]
    cut = initial(0, cluster.state("a"))
    await stage.perform(cut, cut, *pages, watch(13, cluster.delete("b"), end=CHATTER))
    assert await stage.said("b") == ["created 12!", "deleted 14"]


async def test_R06_the_position_is_that_of_the_end_bookmark_and_not_of_an_object(stage, cluster):
    cluster.modify("a", model="2")
    cluster.bookmark()
    start = initial(cluster.version, cluster.initial())
    await stage.perform(start, watch(cluster.version, cluster.delete("c"), end=CHATTER))
    assert stage.server.positions == [15]


async def test_R06_R25_a_delete_in_the_initial_stream_is_a_delete(stage, cluster):
    first = cluster.state("a", "b", "c")
    deleted, again = cluster.delete("b"), cluster.create("b")
    await stage.perform(initial(cluster.version, first + deleted + again + cluster.initial(), end=CHATTER))
    assert await stage.said("b") == ["created 12!", "deleted 14", "created 15!"]


async def test_R03_410_on_a_page_begins_at_the_first_page_and_never_follows_its_token(stage, cluster):
    expired = refusal("list t", 410, "Expired", **{"continue": "inconsistent"})
    first = listing(cluster.version, cluster.page("a", token="t"))
    cluster.delete("a")
    again = [listing(14, cluster.page("b", token="u")), listing(14, cluster.page("c"), "u")]
    await stage.perform(NO_WATCH_LIST, first, expired, *again, watch(14, cluster.modify("b", model="5"), end=CHATTER))
    assert await stage.said("a") == ["created 11!", "deleted 14!"]


async def test_R04_pages_of_different_versions_are_no_list(stage, cluster):
    first = listing(0, cluster.page("a", token="t"))
    cluster.delete("a")
    cluster.create("a", model="9")
    mixed = listing(0, cluster.page("c"), "t")
    again = listing(cluster.version, cluster.page("a", "b", "c"))
    await stage.perform(NO_WATCH_LIST, first, mixed, again, watch(15, cluster.delete("c"), end=CHATTER))
    assert stage.counted("inconsistent") == 1
    assert await stage.said("a") == ["created 11!", "deleted 15!", "created 15!"]


NO_LISTS = [
    b"<html>",
    b'{"kind":"Status","metadata":{}}',
    b'{"kind":"InferenceServiceList","metadata":{},"items":[]}',
    b'{"kind":"InferenceServiceList","metadata":{"resourceVersion":"0"},"items":[]}',
    b'{"kind":"InferenceServiceList","metadata":{"resourceVersion":"14"},"items":[',
    b'{"kind":"InferenceServiceList","metadata":{"resourceVersion":"14"},"items":[' + b"[" * 5000 + b"]" * 5000 + b"]}",
    b"",
]


async def test_R04_R20_what_is_no_list_deletes_nothing(stage, cluster):
    script = [NO_WATCH_LIST, listing(13, cluster.page("a", "b", "c")), watch(13, cluster.modify("a", model="2"))]
    for body in NO_LISTS:
        cluster.modify("c", model=str(cluster.version))
        again = listing(cluster.version, cluster.page("a", "b", "c"))
        script += [EXPIRED, listing(0, body), again, watch(cluster.version, cluster.modify("a", model="1"))]
        script[-1:] += [watch(cluster.version, cluster.modify("a", model="2"))]
    await stage.perform(*script, watch(cluster.version, cluster.delete("c"), end=CHATTER))
    assert "deleted" not in {event.type for event in await stage.world.events("b")}
    assert stage.counted("malformed") == len(NO_LISTS)


async def test_R08_R36_items_without_kind_get_it_from_the_list(stage, cluster):
    page = msgspec.json.decode(cluster.page("a", "b", "c"))
    for item in page["items"]:
        del item["apiVersion"], item["kind"]
        item["metadata"]["managedFields"] = [{"manager": "m"}]
    last = watch(13, cluster.modify("a", model="1"), end=CHATTER)  # as it was: the digest is the same
    await stage.perform(NO_WATCH_LIST, listing(13, msgspec.json.encode(page)), last)
    assert await stage.said("a") == ["created 11!"]


async def test_R15_R30_an_empty_cluster_is_announced_and_one_that_empties_is_held(stage, cluster, monkeypatch):
    monkeypatch.setattr(relay, "GUARD_AGAIN_S", 0.05)
    copy = cluster.backup()
    cluster.objects.clear()
    start = initial(cluster.version, cluster.initial(), *[cluster.create(f"m{n}") for n in range(10)])
    held = cluster.backup()
    cluster.objects.clear()
    empty = initial(cluster.version, cluster.initial(), end=CHATTER)
    stage.server.script.extend([start, EXPIRED, empty, empty, empty])
    async with stage.producing():
        await eventually(lambda: stage.server.finished or stage.server.wrong)
        assert await stage.world.last_marker("isvc") is not None
    cluster.objects = held[1]
    await stage.check()
    assert copy[0] == 13


async def test_R30_a_mass_delete_waits_for_a_second_list_over_a_fresh_connection(stage, cluster, monkeypatch):
    monkeypatch.setattr(relay, "GUARD_AGAIN_S", 0.2)
    for number in range(20):
        cluster.create(f"m{number:02}")
    start = initial(cluster.version, cluster.initial())
    for number in range(12):
        cluster.delete(f"m{number:02}")
    looks = [initial(cluster.version, cluster.initial(), end=CHATTER)] * 2
    stage.server.script.extend([start, EXPIRED, *looks])
    async with stage.producing():
        await eventually(lambda: len(stage.server.asked) == 3)
        assert len(await stage.world.events()) == 23
        await eventually(stage.agrees)
    await stage.check()


async def test_R30_what_the_second_list_finds_again_was_never_gone(stage, cluster, monkeypatch):
    monkeypatch.setattr(relay, "GUARD_AGAIN_S", 0.05)
    for number in range(20):
        cluster.create(f"m{number:02}")
    whole = cluster.initial()
    few = cluster.state("a", "b") + whole.splitlines(keepends=True)[-1]
    looks = [initial(33, few, end=CHATTER), initial(33, whole, cluster.modify("a", model="2"), end=CHATTER)]
    await stage.perform(initial(33, whole), EXPIRED, *looks)
    assert len(await stage.world.events()) == 24


TOO_LARGE = refusal("watch", 504, "Timeout", "Retry-After: 1", causes=[{"reason": "ResourceVersionTooLarge"}])


@pytest.mark.parametrize("sign", ["an older list", "504", "silence", "an older bookmark", "an expired position"])
async def test_R16_an_etcd_put_back_to_an_older_copy_begins_an_epoch(stage, cluster, sign):
    stage.lose_patience_after(0.3)
    copy = cluster.backup()
    start = initial(
        13, cluster.initial(), cluster.modify("a", model="2"), cluster.create("d"), cluster.delete("b"), end=FIN
    )
    version = cluster.version
    cluster.restore(copy)
    older = cluster.bookmark()
    stage.server.blind = 0 if sign == "an older list" else version  # else it has come so far when it is asked
    signs = {
        "an older list": [],
        "504": [TOO_LARGE],
        "silence": [watch(version, end=HOLD)] * 2,
        "an older bookmark": [watch(version, older, end=HOLD)],
        "an expired position": [EXPIRED],
    }
    cluster.modify("c", model="8")  # at a version that has been something else
    stage.server.script.extend([start, *signs[sign], initial(15, cluster.initial(), end=CHATTER)])
    async with stage.producing():
        await eventually(lambda: stage.server.wrong or stage.server.finished)
        await eventually(stage.agrees)
    assert stage.server.wrong == []
    events = await stage.world.events()
    assert len({event.epoch for event in events}) == 2
    last = {event.key.name: event for event in events}
    assert {last[name].epoch for name in "abcd"} == {max(event.epoch for event in events)}
    assert last["d"].type == "deleted"


async def test_R16_R27_R28_R39_a_new_producer_lists_and_finds_what_happened_between(stage, cluster):
    await stage.perform(initial(cluster.version, cluster.initial(), end=CHATTER))
    cluster.recreate("a", model="7")
    cluster.delete("b")
    cluster.create("d")
    await stage.perform(initial(cluster.version, cluster.initial(), end=CHATTER))
    assert stage.server.asked == ["initial", "initial"]
    assert await stage.said("a") == ["created 11!", "deleted 15!", "created 15!"]
    assert await stage.said("b") == ["created 12!", "deleted 17!"]


async def test_R17_an_object_nested_beyond_understanding_harms_no_other_and_concludes_no_delete(stage, cluster):
    deep = b'{"type":"ADDED","object":{"spec":' + b"[" * 9000 + b"]" * 9000 + b"}}\n"
    start = initial(cluster.version, deep + cluster.initial(), cluster.delete("c"))
    cluster.create("d")
    doubtful = initial(0, deep + cluster.state("d") + cluster.initial().splitlines(keepends=True)[-1], end=FIN)
    await stage.perform(start, EXPIRED, doubtful, watch(15, cluster.modify("a", model="4"), end=CHATTER))
    assert stage.counted("unidentified") == 2
    assert await stage.said("b") == ["created 12!"]
