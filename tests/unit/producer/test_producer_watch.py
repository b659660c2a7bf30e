"""The reflector's state machine as a table: what follows when an item arrives in a state."""

import random

import pytest

from producer.items import (
    Begin,
    Bookmark,
    Closed,
    Gone,
    Lost,
    Malformed,
    Page,
    Refused,
    Resync,
    Seen,
    Silent,
    Unidentified,
    Waited,
)
from producer.states import (
    Advance,
    BackingOff,
    BeginPass,
    EndPass,
    Expired,
    GetPage,
    InitialStream,
    Listing,
    Memory,
    Observe,
    OpenInitial,
    OpenWatch,
    Remove,
    Settle,
    Trouble,
    Wait,
    Watching,
)
from producer.watch import BACKOFF_MAX_S, backoff_s, start, step
from tests.unit.producer.observed import observed

FRESH = Memory()
PAGED = Memory(watch_list=False)
NAMELESS = Unidentified("ns/a", "object ns/a lacks metadata.uid")
GONE_410 = Refused(410, "Expired", in_stream=True)


def reasons(effects):
    return [effect.reason for effect in effects if isinstance(effect, Trouble)]


def untroubled(effects):
    return tuple(effect for effect in effects if not isinstance(effect, Trouble))


def concludes(effects):
    """Whether anything may be taken for absent."""
    return any(isinstance(effect, EndPass | Remove) for effect in effects)


def run(state, *items):
    """Feed items and return the last state and all effects."""
    collected = []
    for item in items:
        state, effects = step(state, item)
        collected += effects
    return state, tuple(collected)


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


def test_R06_initial_events_do_not_move_the_position():
    state, effects = run(InitialStream(FRESH), Seen(observed("z", version=90)), Seen(observed("a", version=20)))
    assert state == InitialStream(FRESH)
    assert effects == (
        Observe(observed("z", version=90), live=False),
        Observe(observed("a", version=20), live=False),
    )


def test_R06_an_ordinary_bookmark_does_not_end_the_initial_state():
    assert step(InitialStream(FRESH), Bookmark("90")) == (InitialStream(FRESH), ())


