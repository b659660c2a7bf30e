"""Each fault of a request does to sender and server what its name says."""

import pytest

from consumer.actions import CreateRecord
from replay.exploring.scheduler import Scheduler
from replay.exploring.story import plan_of
from replay.exploring.wire import DeadLettersWire, KubernetesWire, RegistryWire
from replay.exploring.world import World
from shared.errors import ConflictError, NotFoundError, TransientError, UnreachableError
from tests.unit.replay.explored import story_of
from tests.unit.replay.replayed import KEY, story

CREATE = CreateRecord(
    environment="team-a",
    name="iris/u-1",
    external_id="kserve:u-1/1",
    model_id="1",
    version_id="",
    runtime="",
    deployed=True,
    properties={},
    reason="a test",
)


@pytest.fixture
def world(monkeypatch):
    events = story_of(*story())
    made = World(events, plan_of(events), Scheduler(0), workers=1)
    monkeypatch.setattr(made.scheduler, "fault", lambda *_: False)
    yield made
    made.close()


@pytest.fixture
def only(world, monkeypatch):
    """Let one fault strike each time, and no other."""
    return lambda fault: monkeypatch.setattr(world.scheduler, "fault", lambda name, _: name == fault)


def sent(world, request):
    """Send a request; return what came back, None where nothing did."""
    with world.loop.running():
        task = world.loop.create_task(request)
    world.loop.run_for(60.0)
    if not task.done():
        return None
    return task.exception() or task.result()


def environment(world):
    with world.loop.running():
        return sent(world, RegistryWire(world.owners[0], world.registry("registry")).create_environment("team-a"))


def creation(world):
    found = environment(world)
    assert isinstance(found, str)
    return lambda: sent(world, RegistryWire(world.owners[0], world.registry("registry")).create_record(CREATE, found))


@pytest.mark.parametrize(
    ("fault", "error", "records"),
    [
        ("registry: refused", TransientError, 0),
        ("registry: never arrives", UnreachableError, 0),
        ("registry: answer lost", UnreachableError, 1),
        ("environment not found", NotFoundError, 0),
    ],
)
def test_a_create_that_fails_has_created_what_its_fault_says(world, only, fault, error, records):
    create = creation(world)
    only(fault)
    assert type(create()) is error
    assert len(world.registry("registry").records()) == records


def test_a_worker_that_dies_before_a_request_has_sent_nothing(world, only):
    create, owner = creation(world), world.owners[0]
    only("registry: dies before a request")
    assert create() is None
    assert owner.dead
    assert world.registry("registry").records() == []


def test_a_worker_that_dies_between_write_and_ack_has_written(world, only):
    create, owner = creation(world), world.owners[0]
    only("dies between write and ack")
    create()
    assert owner.dead
    assert len(world.registry("registry").records()) == 1


def test_a_worker_that_dies_with_a_request_on_the_wire_hears_nothing_more(world, only):
    create, owner = creation(world), world.owners[0]
    only("registry: dies after a request")
    assert create() is None
    assert owner.dead


def test_an_environment_that_another_creates_first_is_there_after_the_conflict(world, only):
    only("another creates the environment")
    assert type(environment(world)) is ConflictError
    assert list(world.registry("registry").environments()) == ["team-a"]


def test_a_conflict_for_nothing_and_a_refusal_leave_the_object_as_it_was(world, only):
    wire = KubernetesWire(world.owners[0])
    world.cluster.show(world.story.told(1)[0])
    before = world.cluster.get(KEY)
    for fault, error in (("conflict for nothing", ConflictError), ("Kubernetes: refused", TransientError)):
        only(fault)
        patch = [{"op": "add", "path": "/metadata/labels/a", "value": "b"}]
        assert type(sent(world, wire.patch(KEY, patch))) is error
    assert world.cluster.get(KEY) == before


def test_a_burial_whose_answer_is_lost_has_buried(world, only):
    only("broker: answer lost")
    wire = DeadLettersWire(world.owners[0])
    assert type(sent(world, wire.bury(KEY, {}, b"", "why"))) is UnreachableError
    assert wire.holds(KEY)


def test_nothing_is_sent_for_a_shard_that_was_lost(world):
    owner = world.owners[0]
    with owner.fence.handling(owner.term):
        owner.lose()
        wire = RegistryWire(owner, world.registry("registry"))
        assert type(sent(world, wire.create_environment("team-a"))) is TransientError
    assert world.registry("registry").environments() == {}
