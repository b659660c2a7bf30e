"""The reflector's state machine as a table, in the watch: what follows when an item arrives, and the pauses."""

import random

import pytest

from producer.items import Begin, Bookmark, Closed, Gone, Lost, Malformed, Refused, Seen, Silent, Waited
from producer.states import (
    Advance,
    BackingOff,
    Expired,
    InitialStream,
    Observe,
    OpenWatch,
    Remove,
    Settle,
    Wait,
    Watching,
)
from producer.watch import BACKOFF_MAX_S, backoff_s, step
from tests.unit.producer.observed import observed
from tests.unit.producer.steps import FRESH, GONE_410, LIVE, NAMELESS, QUIET, concludes, reasons, run, untroubled


def test_an_event_moves_the_position_and_is_observed():
    assert step(QUIET, Seen(observed(version=51))) == (
        Watching(FRESH, "51", 1, "51"),
        (Observe(observed(version=51), live=True),),
    )


def test_R25_a_deleted_event_is_a_delete_at_its_own_version():
    assert step(QUIET, Gone(observed(version=52))) == (Watching(FRESH, "52", 1, "52"), (Remove(observed(version=52)),))


def test_R09_a_bookmark_moves_the_position_only():
    assert step(QUIET, Bookmark("60")) == (Watching(FRESH, "60", 1, "60"), (Advance("60"),))


@pytest.mark.parametrize("item", [Seen(observed(version=50)), Gone(observed(version=49)), Bookmark("50")])
def test_R33_what_is_repeated_because_the_checkpoint_is_behind_is_no_news(item):
    state, effects = step(QUIET, item)
    assert (state.position, state.events, effects) == ("50", 0, ())


def test_versions_are_compared_as_numbers():
    state, _ = step(Watching(FRESH, "99"), Seen(observed(version=100)))
    assert state.position == "100"


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


@pytest.mark.parametrize("event", [Seen, Gone])
@pytest.mark.parametrize("before", [Seen(observed(version=53)), Bookmark("53")])
def test_R16_an_event_older_than_the_one_before_it_lists_again(event, before):
    state, effects = run(QUIET, before, event(observed("b", version=52)))
    assert isinstance(state, Expired)
    assert reasons(effects) == ["restored"]
    assert effects[-1] == Settle()


def test_R16_also_what_is_repeated_comes_in_order():
    _, effects = run(QUIET, Seen(observed(version=45)), Gone(observed("b", version=44)))
    assert reasons(effects) == ["restored"]


def test_R16_an_event_after_the_initial_state_is_newer_than_its_end():
    _, effects = run(InitialStream(FRESH), Bookmark("90", initial_end=True), Gone(observed("b", version=89)))
    assert reasons(effects) == ["restored"]


def test_R33_another_stream_may_repeat_what_the_one_before_has_told():
    _, effects = run(
        QUIET, Seen(observed(version=53)), Closed(300.0), Seen(observed(version=52)), Gone(observed(version=53))
    )
    assert reasons(effects) == ["closed"]


def test_R33_the_same_event_twice_is_no_disorder():
    _, effects = run(QUIET, Gone(observed(version=53)), Gone(observed(version=53)))
    assert effects == (Remove(observed(version=53)),)


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
