"""What a survey leaves out, because it cannot be judged now; and how it stands to a world in motion."""

import pytest
from msgspec.structs import replace

from consumer.sweep.compare import Reason
from consumer.sweep.survey import Surveyor
from shared.errors import TransientError
from shared.events import EventType, SyncMarker
from shared.inventory import StreamState, Told
from shared.objects import Kind
from tests.unit.consumer.deliveries import an_event, delivered
from tests.unit.consumer.fakes import FakeRegistries, FakeRegistry
from tests.unit.consumer.worlds import KEY, PREFIX, SETTINGS, an_object, carrying, record_of, seen

IN_SYNC = carrying(an_object(), "7")
RECORD = record_of(seen(IN_SYNC))


class World:
    """Two registries, and a stream whose last message has sequence 10."""

    def __init__(self) -> None:
        self.a, self.b = FakeRegistry(), FakeRegistry()
        self.registries = FakeRegistries(SETTINGS, a=self.a, b=self.b)
        self.told: list[Told] = []
        self.markers: dict[Kind, SyncMarker] = {kind: SyncMarker((), "1", 1) for kind in Kind}
        self.created = ["first"]
        self.dead = frozenset()

    def tell(self, obj=IN_SYNC, sequence: int = 1, **changes) -> None:
        message = delivered(replace(an_event(obj, EventType.UPDATED), **changes), obj, sequence)
        self.told.append(Told(message.subject, message.headers, message.body, sequence))

    async def state(self) -> StreamState:
        created = self.created.pop(0) if len(self.created) > 1 else self.created[0]
        return StreamState(created, 10)

    async def marker(self, kind: Kind) -> SyncMarker | None:
        return self.markers.get(kind)

    async def last_events(self, kind: Kind):
        for each in self.told:
            if f".{kind}." in each.subject:
                yield each

    async def survey(self):
        async def dead_letters():
            return self.dead

        return await Surveyor(self, self.registries, dead_letters, SETTINGS).survey()


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        pytest.param(None, b'{"metadata": {"name": "\xff"}}', id="no UTF-8"),
        pytest.param(None, b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}", id="nested too deeply"),
        pytest.param("isvc.prod-a.evt.0.isvc.team-a.=FF", b"{}", id="no name"),
    ],
)
async def test_what_does_not_decode_is_skipped_and_the_others_are_compared(world, subject, body):
    world.tell()
    world.told[-1] = replace(world.told[-1], subject=subject or world.told[-1].subject, body=body)
    world.tell(replace(IN_SYNC, metadata=replace(IN_SYNC.metadata, name="lily", uid="other")), sequence=2)
    survey = await world.survey()
    assert survey.skipped == 1
    assert [each.key.name for each in survey.differences] == ["lily"]


async def test_a_world_in_sync_has_no_difference_and_costs_one_list_of_each_registry(world):
    world.tell()
    world.a.put(RECORD)
    found = await world.survey()
    assert (found.differences, found.objects, found.skipped, found.unsynced) == ((), 1, 0, ())
    assert [(each.name, each.records, each.ours) for each in found.registries] == [("a", 1, 1), ("b", 0, 0)]
    assert (world.a.calls, world.b.calls) == ({"all_records": 1}, {"all_records": 1})


async def test_an_event_that_came_after_the_beginning_is_left_to_its_owner(world):
    world.tell(sequence=11)
    world.a.put(replace(RECORD, deployed=False))
    found = await world.survey()
    assert (found.differences, found.objects, found.skipped) == ((), 1, 0)
    world.told.clear()
    world.tell(sequence=10)
    assert [each.reason for each in (await world.survey()).differences] == [Reason.STATE]


async def test_an_event_that_cannot_be_read_makes_no_stray_of_its_objects_record(world):
    world.tell()
    world.told = [replace(world.told[0], body=b"{")]
    world.a.put(RECORD)
    found = await world.survey()
    assert (found.differences, found.skipped) == ((), 1)


async def test_an_event_of_another_cluster_makes_no_stray_of_ours(world):
    world.tell(cluster_id="c-2")
    world.a.put(RECORD)
    assert (await world.survey()).differences == ()


async def test_nothing_is_concluded_from_a_registry_that_cannot_be_read(world, caplog):
    elsewhere = an_object({PREFIX + "registered-model-id": "1", PREFIX + "name": "b"})
    world.tell(elsewhere)
    world.a.put(RECORD)
    world.b.fail("all_records", TransientError("away"))
    found = await world.survey()
    assert (found.differences, found.skipped) == ((), 1)
    assert [(each.name, each.error) for each in found.registries] == [("a", ""), ("b", "away")]
    assert "fault" not in caplog.text


async def test_an_object_whose_registry_is_not_clear_is_left_alone_with_all_its_records(world):
    world.tell(an_object({PREFIX + "registered-model-id": "1", PREFIX + "name": "nowhere"}))
    world.a.put(RECORD)
    found = await world.survey()
    assert (found.differences, found.skipped) == ((), 1)


async def test_the_records_of_an_object_whose_registry_is_forbidden_are_left_behind(world):
    world.tell(an_object({PREFIX + "registered-model-id": "1", PREFIX + "name": "b"}))
    world.registries.refused = {"b"}
    world.a.put(RECORD)
    assert [each.reason for each in (await world.survey()).differences] == [Reason.LEFT]


async def test_a_model_that_cannot_be_asked_for_leaves_its_object_out(world):
    world.tell(an_object())
    world.a.fail("model_exists", TransientError("away"))
    found = await world.survey()
    assert (found.differences, found.skipped, world.a.pending) == ((), 1, 0)


async def test_a_stream_that_was_made_anew_meanwhile_ends_the_survey(world):
    world.tell()
    world.created = ["first", "second"]
    with pytest.raises(TransientError, match="made anew"):
        await world.survey()


async def test_a_kind_without_marker_is_named_and_confirms_nothing(world):
    del world.markers[Kind.ISVC]
    world.a.put(RECORD)
    found = await world.survey()
    assert found.unsynced == (Kind.ISVC,)
    assert [(each.key, each.confirmed) for each in found.differences] == [(KEY, False)]


async def test_a_registry_that_an_object_was_the_first_to_name_is_read_too(world):
    named = world.registries.lookups.pop("b")
    world.tell(an_object({PREFIX + "registered-model-id": "1", PREFIX + "name": "b"}))
    choose = world.registries.choose

    async def choosing(observation):
        world.registries.lookups["b"] = named
        return await choose(observation)

    world.registries.choose = choosing
    found = await world.survey()
    assert [each.reason for each in found.differences] == [Reason.MISSING]
    assert [each.name for each in found.registries] == ["a", "b"]


async def test_a_fault_of_this_program_with_one_object_hides_no_other(world, monkeypatch, caplog):
    other = replace(IN_SYNC, metadata=replace(IN_SYNC.metadata, name="lily", uid="other"))
    world.tell()
    world.tell(other)
    world.a.put(RECORD)
    choose = world.registries.choose

    async def choosing(observation):
        if observation.uid == "other":
            raise ZeroDivisionError
        return await choose(observation)

    monkeypatch.setattr(world.registries, "choose", choosing)
    found = await world.survey()
    assert (found.objects, found.skipped, found.differences) == (2, 1, ())
    assert "fault in this program" in caplog.text
