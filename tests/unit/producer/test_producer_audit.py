"""A list beside the watch, and what the watch has missed."""

import asyncio
import logging

import pytest

from producer.audit import REACH_S, SAMPLES, Missed, run_audit
from producer.changes import Entry
from producer.items import Lost, Malformed, Page, Refused, Silent, Unidentified
from producer.passes import Verified
from tests.unit.producer.inventories import CHANGED, EPOCH, NOW_S, TAKEN, A, full_pass, inventory, known, live, many
from tests.unit.producer.observed import observed

B = observed("b", uid="u2", version=12)
LISTED = "100"


def nothing():
    """What the watch does in a healthy world: it knows everything already."""


class Around:
    """One audit: the pages that the server answers, and what the watch brings meanwhile."""

    def __init__(self, made, *pages, before_page=nothing, before_reaching=nothing, position=""):
        self.made = made
        self.pages = [self._page(number, len(pages), page) for number, page in enumerate(pages, 1)]
        self.before_page = before_page
        self.before_reaching = before_reaching
        self.position = position
        self.stands = False
        self.free_s = 10_000.0  # for so long, nothing but the server was waited for
        self.tokens = []
        self.waited_for = []

    @staticmethod
    def _page(number, count, page):
        if not isinstance(page, list):
            return page
        return Page(tuple(page), LISTED, str(number) if number < count else "")

    async def page(self, token):
        self.tokens.append(token)
        if token:
            self.before_page()
        return self.pages[len(self.tokens) - 1]

    async def reached(self, version):
        self.waited_for.append(version)
        self.before_reaching()
        if self.stands:
            await asyncio.Event().wait()

    def listening_s(self):
        return self.free_s

    async def run(self, confirm=None):
        return await run_audit(self.page, self.made, self, confirm)


async def audit(made, *listed, **happens):
    return await Around(made, list(listed), **happens).run()


async def test_R41_a_watch_that_knows_what_the_list_shows_has_missed_nothing():
    made = inventory(known(A), known(B), known(observed("c", uid="u3"), deleted=True))
    assert await audit(made, A, B) == Missed()
    assert not Missed()


@pytest.mark.parametrize(
    ("before", "listed", "missed"),
    [
        pytest.param([], [A], Missed(created=1, samples=(A.key,)), id="unknown"),
        pytest.param([known(A)], [TAKEN], Missed(created=1, samples=(A.key,)), id="a new owner"),
        pytest.param([known(A, deleted=True)], [A], Missed(created=1, samples=(A.key,)), id="alive although deleted"),
        pytest.param([known(A)], [CHANGED], Missed(updated=1, samples=(A.key,)), id="other content"),
        pytest.param([known(A)], [], Missed(deleted=1, samples=(A.key,)), id="gone"),
        pytest.param([known(A), known(B)], [CHANGED], Missed(0, 1, 1, (A.key, B.key)), id="several"),
    ],
)
async def test_R41_what_the_list_shows_and_the_inventory_does_not_know_was_missed(before, listed, missed):
    assert await audit(inventory(*before), *listed) == missed


@pytest.mark.parametrize(
    ("before", "listed"),
    [
        pytest.param([known(observed("a", version=101, model="2"))], [A], id="changed after the list"),
        pytest.param([known(observed("a", version=101), deleted=True)], [A], id="deleted after the list"),
        pytest.param([known(observed("a", version=101))], [], id="created after the list"),
        pytest.param([known(observed("a", uid="u9", version=101))], [A], id="name taken again after the list"),
        pytest.param([known(A)], [observed("a", version=15, model="1")], id="only the version moved"),
    ],
)
async def test_R41_what_the_inventory_knows_better_was_not_missed(before, listed):
    assert await audit(inventory(*before), *listed) == Missed()


async def test_R41_digests_of_two_versions_are_not_compared():
    entry = Entry(A.uid, EPOCH, A.resource_version, "v0:abc", (), 0, 7)
    assert await audit(inventory((A.key, entry)), CHANGED) == Missed()


async def test_R41_a_watch_that_is_behind_the_list_is_waited_for():
    made = inventory(known(A), known(B))

    def catch_up():
        live(made, CHANGED)
        live(made, observed("c", uid="u3", version=50))
        made.remove(observed("b", uid="u2", version=60), now_s=NOW_S)

    around = Around(made, [CHANGED, observed("c", uid="u3", version=50)], before_reaching=catch_up)
    assert await around.run() == Missed()
    assert around.waited_for == [LISTED]


async def test_R41_a_watch_that_is_ahead_of_the_list_is_not_accused():
    made = inventory(known(A), known(B))

    def run_ahead():
        live(made, observed("b", uid="u2", version=101, model="5"))
        made.remove(observed("a", version=102), now_s=NOW_S)
        live(made, observed("n", uid="u9", version=103))

    assert await Around(made, [A], [B], before_page=run_ahead).run() == Missed()


async def test_R41_all_pages_are_one_list():
    around = Around(inventory(known(A), known(B)), [A], [B])
    assert await around.run() == Missed()
    assert around.tokens == ["", "1"]