def test_the_end_bookmark_ends_the_pass_and_the_same_stream_goes_on():
    assert step(InitialStream(FRESH), Bookmark("90", initial_end=True)) == (
        Watching(FRESH, "90"),
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


# ---- the watch

LIVE = Watching(FRESH, "50", events=1)
QUIET = Watching(FRESH, "50")


def test_an_event_moves_the_position_and_is_observed():
    assert step(QUIET, Seen(observed(version=51))) == (
        Watching(FRESH, "51", 1),
        (Observe(observed(version=51), live=True),),
    )


def test_R25_a_deleted_event_is_a_delete_at_its_own_version():
    assert step(QUIET, Gone(observed(version=52))) == (Watching(FRESH, "52", 1), (Remove(observed(version=52)),))


def test_R09_a_bookmark_moves_the_position_only():
    assert step(QUIET, Bookmark("60")) == (Watching(FRESH, "60", 1), (Advance("60"),))


@pytest.mark.parametrize("item", [Seen(observed(version=50)), Gone(observed(version=49)), Bookmark("50")])
def test_R33_what_is_repeated_because_the_checkpoint_is_behind_is_no_news(item):
    assert step(QUIET, item) == (QUIET, ())


def test_versions_are_compared_as_numbers():
    state, _ = step(Watching(FRESH, "99"), Seen(observed(version=100)))
    assert state == Watching(FRESH, "100", 1)


@pytest.mark.parametrize("state", [LIVE, QUIET])
def test_R11_a_clean_end_goes_on_from_the_position(state):
    after, effects = step(state, Closed(300.0))
    assert (after, untroubled(effects)) == (QUIET, (OpenWatch("50"),))


def test_R11_a_short_stream_with_events_goes_on_at_once():
    assert untroubled(step(LIVE, Closed(0.2))[1]) == (OpenWatch("50"),)


def test_R11_a_short_stream_without_events_backs_off():
    state, effects = step(QUIET, Closed(0.2))
    assert (isinstance(state, BackingOff), effects[-1]) == (True, Wait(1))


def test_R10_silence_goes_on_from_the_position_without_a_list():
    after, effects = step(LIVE, Silent())
    assert isinstance(after, Watching)
    assert untroubled(effects) == (OpenWatch("50"),)


def test_R16_silence_twice_at_the_same_position_lists_again():
    state, _ = run(LIVE, Silent(), Silent())
    assert isinstance(state, BackingOff)
    assert isinstance(state.then, Expired)


@pytest.mark.parametrize(
    "item",
    [
        Bookmark("49"),
        GONE_410,
        Refused(410, "Gone"),
        Refused(200, "Expired", in_stream=True),
        Refused(504, "Timeout", causes=("ResourceVersionTooLarge",)),
    ],
)
def test_R12_R16_an_expired_or_future_position_is_given_up_at_once(item):
    state, effects = step(LIVE, item)
    assert isinstance(state, Expired)
    assert untroubled(effects) == (Settle(),)


def test_R12_410_after_410_backs_off():
    state, effects = run(LIVE, GONE_410, Begin(), Bookmark("60", initial_end=True), GONE_410)
    assert isinstance(state, BackingOff)
    assert isinstance(effects[-1], Wait)


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("in_stream", [True, False])
def test_R13_an_overloaded_server_keeps_the_position(code, in_stream):
    state, effects = step(LIVE, Refused(code, in_stream=in_stream))
    assert isinstance(effects[-1], Wait)
    assert step(state, Waited())[1] == (OpenWatch("50"),)


def test_R13_however_often_it_refuses_the_position_stays():
    state, _ = run(LIVE, *[Refused(503), Waited()] * 40)
    assert isinstance(state, Watching)
    assert state.position == "50"


def test_R13_retry_after_is_the_least_pause():
    assert step(LIVE, Refused(429, retry_after_s=7.0))[1][-1] == Wait(1, 7.0)


def test_R13_failures_in_a_row_lengthen_the_pause_and_an_event_ends_the_row():
    state, effects = run(QUIET, Refused(503), Waited(), Refused(503))
    assert effects[-1] == Wait(2)
    state, _ = run(state, Waited(), Seen(observed(version=51)))
    assert step(state, Refused(503))[1][-1] == Wait(1)


def test_R13_refused_connections_back_off_and_keep_the_position():
    state, effects = run(QUIET, Lost("refused"), Waited(), Lost("refused"))
    assert effects[-1] == Wait(2)
    assert step(state, Waited())[1] == (OpenWatch("50"),)


@pytest.mark.parametrize(("code", "reason"), [(401, "unauthorized"), (403, "forbidden")])
def test_R14_missing_rights_keep_the_position_and_conclude_nothing(code, reason):
    state, effects = run(LIVE, *[Refused(code), Waited()] * 5)
    assert set(reasons(effects)) == {reason}
    assert not concludes(effects)
    assert isinstance(state, Watching)


def test_R15_a_watch_of_a_vanished_kind_waits_and_lists_when_it_is_back():
    state, effects = step(LIVE, Refused(404))
    assert reasons(effects) == ["absent"]
    assert not concludes(effects)
    assert step(state, Waited())[1] == (Settle(),)


@pytest.mark.parametrize("item", [Malformed("a line"), NAMELESS, Refused(400, in_stream=True), Refused(418)])
def test_R17_what_is_not_understood_is_never_skipped(item):
    state, effects = step(LIVE, item)
    assert effects[-1] == Wait(1)
    assert step(state, Waited())[1] == (OpenWatch("50"),)


@pytest.mark.parametrize("item", [Malformed("a line"), NAMELESS, Refused(400, in_stream=True), Refused(418)])
def test_R17_the_second_failure_at_the_same_position_lists_again(item):
    state, effects = run(LIVE, item, Waited(), item)
    assert not concludes(effects)
    assert step(state, Waited())[1] == (Settle(),)


def test_R17_a_failure_at_another_position_is_a_first_one():
    state, _ = run(LIVE, NAMELESS, Waited(), Seen(observed(version=51)), NAMELESS)
    assert isinstance(state, BackingOff)
    assert state.then == Watching(state.memory, "51")


def test_R17_after_the_list_the_next_bad_object_gets_two_tries_again():
    state, _ = run(LIVE, NAMELESS, Waited(), NAMELESS, Waited(), Begin(), Bookmark("60", initial_end=True), NAMELESS)
    assert isinstance(state, BackingOff)
    assert isinstance(state.then, Watching)


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


# ---- pauses


@pytest.mark.parametrize(("failures", "most_s"), [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (1000, 30.0)])
def test_R13_the_pause_grows_to_its_limit_with_full_jitter(failures, most_s):
    assert (backoff_s(failures, 0.0), backoff_s(failures, 1.0)) == (0.0, most_s)
    assert most_s <= BACKOFF_MAX_S


@pytest.mark.parametrize("seed", range(200))
def test_R13_a_server_that_answers_503_for_10_s_sees_fewer_than_20_requests(seed):
    chance, state, now_s, requests = random.Random(seed), QUIET, 0.0, 0
    while now_s < 10:
        requests += 1
        state, effects = step(state, Refused(503))
        now_s += backoff_s(effects[-1].failures, chance.random())
        state, _ = step(state, Waited())
    assert requests < 20
