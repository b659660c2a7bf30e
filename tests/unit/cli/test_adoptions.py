"""What people and programs see of a predecessor's leavings."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from cli.migration.adoptable import Fate, finalizers_on, judged, sort_records, triaged
from cli.migration.adopting import Found
from cli.migration.adoptions import as_data, is_left, listing, question
from cli.migration.controllers import Controller
from consumer.sweep.survey import RegistryFound
from tests.unit.cli.lives import live, theirs

ODH = "modelregistry.opendatahub.io/finalizer"
IRIS = live(1, "team-a/a-deployment-with-a-rather-long-name-as-they-are-in-real-life", finalizers=(ODH,))
ADOPTED = judged(theirs(1, IRIS.key.name), IRIS, Fate.ADOPT, "change the record: it says otherwise in externalId")
[ORPHAN] = sort_records([theirs(2, "rose", record_id="8")], {}).orphans
[HELD_BACK] = finalizers_on([IRIS], wanted=False)
RUNS = Controller("kubeflow", "controller", "INFERENCE_SERVICE_CONTROLLER=managed")
NOTHING = Found(
    cluster="prod",
    cluster_id="c-1",
    controllers=(),
    unchecked="",
    findings=(),
    registries=(RegistryFound("http://mr", 12, 4),),
    objects=3,
    elsewhere=0,
    others=(),
    prefixes={},
    orphans_max=5,
)
ALL = replace(NOTHING, findings=(ADOPTED, ORPHAN, HELD_BACK))


def printed(found: Found, width: int = 1000) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(listing(found))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_where_nothing_is_left_one_sentence_says_so():
    assert printed(NOTHING) == [
        "Cluster prod, id c-1: 12 records in 1 registry, 3 objects, nothing of a predecessor left."
    ]


def test_where_no_registry_was_read_nothing_is_said_to_be_left_or_not():
    away = replace(NOTHING, registries=(RegistryFound("http://mr", error="no answer"),))
    assert printed(away) == [
        "Cluster prod, id c-1: 0 records in 0 registries, 3 objects, nothing could be compared.",
        "Not read: http://mr: no answer",
    ]


def test_each_finding_is_a_row_with_its_record_fate_and_reason():
    rows = [line.split(maxsplit=3) for line in printed(ALL)[1:4]]
    assert rows[0] == [str(IRIS.key), "7", "adopt", ADOPTED.what]
    assert [row[1:3] for row in rows[1:]] == [["8", "orphan"], ["-", "finalizer"]]


@pytest.mark.parametrize("width", [72, 80, 120])
def test_nothing_is_cut_at_any_width(width):
    lines = printed(ALL, width)
    edge = lines[0].index("Record")
    assert max(map(len, lines)) <= width
    assert str(IRIS.key) in "".join(line[:edge].strip() for line in lines)


def test_the_way_to_each_further_deed_is_named():
    text = "\n".join(printed(ALL))
    assert "If they were this cluster's, and only then: --undeploy-orphans" in text
    assert "1 object cannot be deleted without a predecessor: --strip-finalizers" in text


def test_what_speaks_for_another_cluster_is_told_with_the_orphans():
    text = "\n".join(printed(replace(ALL, others=("c-2",), elsewhere=2)))
    assert "Other clusters do write to it: c-2." in text
    assert "2 records in environments that are no namespace here: left alone." in text


def test_held_orphans_say_how_many_they_are_and_how_to_mean_it():
    held = replace(NOTHING, findings=triaged([ORPHAN] * 6, 5, wanted=True))
    assert "HELD: 6 at once are more than 5." in "\n".join(printed(held))
    assert printed(held)[-1].endswith("--undeploy-orphans --max-orphans 6")


def test_a_predecessor_that_runs_is_named_with_the_way_out():
    [sentence] = [line for line in printed(replace(NOTHING, controllers=(RUNS,))) if line.startswith("RUNNING")]
    assert "kubeflow/controller (INFERENCE_SERVICE_CONTROLLER=managed)" in sentence
    assert "kubectl -n kubeflow scale deployment controller --replicas=0" in sentence


def test_in_several_registries_a_record_is_named_with_its_own():
    two = replace(ALL, registries=(*NOTHING.registries, RegistryFound("ml/second", error="no answer")))
    assert "7 in http://mr" in printed(two)[1]
    assert "Not read: ml/second: no answer" in printed(two)


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (NOTHING, False),
        (replace(NOTHING, findings=(replace(ADOPTED, fate=Fate.KEEP),)), False),
        (replace(NOTHING, findings=(replace(ADOPTED, fate=Fate.WAITS),)), True),
        (replace(NOTHING, findings=(ORPHAN,)), True),
        (replace(NOTHING, controllers=(RUNS,)), True),
    ],
)
def test_what_is_kept_does_not_count_as_left(found, left):
    assert is_left(found) is left


def test_the_question_says_every_deed():
    deeds = (ADOPTED, ADOPTED, replace(ORPHAN, fate=Fate.UNDEPLOY), replace(HELD_BACK, fate=Fate.STRIP))
    assert question(deeds) == "Adopt 2 records, undeploy 1 orphan, strip the finalizers of 1 object?"


def test_programs_get_the_finalizers_and_no_record_where_there_is_none():
    last = as_data(ALL)["findings"][2]
    assert (last["record"], last["registry"], last["finalizers"], last["fate"]) == (None, None, (ODH,), "finalizer")
