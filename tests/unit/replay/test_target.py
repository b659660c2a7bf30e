"""Where a replay may go, and that it is never taken for the cluster that it was recorded from."""

import msgspec
import pytest
from msgspec.structs import replace

from replay.target.choice import Target, TargetKind, disguised, guise, headers_of, parse_target, renumbered
from shared import events
from shared.errors import BadEventError, SettingsError
from shared.subjects import Subjects
from tests.unit.replay.guises import NATS, OURS
from tests.unit.replay.replayed import CLUSTER_ID, HEADER, KEY, captured, isvc

EVENT = captured(11, isvc(KEY, "u-1", 50, registered_model_id="1"))


@pytest.mark.parametrize(
    ("to", "kind"),
    [
        ("sandbox", TargetKind.SANDBOX),
        ("nats://127.0.0.1:4222", TargetKind.NATS),
        ("tls://localhost:4222", TargetKind.NATS),
        ("nats://[::1]:4222", TargetKind.NATS),
        ("http://127.9.9.9:8080/registry", TargetKind.REGISTRY),
        ("https://localhost", TargetKind.REGISTRY),
    ],
)
def test_a_target_on_loopback_is_named_once(to, kind):
    assert parse_target(to).kind is kind


ELSEWHERE = [
    "nats://nats.prod.svc:4222",
    "nats://10.1.2.3:4222",
    "http://registry.example.com",
    "http://localhost.example.com",
    "http://notlocalhost",
    "http://127.0.0.1.example.com",
    "http://0.0.0.0:8080",
    "http://[::ffff:10.0.0.1]:80",
    "http://127.1:80",
    "http://2130706433",
]


@pytest.mark.parametrize("to", ELSEWHERE)
def test_any_other_target_is_refused(to):
    with pytest.raises(SettingsError, match="may leave this machine: add --yes-to"):
        parse_target(to)


@pytest.mark.parametrize("to", ELSEWHERE)
def test_any_other_target_is_taken_when_it_is_named_twice(to):
    assert parse_target(to, to).url == to


def test_two_different_names_are_not_naming_it_twice():
    with pytest.raises(SettingsError, match=r"names another one, nats://nats\.test:4222: add"):
        parse_target("nats://nats.prod:4222", "nats://nats.test:4222")


@pytest.mark.parametrize(
    "to", ["", "kafka://localhost", "localhost:4222", "nats://", "http://:80", "http://[::1", "http://a:b"]
)
def test_what_is_no_target_is_refused(to):
    with pytest.raises(SettingsError, match="is no target"):
        parse_target(to)


@pytest.mark.parametrize("to", ["nats://me:s3cr3t@127.0.0.1", "http://s3cr3t@127.0.0.1:0"])
def test_a_target_with_credentials_is_refused_and_not_shown(to):
    with pytest.raises(SettingsError) as refusal:
        parse_target(to)
    assert "s3cr3t" not in str(refusal.value)


def test_on_a_shared_server_everything_that_identifies_is_the_replays_own():
    assert (OURS.prefix, OURS.cluster, OURS.cluster_id) == ("isvc-replay-tuesday",) * 3
    assert OURS.environment == "isvc-replay-tuesday-{namespace}"
    shown = disguised(EVENT, OURS)
    assert shown.event.cluster_id == "isvc-replay-tuesday"
    assert shown.event.uid == shown.obj.metadata.uid != "u-1"


def test_in_the_sandbox_the_names_of_the_capture_stay():
    own = guise("tuesday", Target(TargetKind.SANDBOX), HEADER)
    assert (own.prefix, own.cluster, own.cluster_id) == ("isvc-replay-tuesday", "prod-a", CLUSTER_ID)
    assert disguised(EVENT, own) == EVENT


def test_an_event_stays_what_it_is_but_for_the_uid_and_the_cluster():
    shown = disguised(EVENT, OURS)
    assert replace(shown.event, uid="u-1", cluster_id=CLUSTER_ID) == EVENT.event
    back = msgspec.structs.replace(shown.obj, metadata=replace(shown.obj.metadata, uid="u-1"))
    assert back == EVENT.obj


def test_a_uid_is_mapped_alike_in_one_replay_and_differently_in_another():
    assert OURS.uid("u-1") == guise("tuesday", NATS, HEADER).uid("u-1") != guise("monday", NATS, HEADER).uid("u-1")
    assert OURS.uid("u-1") != OURS.uid("u-2")


def test_the_cluster_id_can_be_chosen():
    assert disguised(EVENT, guise("tuesday", NATS, HEADER, "mine")).event.cluster_id == "mine"


def test_another_resource_version_is_in_event_and_object():
    shown = renumbered(EVENT, "99")
    assert (shown.event.resource_version, shown.obj.metadata.resource_version) == ("99", "99")


def test_a_body_that_is_no_object_cannot_be_disguised():
    with pytest.raises(BadEventError):
        disguised(replace(EVENT, data=b'{"no": "object"}'), OURS)


def test_a_replayed_event_is_marked_and_still_decodes():
    headers = headers_of(EVENT)
    assert headers["ce-replayed"] == "true"
    assert events.decode(headers) == EVENT.event


@pytest.mark.parametrize("name", ["", "Tuesday", "a.b", "a*", "-a", "a" * 32, "a b"])
def test_a_name_that_cannot_be_part_of_a_subject_is_refused(name):
    with pytest.raises(SettingsError, match="small letters, digits and dashes"):
        guise(name, NATS, HEADER)


def test_no_subject_of_a_replay_is_one_of_production():
    subject = Subjects(OURS.prefix, OURS.cluster, 16).event(KEY)
    assert subject.startswith("isvc-replay-tuesday.isvc-replay-tuesday.evt.")
