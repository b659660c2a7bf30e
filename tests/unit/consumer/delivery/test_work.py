"""From a delivery to the work that it asks for, whatever the delivery is."""

import pytest
from msgspec.structs import replace

from consumer.delivery.work import look_later, passed_over, receive
from consumer.freshness import Freshness
from consumer.observation import PassedVersion
from shared.errors import BadEventError
from shared.events import EventType
from tests.unit.consumer.deliveries import CLUSTER_ID, SUBJECTS, an_event, delivered, event_work, look_work
from tests.unit.consumer.fakes import FakeMessage
from tests.unit.consumer.worlds import KEY, MODEL, PREFIX, SEEN, UID, an_object, seen


def test_an_event_is_what_it_shows():
    work = event_work(an_object(version="41"))
    assert (work.key, work.uid, work.freshness) == (KEY, UID, Freshness(1, "41"))
    assert (work.seen.models, work.seen.digest, work.seen.time) == (("1",), "v1:0123456789abcdef", SEEN)
    assert work.failure is None
    assert not work.forced


@pytest.mark.parametrize(
    ("obj", "type_"),
    [(an_object(), EventType.DELETED), (an_object(going=True), EventType.UPDATED)],
    ids=["deleted", "going"],
)
def test_an_object_that_goes_is_deleted(obj, type_):
    assert event_work(obj, type_).freshness.deleted


def test_a_look_knows_the_name_only_and_is_forced():
    work = look_work()
    assert (work.key, work.uid, work.seen, work.freshness, work.forced) == (KEY, "", None, None, True)


@pytest.mark.parametrize(
    ("type_", "corrects", "num_delivered", "first"),
    [
        pytest.param(EventType.CREATED, None, 1, True, id="created before our eyes"),
        pytest.param(EventType.CREATED, 0, 1, False, id="found by comparison"),
        pytest.param(EventType.CREATED, None, 2, False, id="delivered before"),
        pytest.param(EventType.UPDATED, None, 1, False, id="updated"),
        pytest.param(EventType.DELETED, None, 1, False, id="deleted"),
    ],
)
def test_only_a_live_first_delivery_of_a_creation_creates_first(type_, corrects, num_delivered, first):
    event = an_event(an_object(), type_, corrects=corrects)
    assert receive(delivered(event, an_object(), 1, num_delivered), CLUSTER_ID).creates_first is first


OTHER = an_object()
OTHER = replace(OTHER, metadata=replace(OTHER.metadata, name="other"))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        pytest.param(delivered(an_event(an_object(), cluster_id="c-2"), an_object()), "cluster id c-2", id="cluster"),
        pytest.param(delivered(an_event(an_object(), uid="x"), an_object()), "another object", id="uid"),
        pytest.param(
            FakeMessage(1, subject=SUBJECTS.event(KEY), headers=delivered(an_event(OTHER), OTHER).headers, body=b"{}"),
            "does not decode", id="body without metadata",
        ),
        pytest.param(FakeMessage(1, subject=SUBJECTS.event(KEY)), "header ce-", id="no headers"),
    ],
)  # fmt: skip
def test_an_event_that_cannot_be_is_a_failure_that_names_the_object(message, words):
    work = receive(message, CLUSTER_ID)
    assert work.seen is None
    assert isinstance(work.failure, BadEventError)
    assert str(KEY) in str(work.failure)
    assert words in str(work.failure)


def test_an_event_under_another_objects_subject_is_a_failure():
    message = delivered(an_event(OTHER), OTHER)
    message.subject = SUBJECTS.event(KEY)
    assert "isvc/team-a/other" in str(receive(message, CLUSTER_ID).failure)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda body: body[:-1], id="cut short"),
        pytest.param(lambda body: body.replace(b"iris", b"ir\xff", 1), id="no UTF-8"),
        pytest.param(lambda body: body[:-1] + b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}", id="nested too deeply"),
    ],
)
def test_a_body_that_is_broken_is_a_failure(broken):
    message = delivered(an_event(an_object()), an_object())
    message.body = broken(message.body)
    assert "does not decode" in str(receive(message, CLUSTER_ID).failure)


def test_each_failure_has_a_slot_of_its_own():
    uids = {receive(FakeMessage(number, subject=SUBJECTS.event(KEY)), CLUSTER_ID).uid for number in (1, 2)}
    assert len(uids | {look_work().uid, event_work().uid}) == 4


def test_what_names_no_object_is_refused():
    with pytest.raises(BadEventError, match="subject"):
        receive(FakeMessage(1, subject="isvc.c.evt.0.isvc.ns"), CLUSTER_ID)


async def test_a_look_of_our_own_needs_no_answer():
    work = look_later(KEY)
    assert work.is_own_look
    assert not work.forced
    assert not look_work().is_own_look
    await work.message.ack()
    await work.message.in_progress()
    await work.message.terminate("x")


def test_a_passed_state_leaves_its_labels_behind_what_it_had_passed():
    before = (PassedVersion("1", "10", "3", "t3", 1),)
    state = replace(seen(an_object(version="41")), passed=before)
    assert passed_over(state, PREFIX) == (*before, PassedVersion("1", "11", "41", SEEN, 1))


def test_labels_under_the_other_known_prefix_are_passed_as_well():
    labels = {f"modelregistry.opendatahub.io/{name}": "5" for name in ("registered-model-id", "model-version-id")}
    assert passed_over(seen(an_object(labels)), PREFIX)[0].model == "5"
    assert passed_over(seen(an_object({MODEL: "1"})), PREFIX)[0].version == ""
