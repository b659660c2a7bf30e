"""What is remembered of messages that were in hand at a death."""

import msgspec

from consumer.ownership.suspicion import Suspicion, sentence
from consumer.ownership.targets import Lease


def test_nothing_is_suspect_as_long_as_nobody_has_died():
    assert not Suspicion().suspects(1)


def test_after_a_death_everything_that_was_delivered_is_suspect_and_nothing_else():
    suspicion = Suspicion().after_death(delivered=9)
    assert [suspicion.suspects(sequence) for sequence in (1, 9, 10)] == [True, True, False]


def test_a_look_of_our_own_is_no_message_and_never_suspect():
    assert not Suspicion().after_death(9).suspects(0)


def test_three_deaths_with_the_same_message_in_hand_bury_it():
    suspicion = Suspicion().after_death(9)
    assert (suspicion.deaths_of(7), sentence(suspicion, 7)) == (1, "")
    suspicion = suspicion.naming(7).after_death(9)
    assert (suspicion.deaths_of(7), sentence(suspicion, 7)) == (2, "")
    suspicion = suspicion.naming(7).after_death(9)
    assert sentence(suspicion, 7) == "the consumer died 3 times with this message at hand"
    assert sentence(suspicion, 8) == "", "the others were in hand at the first death only"


def test_a_message_that_was_handled_without_a_death_is_acquitted():
    suspicion = Suspicion().after_death(9).naming(7).after_death(9).naming(7).acquitting(7)
    assert suspicion.after_death(9).deaths_of(7) == 1


def test_a_death_with_another_one_in_hand_leaves_the_count_of_the_first():
    suspicion = Suspicion().after_death(9).naming(7).after_death(9).naming(3).after_death(9)
    assert (suspicion.deaths_of(7), suspicion.deaths_of(3)) == (2, 2)


def test_a_death_before_anything_came_again_does_not_clear_what_was_suspect():
    """The reset sets the broker's count back: a successor that dies right after it has been given nothing."""
    assert Suspicion().after_death(9).after_death(2).until == 9


def test_an_orderly_end_is_no_death():
    suspicion = Suspicion().after_death(9).naming(7)
    assert suspicion.after_life() == Suspicion(until=9)


def test_it_survives_the_way_through_the_lease():
    lease = Lease("pod-0", "i-1", 10.0, Suspicion().after_death(9).naming(7).after_death(9).naming(3))
    assert msgspec.json.decode(msgspec.json.encode(lease), type=Lease) == lease
