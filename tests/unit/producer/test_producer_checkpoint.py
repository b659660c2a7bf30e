"""R33: a watch resumes only behind what is acknowledged."""

from producer.checkpoint import Checkpoint


def at(position="10"):
    checkpoint = Checkpoint()
    checkpoint.reset(position)
    return checkpoint


def send(checkpoint, position):
    checkpoint.sent(position)
    checkpoint.passed(position)


def test_R33_what_needs_no_message_moves_the_checkpoint_at_once():
    checkpoint = at()
    checkpoint.passed("11")
    assert checkpoint.position == "11"


def test_R33_it_stays_before_the_oldest_unacknowledged_message():
    checkpoint = at()
    checkpoint.passed("11")
    for position in ("12", "13", "14"):
        send(checkpoint, position)
    checkpoint.acknowledged("13")
    assert checkpoint.position == "11"
    checkpoint.acknowledged("12")
    assert checkpoint.position == "13"
    checkpoint.acknowledged("14")
    assert checkpoint.position == "14"


def test_R33_bookmarks_do_not_overtake_an_unacknowledged_message():
    checkpoint = at()
    send(checkpoint, "12")
    checkpoint.passed("20")
    assert checkpoint.position == "10"
    checkpoint.acknowledged("12")
    assert checkpoint.position == "20"


def test_R33_an_event_with_two_messages_needs_both():
    checkpoint = at()
    checkpoint.sent("12")
    checkpoint.sent("12")
    checkpoint.passed("12")
    checkpoint.acknowledged("12")
    assert checkpoint.position == "10"
    checkpoint.acknowledged("12")
    assert checkpoint.position == "12"


def test_R33_a_pass_begins_anew_and_late_acknowledgements_are_ignored():
    checkpoint = at()
    send(checkpoint, "12")
    checkpoint.reset("30")
    assert checkpoint.position == "30"
    checkpoint.acknowledged("12")
    assert checkpoint.position == "30"
