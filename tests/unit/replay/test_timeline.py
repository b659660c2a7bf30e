"""What the timeline page is given of a capture."""

from pathlib import Path

import msgspec
import pytest

from replay.capture import Action, Captured, Facts
from replay.planning import Planner
from replay.steps import Step, Taken
from replay.timeline.data import INITIAL, LOOK, SYNTHETIC, Page
from replay.timeline.lanes import Timeline
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from tests.unit.replay import captures

EVENT = captures.first_event()
KEY = EVENT.event.key
STORIES = sorted(path.stem for path in captures.STORIES.glob("*.jsonl"))


def event(time="2026-12-01T00:00:00Z", seq=1, *, stored="", **told):
    changed = msgspec.structs.replace(EVENT.event, time=time, **told)
    position = msgspec.structs.replace(EVENT.position, seq=seq, time=stored)
    return msgspec.structs.replace(EVENT, event=changed, position=position, initial=False)


def step(line, **told):
    found = line.event
    return Step(
        **{
            "seq": line.position.seq,
            "time": found.time,
            "key": found.key,
            "uid": found.uid,
            "type": found.type,
            "resource_version": found.resource_version,
            "result": "applied",
        }
        | told
    )


def page(*lines, only=None, cut=None):
    timeline = Timeline(captures.HEADER, only)
    for line in lines:
        if isinstance(line, Action):
            timeline.action(line)
        elif isinstance(line, tuple):
            timeline.event(*line)
        else:
            timeline.event(line, step(line))
    return timeline.page(cut)


def action(**told):
    return Action(**{"event": 1, "object": str(KEY), "kind": "UpdateRecord", "time": "2026-12-01T00:00:01Z"} | told)


def text(found: Page, column: str) -> list[str]:
    return [found.texts[number] for number in getattr(found.events, column)]


def times(found: Page) -> list[int]:
    moments, now = [], found.start
    for each in found.events.at:
        now += each
        moments.append(now)
    return moments


def test_events_are_in_the_order_of_time():
    found = page(event("2026-12-01T00:00:02Z", 1), event("2026-12-01T00:00:01.000005Z", 2))
    assert found.events.seq == [2, 1]
    assert times(found) == [1_796_083_201_000_005, 1_796_083_202_000_000]


def test_events_of_one_moment_stay_in_the_order_of_the_stream():
    assert page(event(seq=5), event(seq=3)).events.seq == [5, 3]


def test_an_event_without_a_time_stands_where_the_one_before_stood():
    assert page(event("2026-12-01T00:00:02Z", 1), event("", 2)).events.at == [0, 0]


def test_a_first_event_without_a_time_stands_where_the_capture_was_made():
    assert page(event("", 1)).start == 1_796_040_000_000_000


def test_a_text_is_held_once():
    found = page(event(seq=1), event(seq=2))
    assert found.events.uid[0] == found.events.uid[1]
    assert len(found.texts) == len(set(found.texts))


def test_an_object_has_one_lane():
    found = page(event(seq=1), event(seq=2), event(seq=3, key=ObjectKey(Kind.LLMISVC, KEY.namespace, KEY.name)))
    assert found.events.object == [0, 0, 1]
    assert [[found.texts[n] for n in each] for each in found.objects] == [
        ["isvc", KEY.namespace, KEY.name],
        ["llmisvc", KEY.namespace, KEY.name],
    ]


def test_what_was_decided_is_told_with_its_reason():
    line = event()
    taken = (Taken("CreateRecord", "no record says so", "7", "main", {"deployed": True, "environment": "prod"}),)
    found = page((line, step(line, taken=taken, result="applied", model="1")))
    ((*told, fields),) = found.events.taken[0]
    assert [found.texts[number] for number in told] == ["CreateRecord", "no record says so", "7", "main"]
    assert found.texts[fields] == "deployed: true\nenvironment: prod"


def test_our_own_property_is_left_out_and_others_are_plain():
    line = event()
    properties = {
        "isvc-sync": {"metadataType": "MetadataStringValue", "string_value": "{}"},
        "url": {"metadataType": "MetadataStringValue", "string_value": "http://x"},
        "count": {"int_value": "4"},
    }
    found = page((line, step(line, taken=(Taken("UpdateRecord", "", fields={"properties": properties}),))))
    assert found.texts[found.events.taken[0][0][-1]] == 'property url: http://x\nproperty count: {"int_value":"4"}'


def test_labels_and_readiness_are_the_state():
    ready = next(
        line for line in captures.story("create-ready-delete") if isinstance(line, Captured) and b'"Ready"' in line.data
    )
    (state,) = text(page(ready), "state")
    assert "modelregistry.kubeflow.org/registered-model-id=" in state
    assert "\nReady=" in state


def test_an_event_that_does_not_decode_is_shown_all_the_same():
    line = msgspec.structs.replace(event(), data=b"[]")
    found = page((line, step(line, result="dead", reason="does not decode")))
    assert (text(found, "state"), text(found, "result")) == ([""], ["dead"])


def test_long_texts_are_shortened():
    line = event()
    (reason,) = text(page((line, step(line, reason="x" * 10_000))), "reason")
    assert len(reason) == 600
    assert reason.endswith("x…")


@pytest.mark.parametrize("char", ["\u202e", "\u200b", "\x00", "\x1b", "\u2028", "\t"])
def test_what_cannot_be_seen_is_shown_by_its_number(char):
    line = event()
    assert text(page((line, step(line, reason=f"a{char}b"))), "reason") == [f"a\\u{ord(char):04x}b"]


