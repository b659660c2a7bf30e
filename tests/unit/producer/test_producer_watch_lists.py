"""The reflector's state machine as a table, until the list is complete: what follows when an item arrives."""

import pytest

from producer.items import Begin, Bookmark, Closed, Gone, Lost, Malformed, Page, Refused, Resync, Seen, Silent, Waited
from producer.states import (
    BackingOff,
    BeginPass,
    EndPass,
    Expired,
    GetPage,
    InitialStream,
    Listing,
    Observe,
    OpenInitial,
    OpenWatch,
    Remove,
    Settle,
    Wait,
    Watching,
)
from producer.watch import BOOKMARKS_MAX, start, step
from tests.unit.producer.observed import observed
from tests.unit.producer.steps import FRESH, GONE_410, LIVE, NAMELESS, PAGED, QUIET, concludes, reasons, run, untroubled

# ---- the initial state


def test_R39_a_start_settles_and_lists():
    assert start() == (Expired(), (Settle(),))


def test_R01_the_first_choice_is_a_watch_list():
    assert step(Expired(), Begin()) == (InitialStream(FRESH), (BeginPass(), OpenInitial()))


REFUSALS = [
    pytest.param(Refused(500, "InternalError", "required storage feature", in_stream=True), id="old etcd"),
    pytest.param(Refused(422, "Invalid", "sendInitialEvents is forbidden"), id="feature gate off"),
    pytest.param(Refused(400, "BadRequest"), id="unknown parameter"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_R01_a_refused_watch_list_falls_back_to_pages_at_once(refusal):
    state, effects = step(InitialStream(FRESH), refusal)
    assert (state, untroubled(effects)) == (Listing(PAGED), (BeginPass(), GetPage("")))


@pytest.mark.parametrize("refusal", REFUSALS)
def test_R01_the_fallback_is_remembered(refusal):
    state, _ = run(InitialStream(FRESH), refusal, Page((), "9", ""), GONE_410)
    assert step(state, Begin())[1] == (BeginPass(), GetPage(""))


@pytest.mark.parametrize("refusal", [Refused(500), Refused(503, in_stream=True), Refused(429), Refused(403)])
def test_R01_other_refusals_say_nothing_about_watch_list(refusal):
    state, effects = step(InitialStream(FRESH), refusal)
    assert isinstance(state, BackingOff)
    assert state.memory.watch_list
    assert not concludes(effects)


@pytest.mark.parametrize("end", [Silent(), Malformed("x"), Closed(300.0)])
def test_R01_an_initial_stream_that_twice_cannot_be_read_is_listed_in_pages(end):
    state, _ = run(InitialStream(FRESH), end, Waited(), Begin())
    assert isinstance(state, InitialStream)
    state, effects = step(state, end)
    assert isinstance(state, Listing)
    assert effects[-1] == GetPage("")


CUTS = [
    pytest.param(Lost("reset"), id="reset"),
    pytest.param(Refused(500), id="500"),
    pytest.param(Refused(504, "Timeout", in_stream=True), id="ERROR 504"),
    pytest.param(Refused(504, causes=("ResourceVersionTooLarge",)), id="too large"),
    pytest.param(Refused(410, "Expired", in_stream=True), id="ERROR 410"),
    pytest.param(Refused(418), id="418"),
]


def tried(state, *items):
    """Begin passes until each of `items` has come, and return what the next pass asks for."""
    asked = []
    for item in items:
        state, effects = run(state, Begin(), Seen(observed()), item)
        assert not concludes(effects)
        asked.append(OpenInitial() in effects)
        if isinstance(state, BackingOff):
            state, _ = step(state, Waited())
    assert all(asked)
    return step(state, Begin())


@pytest.mark.parametrize("cut", CUTS)
def test_R01_an_initial_stream_that_twice_does_not_come_to_its_end_is_listed_in_pages_after_a_pause(cut):
    state, effects = tried(Expired(FRESH), cut, cut)
    assert isinstance(state, Listing)
    assert effects == (BeginPass(), GetPage(""))


@pytest.mark.parametrize("cut", CUTS)
def test_R01_what_may_be_an_outage_is_not_remembered(cut):
    state, _ = tried(Expired(FRESH), cut, cut)
    state, _ = run(state, Page((), "9", ""), GONE_410, Waited())
    assert step(state, Begin())[1] == (BeginPass(), OpenInitial())


@pytest.mark.parametrize("code", [401, 403, 404, 429])
def test_R01_what_pages_would_be_told_too_is_no_reason_for_them(code):
    tried(Expired(FRESH), *[Refused(code)] * 5)


def test_R01_a_complete_initial_stream_ends_the_row_of_cut_ones():
    cut = Lost("reset")
    state, _ = run(
        Expired(FRESH), Begin(), cut, Waited(), Begin(), Bookmark("60", initial_end=True), GONE_410, Waited()
    )
    state, _ = tried(state, cut)
    assert isinstance(state, InitialStream)


def test_R01_an_initial_stream_that_only_bookmarks_come_from_counts_as_cut():
    state, effects = run(InitialStream(FRESH), Seen(observed()), *[Bookmark("90")] * BOOKMARKS_MAX)
    assert reasons(effects) == ["malformed"]
    state, effects = run(state, Waited(), Begin(), *[Bookmark("90")] * BOOKMARKS_MAX)
    assert isinstance(state, Listing)
    assert not concludes(effects)


def test_R01_bookmarks_between_the_objects_of_a_slow_initial_stream_are_no_trouble():
    state, effects = run(InitialStream(FRESH), *[Seen(observed()), Bookmark("90"), Bookmark("91")] * 5)
    assert isinstance(state, InitialStream)
    assert reasons(effects) == []


def test_R06_initial_events_do_not_move_the_position():
    state, effects = run(InitialStream(FRESH), Seen(observed("z", version=90)), Seen(observed("a", version=20)))
    assert state == InitialStream(FRESH)
    assert effects == (
        Observe(observed("z", version=90), live=False),
        Observe(observed("a", version=20), live=False),
    )


def test_R06_an_ordinary_bookmark_does_not_end_the_initial_state():
    state, effects = step(InitialStream(FRESH), Bookmark("90"))
    assert isinstance(state, InitialStream)
    assert effects == ()


def test_the_end_bookmark_ends_the_pass_and_the_same_stream_goes_on():
    assert step(InitialStream(FRESH), Bookmark("90", initial_end=True)) == (
        Watching(FRESH, "90", told="90"),
        (EndPass("90", 0),),
    )


def test_a_delete_inside_the_initial_stream_is_a_delete():
    assert step(InitialStream(FRESH), Gone(observed())) == (InitialStream(FRESH), (Remove(observed()),))


@pytest.mark.parametrize("end", [Closed(2.0), Lost("reset"), Silent(), Malformed("x"), GONE_410])
def test_R07_a_stream_cut_before_the_end_bookmark_concludes_nothing_and_starts_again(end):
    state, effects = run(InitialStream(FRESH), Seen(observed()), end)
    assert not concludes(effects)
    state, effects = run(state, *([Waited()] if isinstance(state, BackingOff) else []), Begin())
    assert effects[-2:] == (BeginPass(), OpenInitial())


def test_R17_an_unidentified_object_in_the_initial_stream_lets_the_others_pass_and_leaves_a_doubt():
    state, effects = run(InitialStream(FRESH), NAMELESS, Seen(observed()), Bookmark("90", initial_end=True))
    assert reasons(effects) == ["unidentified"]
    assert untroubled(effects) == (Observe(observed(), live=False), EndPass("90", 1))
    assert isinstance(state, Watching)


# ---- lists


def test_R02_R04_pages_are_read_to_the_last_and_only_then_the_pass_is_complete():
    state, effects = step(Listing(PAGED), Page((observed("a"),), "9", "t1"))
    assert effects == (Observe(observed("a"), live=False), GetPage("t1"))
    state, effects = step(state, Page((observed("b"),), "9", ""))
    assert effects == (Observe(observed("b"), live=False), EndPass("9", 0), OpenWatch("9"))
    assert state == Watching(PAGED, "9")


def test_R04_pages_of_different_versions_are_no_complete_list():
    state, effects = run(Listing(PAGED), Page((), "9", "t1"), Page((), "10", ""))
    assert not concludes(effects)
    assert reasons(effects) == ["inconsistent"]
    assert isinstance(state, BackingOff)


@pytest.mark.parametrize("tokens", [["same", "same"], ["a", "b", "a"]])
def test_R03_a_continue_token_that_comes_twice_begins_the_list_anew_after_a_pause(tokens):
    state, effects = run(Listing(PAGED), *(Page((), "9", token) for token in tokens))
    assert not concludes(effects)
    assert reasons(effects) == ["inconsistent"]
    assert effects[-1] == Wait(1)
    state, _ = run(state, Waited(), Begin(), *(Page((), "9", token) for token in tokens))
    assert step(state, Waited())[1] == (Settle(),)
    assert state.memory.failures == 2


def test_R03_410_on_a_page_starts_again_at_the_first_page():
    state, effects = run(Listing(PAGED), Page((), "9", "t1"), Refused(410, "Expired"))
    assert not concludes(effects)
    assert step(state, Begin())[1] == (BeginPass(), GetPage(""))


def test_R03_410_again_and_again_backs_off():
    state, effects = run(Listing(PAGED), Refused(410), Begin(), Refused(410))
    assert isinstance(state, BackingOff)
    assert isinstance(effects[-1], Wait)


def test_R17_an_unidentified_object_in_a_page_leaves_a_doubt_to_the_end():
    _, effects = run(Listing(PAGED), Page((NAMELESS, observed()), "9", "t1"), Page((), "9", ""))
    assert EndPass("9", 1) in effects
    assert Observe(observed(), live=False) in effects


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (Refused(404), "absent"),
        (Refused(403), "forbidden"),
        (Refused(401), "unauthorized"),
        (Refused(429), "throttled"),
        (Refused(503), "unavailable"),
        (Lost("refused"), "lost"),
        (Silent(), "silent"),
        (Malformed("html"), "malformed"),
    ],
)
@pytest.mark.parametrize("begun", [Listing(PAGED, "9"), InitialStream(FRESH)])
def test_R14_R15_R20_no_failure_of_a_list_concludes_anything(begun, end, reason):
    state, effects = step(begun, end)
    assert not concludes(effects)
    assert reasons(effects) == [reason]
    assert isinstance(state, BackingOff)
    assert isinstance(state.then, Expired)


def test_a_broker_that_cannot_be_read_delays_the_pass():
    state, effects = step(Expired(), Lost("JetStream did not answer"))
    assert (isinstance(state, BackingOff), reasons(effects)) == (True, ["inventory"])
    assert step(state, Waited())[1] == (Settle(),)


# ---- asked for from outside

EVERYWHERE = [Expired(), Listing(PAGED, "9"), InitialStream(FRESH), LIVE, BackingOff(FRESH, QUIET)]


@pytest.mark.parametrize("state", EVERYWHERE, ids=lambda state: type(state).__name__)
def test_a_wanted_pass_begins_from_every_state(state):
    state, effects = step(state, Resync("guard"))
    if isinstance(state, BackingOff):
        state, effects = step(state, Waited())
    assert isinstance(state, Expired)
    assert not concludes(effects)
    assert isinstance(step(state, Begin())[0], InitialStream | Listing)