@pytest.mark.parametrize(
    "trouble",
    [Refused(410, "Expired"), Refused(503), Lost("reset"), Malformed("half a page"), Silent(), Page((), "101", "")],
    ids=["410", "503", "reset", "malformed", "silent", "another version"],
)
async def test_R41_a_list_with_trouble_concludes_nothing_and_says_so(trouble, caplog):
    caplog.set_level(logging.INFO)
    around = Around(inventory(known(A)), [], trouble)
    around.pages[0] = Page((), LISTED, "more")
    assert await around.run() is None
    assert around.waited_for == []
    assert "without conclusion" in caplog.text


@pytest.mark.parametrize("token", ["1", "2"])
async def test_R41_a_list_that_goes_round_in_a_circle_concludes_nothing(token, caplog):
    caplog.set_level(logging.INFO)
    around = Around(inventory(known(A)), [], [], Page((), LISTED, token))
    assert await around.run() is None
    assert len(around.tokens) == 3
    assert "without conclusion" in caplog.text


def standing(made, *listed):
    around = Around(made, list(listed))
    around.stands = True
    return around


@pytest.mark.looptime
async def test_R41_a_watch_that_does_not_get_there_is_stuck_and_has_missed_what_it_did_not_tell(looptime):
    missed = await standing(inventory(known(A), known(B)), CHANGED).run()
    assert missed == Missed(0, 1, 1, (A.key, B.key), stuck=True)
    assert looptime == REACH_S


@pytest.mark.looptime
async def test_R41_a_stuck_watch_is_told_also_when_there_was_nothing_to_miss():
    missed = await standing(inventory(known(A)), A).run()
    assert missed == Missed(stuck=True)
    assert missed


@pytest.mark.looptime
async def test_R41_a_watch_that_was_held_up_by_others_is_not_accused(caplog):
    caplog.set_level(logging.INFO)
    around = standing(inventory(known(A)))
    around.free_s = REACH_S - 0.1
    assert await around.run() is None
    assert "without conclusion" in caplog.text


@pytest.mark.looptime
async def test_R41_a_pass_while_a_stuck_watch_is_waited_for_makes_it_void():
    made = inventory(known(A))
    around = standing(made)
    around.before_reaching = lambda: full_pass(made, A)
    assert await around.run() is None


@pytest.mark.parametrize("when", ["before_page", "before_reaching"])
@pytest.mark.parametrize("how", ["reload", "begin_pass", "whole pass", "epoch"])
async def test_R41_a_pass_or_an_epoch_in_between_makes_it_void(when, how):
    made = inventory(known(A))

    def interfere():
        match how:
            case "reload":
                made.reload(dict([known(A)]))
            case "begin_pass":
                made.begin_pass()
            case "whole pass":
                full_pass(made, A)
            case "epoch":
                live(made, observed("a", version=9))

    assert await Around(made, [], [], **{when: interfere}).run() is None


async def test_R41_there_is_no_audit_while_a_pass_is_under_way():
    made = inventory(known(A))
    made.begin_pass()
    assert await audit(made) is None


async def test_R41_a_list_older_than_the_watch_shows_a_restore_and_accuses_nobody():
    missed = await Around(inventory(known(A)), [], position="101").run()
    assert missed == Missed(restored=True)
    assert missed


async def test_R41_a_list_as_old_as_the_watch_is_compared():
    assert await Around(inventory(known(A)), [], position=LISTED).run() == Missed(deleted=1, samples=(A.key,))


async def test_R41_what_is_held_for_gone_was_not_missed():
    objects = many(6)
    made = inventory(*map(known, objects))
    full_pass(made)
    assert await audit(made) == Missed()


async def test_R41_what_is_out_of_the_selection_was_not_missed():
    made = inventory(known(A), known(B))
    full_pass(made, B, verified=Verified(elsewhere=frozenset({A.key})))
    made.left(B.key, B.uid)
    assert await audit(made) == Missed()


async def test_R41_only_the_scope_is_compared():
    made = inventory(known(observed("a", ns="out")))
    full_pass(made, scope=frozenset({"in"}))
    assert await audit(made, observed("n", uid="u9", ns="out")) == Missed()


async def test_R41_with_a_selection_only_what_is_confirmed_gone_was_missed():
    asked = []

    async def confirm(suspects):
        asked.extend(suspects)
        return [B.key]

    made = inventory(known(A), known(B))
    assert await Around(made, []).run(confirm) == Missed(deleted=1, samples=(B.key,))
    assert set(asked) == {A.key, B.key}


async def test_R41_what_the_watch_brings_while_somebody_confirms_was_not_missed():
    made = inventory(known(A))

    async def confirm(suspects):
        made.remove(observed("a", version=101), now_s=NOW_S)
        return list(suspects)

    assert await Around(made, []).run(confirm) == Missed()


async def test_R41_beside_an_object_that_cannot_be_identified_no_delete_is_concluded():
    made = inventory(known(A))
    missed = await audit(made, B, Unidentified("ns/x", "no uid"))
    assert missed == Missed(created=1, samples=(B.key,))


async def test_R41_ten_samples_are_enough():
    missed = await audit(inventory(), *many(25))
    assert (missed.created, len(missed.samples)) == (25, SAMPLES)


async def test_R41_a_hundred_thousand_known_objects_cost_pointers_only():
    made = inventory(*map(known, many(50)))
    own = {id(name) for name in made.names()}
    assert len(own) == 50
    assert {id(name) for name in made.names()} == own


async def test_R41_an_audit_changes_nothing():
    made = inventory(known(A), known(B))
    before = dict(made.entries)
    await audit(made, CHANGED, observed("n", uid="u9"))
    assert made.entries == before