def test_what_is_not_plain_in_an_event_is_a_flag():
    initial = msgspec.structs.replace(event(seq=1), initial=True)
    found = page(initial, event(seq=2, corrects=0), event(seq=3))
    assert found.events.flags == [INITIAL, SYNTHETIC, 0]


def test_a_look_is_shown_as_one():
    timeline = Timeline(captures.HEADER)
    timeline.event(event(), step(event()))
    timeline.look(step(event(), look=True, time="2026-12-01T00:01:00Z"))
    found = timeline.page()
    assert (found.events.flags, found.events.at) == ([0, LOOK], [0, 60_000_000])


def test_the_way_to_the_stream_is_told():
    assert page(event("2026-12-01T00:00:00Z", stored="2026-12-01T00:00:00.025Z")).events.stored == [25_000]


def test_the_latency_ends_with_the_last_thing_done():
    found = page(event(), action(ms=20.0), action(kind="ack", time="2026-12-01T00:00:01.5Z", ms=1.0))
    assert found.events.latency == [1_501_000]


def test_the_latency_does_not_depend_on_the_order_of_the_lines():
    found = page(action(kind="ack", time="2026-12-01T00:00:01.5Z"), action(), event())
    assert found.events.latency == [1_500_000]


@pytest.mark.parametrize("time", ["", "2026-11-30T23:59:59Z"], ids=["none", "before the event"])
def test_without_a_time_that_can_be_there_is_no_latency(time):
    assert page(event(), action(time=time)).events.latency == [None]


def test_without_action_lines_there_is_no_latency():
    assert page(event()).events.latency == [None]


def test_an_action_belongs_to_the_event_with_its_sequence():
    found = page(event(seq=1), event("2026-12-01T00:00:05Z", 2), action(event=2), action(event=9), action(event=0))
    assert found.actions.event == [1, -1, -1]


def test_an_action_of_an_event_that_is_not_known_belongs_to_none():
    found = page(event(seq=0), action(event=0))
    assert (found.actions.event, found.events.latency) == ([-1], [None])


def test_an_action_belongs_to_the_event_and_not_to_a_later_look():
    timeline = Timeline(captures.HEADER)
    timeline.event(event(), step(event()))
    timeline.look(step(event(), look=True, time="2026-12-01T00:01:00Z"))
    timeline.action(action())
    assert timeline.page().actions.event == [0]


def test_actions_are_in_the_order_of_time():
    found = page(event(), action(time="2026-12-01T00:00:03Z"), action(time="2026-12-01T00:00:02Z"))
    assert found.actions.at == [2_000_000, 3_000_000]


def test_a_field_is_one_line_and_there_are_ten_of_them():
    line = event()
    fields = {f"name{number}": "a\nb" for number in range(30)}
    found = page((line, step(line, taken=(Taken("UpdateRecord", "", fields=fields),))))
    assert found.texts[found.events.taken[0][0][-1]].splitlines() == [f"name{number}: a b" for number in range(10)]


def test_redeliveries_are_counted():
    found = page(event(), action(kind="retry"), action(kind="retry"), action(kind="ack"))
    assert found.events.retries == [2]


def test_a_dead_letter_that_was_told_is_one_whatever_would_be_decided_now():
    found = page(event(), action(kind="dead", reason="the model is gone"))
    assert (text(found, "result"), text(found, "reason")) == (["dead"], ["the model is gone"])


def test_a_dead_letter_without_a_reason_keeps_the_decided_one():
    line = event()
    found = page((line, step(line, result="dead", reason="no such model")), action(kind="dead"))
    assert text(found, "reason") == ["no such model"]


def test_actions_before_all_events_begin_the_page():
    found = page(event("2026-12-01T00:00:05Z"), action(event=0, time="2026-12-01T00:00:01Z"))
    assert (found.start, found.events.at, found.actions.at) == (1_796_083_201_000_000, [4_000_000], [0])


def test_only_the_wanted_objects_are_shown():
    other = ObjectKey(Kind.ISVC, "other", "one")
    found = page(event(seq=1), event(seq=2, key=other), action(object=str(other)), only=frozenset({("other", "one")}))
    assert (found.events.seq, found.actions.event, found.about.only) == ([2], [-1], "other/one")


def test_where_the_file_was_cut_is_told():
    assert page(cut="line 3 stops in the middle").about.cut == "line 3 stops in the middle"


def test_nothing_at_all_is_a_page_too():
    assert page().events.at == []


@pytest.mark.parametrize("name", STORIES)
def test_every_recorded_story_has_each_event_once(name):
    planner, timeline, seen = Planner(captures.HEADER), Timeline(captures.HEADER), 0
    for line in captures.story(name):
        match line:
            case Facts():
                planner.facts(line)
            case Captured():
                *_, decided = planner.decide(line)
                timeline.event(line, decided)
                seen += 1
    found = timeline.page()
    lengths = {len(getattr(found.events, column)) for column in found.events.__struct_fields__}
    assert lengths == {seen}
    assert seen > 0
    assert msgspec.json.decode(msgspec.json.encode(found), type=Page) == found


def test_the_page_says_where_the_events_come_from(tmp_path: Path):
    about = page().about
    assert (about.cluster, about.source, about.redaction) == ("prod", "watch-file", "reduced")


def test_a_deleted_object_is_told_by_the_type():
    assert text(page(event(type=EventType.DELETED)), "type") == ["deleted"]
