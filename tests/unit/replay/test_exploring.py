"""Whatever a seed brings, a capture ends as its plan says; and what a consumer does wrong is found."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from consumer import reconcile
from consumer.delivery.work import Work
from consumer.discovery import DiscoverySettings
from consumer.handle import Handler
from consumer.reconcile import Reconciler
from replay.capture import Deciding, Facts
from replay.exploring.explorer import Explorer, differences
from replay.exploring.scheduler import FAULTS, Scheduler
from replay.exploring.story import RETURNED, UNRECORDED_END, WAITS, Ending, Story, plan_of
from shared.errors import TransientError
from shared.events import EventType
from tests.unit.replay.explored import GOLDEN, busy, eventful, golden, story_of, with_a_seen_set
from tests.unit.replay.replayed import HEADER, KEY, captured, isvc, ready, story

SEEDS = 6
HOME, AWAY = "http://a.example.com", "http://b.example.com"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))


def found(explorer: Explorer, seeds: int) -> str:
    """Return what the first seed finds that finds anything."""
    return next((each.sentence for each in map(explorer.explore, range(seeds)) if each is not None), "")


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_capture_ends_as_planned_whatever_a_seed_brings(name):
    assert found(Explorer(golden(name), workers=4), 2 if name == "storm" else SEEDS) == ""


def test_a_made_up_capture_ends_as_planned_whatever_a_seed_brings():
    found_in = {seed: found(Explorer(eventful(seed), 1 + seed % 4), seeds=3) for seed in range(40)}
    assert {seed: sentence for seed, sentence in found_in.items() if sentence} == {}


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_it_ends_as_planned_with_any_number_of_workers(workers):
    assert found(Explorer(story_of(*busy(6, 5)), workers), SEEDS) == ""


def test_every_fault_strikes_in_a_hundred_seeds():
    explorer = Explorer(golden("rejected"), workers=2)
    assert found(explorer, 100) == ""
    assert FAULTS.keys() - explorer.struck.keys() == set()


def test_a_seed_is_the_same_exploration_in_every_process():
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.unit.replay.explored import golden\n"
        "from replay.exploring.explorer import Explorer\n"
        "explorer = Explorer(golden('labels-come-and-go'), 4)\n"
        "print([explorer.explore(seed) for seed in range(8)], sorted(explorer.struck.items()))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_a_choice_does_not_depend_on_what_else_is_chosen():
    alone, beside = Scheduler(3), Scheduler(3)
    beside.draw("something else")
    assert [alone.draw("this") for _ in range(3)] == [beside.draw("this") for _ in range(3)]


def with_an_ack_before_the_effect(patch):
    real = Handler.handle

    async def ack_first(self, work):
        if work.attempt == 1:
            await work.message.ack()
        return await real(self, work)

    patch.setattr(Handler, "handle", ack_first)


def with_memory_before_the_effect(patch):
    real = Reconciler.reconcile

    async def remember_first(self, seen, how):
        known = self.memory.get(seen.uid)
        try:
            return await real(self, seen, how)
        except TransientError:
            if known is not None:
                inputs = reconcile.inputs_of(seen, self._settings)
                self.memory.put(seen.uid, replace(known, inputs=inputs, digest=seen.digest, freshness=seen.freshness))
            raise

    patch.setattr(Reconciler, "reconcile", remember_first)


def with_one_slot_for_all_uids_of_a_name(patch):
    patch.setattr(Work, "uid", property(lambda self: "" if self.seen is None else str(self.key)))


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (with_a_seen_set, "outage"),
        (with_an_ack_before_the_effect, "delete-recreate"),
        (with_memory_before_the_effect, "delete-recreate"),
        (with_one_slot_for_all_uids_of_a_name, "delete-recreate"),
    ],
)
def test_exploring_finds_a_consumer(mutant, name, monkeypatch):
    explorer = Explorer(golden(name), workers=4)
    mutant(monkeypatch)
    assert found(explorer, 60) != ""


def test_a_fault_of_the_program_is_a_finding(monkeypatch):
    async def broken(*_):
        raise ZeroDivisionError("of ours")

    explorer = Explorer(story_of(*story()), workers=1)
    monkeypatch.setattr(Reconciler, "reconcile", broken)
    finding = explorer.explore(0)
    assert finding is not None
    assert "of ours" in finding.fault


# what is compared


def test_a_record_too_many_and_one_too_few_are_differences():
    plan = plan_of(story_of(*story()))
    here, *_ = plan.ending.records
    records = {place: said for place, said in plan.ending.records.items() if place != here}
    records["registry", "team-a", "nobody/u-9"] = "u-9", {"state": "DEPLOYED"}
    shown = [(each.where, each.planned, each.found) for each in differences(plan, Ending(records, {}))]
    assert shown == [
        (" ".join(("record", *here)), "a record", "no record"),
        ("record registry team-a nobody/u-9", "no record", "a record"),
    ]


def test_another_word_in_a_record_is_a_difference():
    plan = plan_of(story_of(*story()))
    records = {place: (uid, {**said, "state": "?"}) for place, (uid, said) in plan.ending.records.items()}
    assert {each.field for each in differences(plan, Ending(records, {}))} == {"state"}


def test_a_dead_letter_for_nothing_is_a_difference():
    plan = plan_of(story_of(*story()))
    ending = Ending(plan.ending.records, {KEY: "why"})
    assert [(each.where, each.field) for each in differences(plan, ending)] == [(str(KEY), "dead letter")]


def test_a_dead_letter_of_what_does_not_decode_is_not_compared():
    broken = replace(story()[0], data=b"[]")
    plan = plan_of(story_of(broken, *story()[1:]))
    assert list(differences(plan, Ending(plan.ending.records, {KEY: "why"}))) == []


def test_a_version_and_a_runtime_that_the_last_state_does_not_name_are_not_compared():
    obj = isvc(KEY, "u-1", 50, registered_model_id="1", model_version_id="10")
    bare = isvc(KEY, "u-1", 51, registered_model_id="1")
    plan = plan_of(story_of(captured(1, ready(obj), EventType.CREATED), captured(2, bare)))
    ((_, said),) = plan.ending.records.values()
    assert not {"version", "runtime"} & said.keys()


def test_they_are_compared_where_it_names_them():
    obj = isvc(KEY, "u-1", 50, registered_model_id="1", model_version_id="10")
    plan = plan_of(story_of(captured(1, ready(obj), EventType.CREATED)))
    ((_, said),) = plan.ending.records.values()
    assert (said["version"], said["runtime"]) == ("10", "kserve-sklearnserver")


def test_whether_an_object_was_going_when_a_former_models_record_was_closed_is_not_compared():
    first = captured(1, isvc(KEY, "u-1", 50, registered_model_id="1"), EventType.CREATED)
    second = captured(2, isvc(KEY, "u-1", 51, registered_model_id="2"), models=("1", "2"))
    plan = plan_of(story_of(first, second))
    assert {said["model"]: "deleted" in said for _, said in plan.ending.records.values()} == {"1": False, "2": True}


def test_of_an_object_that_moved_only_the_last_registry_is_compared():
    plan = plan_of(golden("two-registries"))
    ((uid, home),) = plan.unsaid.homes.items()
    assert {place[0] for place, (of, _) in plan.ending.records.items() if of == uid} == {home}


def test_an_end_without_a_label_and_told_before_a_late_event_is_left_out():
    first = captured(1, isvc(KEY, "u-1", 50, registered_model_id="1"), EventType.CREATED)
    gone = captured(2, isvc(KEY, "u-1", 60), EventType.DELETED, models=())
    late = captured(3, isvc(KEY, "u-1", 55, registered_model_id="1"))
    plan = plan_of(story_of(first, gone, late))
    assert plan.left_out == {"u-1": UNRECORDED_END}
    assert list(differences(plan, Ending({}, {}))) == []
    assert plan_of(story_of(first, late, gone)).left_out == {}


def asking(deciding: Deciding, *urls: str) -> Story:
    """Return the story of an object that asks for one registry after the other, "" for the default one."""
    events = []
    for number, url in enumerate(urls, start=1):
        obj = isvc(KEY, "u-1", 50 + number, registered_model_id="1")
        if url:
            obj["metadata"]["annotations"][f"{deciding.prefix}url"] = url
        what = EventType.UPDATED if events else EventType.CREATED
        events.append(captured(number, obj, what, at_s=number))
    facts = tuple(Facts(registry=name, models=("1",)) for name in (HOME, AWAY))
    return Story(replace(HEADER, deciding=deciding), facts, tuple(events))


def discovering(url: str | None) -> Deciding:
    return Deciding(discovery=DiscoverySettings(prefix=Deciding().prefix, url=url, allowed_hosts=("b.example.com",)))


def test_an_object_that_goes_back_to_a_former_registry_is_left_out():
    assert plan_of(asking(discovering(HOME), "", AWAY)).left_out == {}
    assert plan_of(asking(discovering(HOME), "", AWAY, "")).left_out == {"u-1": RETURNED}


def test_what_can_only_be_tried_again_is_left_out_and_is_no_reason_not_to_rest():
    explorer = Explorer(asking(discovering(None), ""), workers=2)
    assert explorer.plan.left_out == {"u-1": WAITS}
    assert found(explorer, SEEDS) == ""
