"""What a look would do about a predecessor's record or a wrong id, told before it is asked for."""

import pytest
from msgspec.structs import replace

from cli.migration.adoptable import Fate, Finding, Shelved
from cli.migration.judging import Judge, ReadRegistry
from cli.objects import Live
from consumer.looks import RecordRef
from consumer.plan import PlanSettings
from consumer.records import Record
from consumer.sweep.shelf import Shelf
from consumer.writeback import WriteBack
from tests.unit.consumer.fakes import FakeEvents, FakeRegistries, FakeRegistry
from tests.unit.consumer.worlds import ID, KEY, MODEL, PREFIX, READY, SETTINGS, UID, an_object, record_of, seen

OURS = record_of(seen())
THEIRS = replace(OURS, external_id="", properties={})
SHELVED = Shelved("a", THEIRS, "team-a")
WRONG = Finding(fate=Fate.RELABEL, key=KEY, uid=UID, what=f"{ID}=9 is no record")


def live(obj=None) -> Live:
    return Live(KEY, UID, (), obj or an_object(), "v1:d")


def judge(*records: Record, settings: PlanSettings = SETTINGS, told=None) -> Judge:
    registries = FakeRegistries(settings, a=FakeRegistry(), b=FakeRegistry())
    shelf = Shelf("c-1")
    for record in records:
        shelf.add(record)
    read = {"a": ReadRegistry(registries.lookups["a"], shelf, ())}
    events = FakeEvents()
    last = seen() if told is None else told
    if last:
        events.by_key[KEY] = last
    return Judge(registries, read, events, settings)


async def test_a_record_is_adopted_with_what_else_differs_and_the_id_is_written():
    found = await judge(THEIRS).record(SHELVED, live())
    assert (found.fate, found.record_id, found.ref) == (Fate.ADOPT, "7", RecordRef("a", UID, "1", unclaimed=True))
    assert found.what.startswith("change the record: the record says otherwise in externalId, isvc-sync; write the id:")


async def test_a_record_of_another_model_than_the_labels_is_undeployed_and_one_is_created():
    found = await judge(replace(THEIRS, model_id="2")).record(
        replace(SHELVED, record=replace(THEIRS, model_id="2")), live()
    )
    assert (found.fate, "undeploy the record: the model label is now '1'" in found.what) == (Fate.ADOPT, True)
    assert "create a record" in found.what


@pytest.mark.parametrize("told", [False, replace(seen(), uid="of-an-earlier-one")])
async def test_an_object_that_no_event_tells_of_must_wait(told):
    found = await judge(THEIRS, told=told).record(SHELVED, live())
    assert (found.fate, "does a producer run?" in found.what) == (Fate.WAITS, True)


async def test_without_a_model_label_nobody_adopts_it():
    unlabelled = an_object({ID: "7"})
    found = await judge(THEIRS, told=seen(unlabelled, models=())).record(SHELVED, live(unlabelled))
    assert (found.fate, "not indexed" in found.what) == (Fate.KEEP, True)


async def test_a_record_in_another_registry_than_the_objects_is_kept():
    moved = an_object({MODEL: "1", f"{PREFIX}name": "b"})
    found = await judge(THEIRS, told=seen(moved)).record(SHELVED, live(moved))
    assert (found.fate, found.what) == (Fate.KEEP, "it is in a, the object's registry is b")


async def test_under_another_template_of_environments_no_record_is_found():
    found = await judge(THEIRS, settings=replace(SETTINGS, environment="{cluster}-{namespace}")).record(SHELVED, live())
    assert (found.fate, "ENVIRONMENT_NAME leads to 'prod-a-team-a'" in found.what) == (Fate.KEEP, True)


async def test_beside_a_record_of_ours_a_predecessors_is_not_the_objects():
    ours = replace(OURS, id="8", name="other", deployed=False)
    found = await judge(THEIRS, ours).record(SHELVED, live())
    assert found.fate is Fate.KEEP


async def test_where_the_registry_is_not_clear_it_must_wait():
    unclear = an_object({MODEL: "1", f"{PREFIX}name": "nowhere"})
    found = await judge(THEIRS, told=seen(unclear)).record(SHELVED, live(unclear))
    assert (found.fate, found.what) == (Fate.WAITS, "there is no registry nowhere")


async def test_a_wrong_id_is_set_right_where_the_write_is_allowed():
    wrong = an_object({MODEL: "1", ID: "9"})
    found = await judge(OURS).wrong_id(WRONG, live(wrong))
    assert (found.fate, "the object carries '9', not its id" in found.what) == (Fate.RELABEL, True)


@pytest.mark.parametrize(
    ("settings", "status"),
    [(replace(SETTINGS, write_back=WriteBack.OFF), None), (SETTINGS, READY)],
    ids=["write-back is off", "it would cost serving pods"],
)
async def test_a_wrong_id_stays_where_it_is_not(settings, status):
    wrong = an_object({MODEL: "1", ID: "9"}, status=status)
    assert (await judge(OURS, settings=settings).wrong_id(WRONG, live(wrong))).fate is Fate.KEEP


async def test_a_wrong_id_of_an_object_whose_registry_was_not_read_stays():
    wrong = an_object({MODEL: "1", ID: "9", f"{PREFIX}name": "b"})
    found = await judge(OURS).wrong_id(WRONG, live(wrong))
    assert (found.fate, found.what.endswith("registry b was not read")) == (Fate.KEEP, True)
