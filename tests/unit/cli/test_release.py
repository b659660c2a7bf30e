"""What `isvc-sync release` shows, and what it refuses before it asks anybody."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from cli.holds import Shown, details, listing, listing_as_data, question, results, results_as_data
from cli.release import Options, run
from shared.holds import Answer, Held, Outcome, hold_of
from shared.objects import Kind, ObjectKey

CLUSTER_ID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


def held(count: int, *, since_s: float = 1_700_000_000, kind: Kind = Kind.ISVC, **others: object) -> Held:
    objects = frozenset((ObjectKey(kind, "payments", f"iris-{number:03}"), f"u{number}") for number in range(count))
    return Held(kind=kind, why="too many are gone", objects=objects, known=480, since_s=since_s, **others)


YOUNG = hold_of(held(120), "producer", CLUSTER_ID)
OLD = hold_of(held(2, since_s=1_600_000_000, kind=Kind.LLMISVC, scope=("a", "b")), "sweep", CLUSTER_ID)
PRODUCER = Answer("pod-1", CLUSTER_ID, ("producer",), (YOUNG,))
SWEEP = Answer("pod-2", CLUSTER_ID, ("sweep",), (OLD,))
BOTH = Shown("prod", (PRODUCER, SWEEP))


def printed(what: object, width: int = 1000) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(what)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [72, 80, 120, 1000])
def test_no_id_and_no_number_is_cut_at_any_width(width):
    lines = printed(listing(BOTH), width)
    assert max(map(len, lines)) <= width
    assert f"{YOUNG.id}  producer  isvc     120 of 480  2023-11-14T22:13:20Z" in lines
    assert f"{OLD.id}  sweep     llmisvc  2 of 480    2020-09-13T12:26:40Z" in lines


def test_the_oldest_hold_comes_first():
    assert [hold.id for hold in BOTH.holds] == [OLD.id, YOUNG.id]


def test_each_hold_is_explained_with_its_reason_scope_and_first_objects():
    lines = printed(listing(BOTH))
    assert f"{OLD.id}: too many are gone (namespaces a, b)" in lines
    assert "    payments/iris-000, payments/iris-001" in lines
    [many] = [line for line in lines if "iris-019" in line]
    assert many.endswith("payments/iris-019 and 100 more")


def test_the_listing_ends_with_the_command_that_releases_it():
    assert printed(listing(BOTH))[-1].endswith(f"isvc-sync release {OLD.id} {YOUNG.id}")


def test_lines_in_a_file_are_not_filled_up_to_its_width():
    console = Console(width=1000, file=io.StringIO(), color_system=None)
    console.print(listing(BOTH))
    lines = console.file.getvalue().splitlines()
    assert max(len(line) for line in lines if "iris-" not in line) < 200


def test_names_are_shown_as_they_are():
    odd = msgspec.structs.replace(YOUNG, why="[bold]x[/] :heart:", scope="[red]")
    assert f"{YOUNG.id}: [bold]x[/] :heart: ([red])" in printed(details(BOTH, [odd]))


def test_nothing_held_says_who_answered_and_who_did_not():
    empty = msgspec.structs.replace(PRODUCER, holds=())
    silence = "No answer from the sweep: what is held back there is not known."
    told = [f"Nothing is shown as held. Answered: producer (pod-1). {silence}"]
    assert printed(listing(Shown("prod", (empty,)))) == told


def test_a_hold_of_two_leaders_is_one_hold_with_two_holders():
    other = msgspec.structs.replace(PRODUCER, holder="pod-3")
    shown = Shown("prod", (PRODUCER, other))
    assert shown.holds == (YOUNG,)
    assert shown.holders_of(YOUNG.id) == ("pod-1", "pod-3")


def test_the_question_says_what_would_be_done():
    assert question(BOTH.holds) == "Release 2 undeployments of LLMInferenceService and 120 deletes of InferenceService?"


def test_each_outcome_is_a_sentence_and_what_failed_leads_back_to_the_list():
    released = "a: released: what is still so at the next look is carried out."
    assert printed(results({"a": Outcome.RELEASED}, ())) == [released]
    said = printed(results({"a": Outcome.RELEASED, "b": Outcome.CHANGED, "c": Outcome.UNKNOWN}, ()))
    assert ["nobody holds it any more" in said[1], "no answer" in said[2]] == [True, True]
    assert said[-1] == "Look again: isvc-sync release"
    silence = "No answer from the producer: what is held back there is not known."
    assert printed(results({"a": Outcome.RELEASED}, ("producer",))) == [released, silence]
    assert printed(results({"c": Outcome.UNKNOWN}, ("producer",)))[-1] == f"{silence} Look again: isvc-sync release"


def test_programs_get_everything():
    found = json.loads(msgspec.json.encode(listing_as_data(BOTH)))
    assert [(hold["id"], hold["clusterId"], hold["count"]) for hold in found["holds"]] == [
        (OLD.id, CLUSTER_ID, 2),
        (YOUNG.id, CLUSTER_ID, 120),
    ]
    assert found["answered"][1] == {"holder": "pod-2", "clusterId": CLUSTER_ID, "parts": ["sweep"]}
    assert (found["cluster"], found["silent"]) == ("prod", [])
    assert results_as_data({"a": Outcome.CHANGED}, ("sweep",)) == {
        "results": [{"id": "a", "outcome": "changed"}],
        "silent": ("sweep",),
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(ids=("a",), everything=True), "give ids or --all, not both"),
        (Options(yes=True), "--yes says nothing without ids or --all"),
        (Options(), "CLUSTER_NAME is not set"),
    ],
    ids=["ids and all", "yes alone", "no cluster name"],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(options, said, capsys):
    assert run(options, {}) == 2
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True)
