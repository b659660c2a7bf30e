"""What `isvc-sync drift` shows of a survey."""

import io
import json

import msgspec
import pytest
from rich.console import Console

from cli.differences import Shown, as_data, listing, reasons
from consumer.sweep.compare import Difference, Reason, triage
from consumer.sweep.survey import RegistryFound, Survey
from shared.objects import Kind, ObjectKey

LONG = "a-deployment-with-a-rather-long-name-as-they-are-in-real-life"


def difference(name: str, reason: Reason, repair: str, **others: object) -> Difference:
    return Difference(ObjectKey(Kind.ISVC, "payments", name), f"uid-of-{name}", reason, (repair,), **others)


STATE = difference("iris", Reason.STATE, "change the record: the record says otherwise in desiredState")
STRAY = difference(LONG, Reason.UNKNOWN, "undeploy: no event tells of this object", undeploys=True)
WAITS = difference("busy", Reason.DEFERRED, "write the id later")
AWAY = RegistryFound("ml/second", error="GET /inference_services: no answer")
HERE = RegistryFound("kubeflow/first", 20, 12)


def shown(*differences: Difference, registries=(HERE,), skipped: int = 0, unsynced=()) -> Shown:
    survey = Survey(registries, 14, skipped, differences, {Kind.ISVC: 10}, unsynced)
    return Shown("prod", "c-1", survey, triage(differences, survey.deployed))


def printed(what: Shown, width: int = 1000) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(listing(what))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_agreement_is_one_sentence():
    assert printed(shown()) == [
        "Cluster prod, id c-1: 12 records in 1 registry, 14 objects in the stream, no difference."
    ]


def test_each_difference_is_a_row_with_its_repair():
    lines = printed(shown(STATE, STRAY))
    assert [line.split()[0] for line in lines[1:3]] == [f"isvc/payments/{LONG}", "isvc/payments/iris"]
    assert lines[2].endswith("wrong state            " + STATE.repairs[0])
    assert lines[-1].endswith("2 differences.")


@pytest.mark.parametrize("width", [72, 80, 120])
def test_nothing_is_cut_at_any_width(width):
    lines = printed(shown(STATE, STRAY), width)
    edge = lines[0].index("What is wrong")
    assert max(map(len, lines)) <= width
    assert f"isvc/payments/{LONG}" in "".join(line[:edge].strip() for line in lines)


def test_a_write_back_that_waits_is_told_and_is_no_difference():
    lines = printed(shown(WAITS))
    assert lines == [
        "Cluster prod, id c-1: 12 records in 1 registry, 14 objects in the stream, no difference.",
        "1 write-back of an id must wait, by WRITE_BACK: this is no drift.",
    ]


def test_what_is_held_is_marked_and_leads_to_the_command_that_releases_it():
    many = [difference(f"o{number}", Reason.GONE, "undeploy", undeploys=True) for number in range(6)]
    lines = printed(shown(*many))
    assert sum("HELD: undeploy" in line for line in lines) == 6
    assert lines[-1].startswith("HELD: 6 undeployments at once are too many.")
    assert lines[-1].endswith("isvc-sync release")


def test_what_no_marker_confirms_is_marked():
    lines = printed(shown(msgspec.structs.replace(STRAY, confirmed=False), unsynced=(Kind.ISVC,)))
    assert any("UNCONFIRMED: undeploy" in line for line in lines)
    assert lines[-1].startswith("UNCONFIRMED: 1 undeployment must wait")


def test_what_the_marker_leaves_out_is_told_with_its_namespaces_and_is_no_difference():
    left_out = msgspec.structs.replace(STRAY, confirmed=False)
    lines = printed(shown(left_out))
    assert lines[0].endswith("14 objects in the stream, no difference.")
    [told] = lines[1:]
    assert told.startswith("1 object deployed in namespaces that the producer leaves out, by NAMESPACES (payments): ")
    assert told.endswith("This is no drift.")
    found = as_data(shown(left_out))
    assert (found["differences"], [each["name"] for each in found["unwatched"]]) == ([], [LONG])


def test_where_no_registry_was_read_nothing_is_said_to_agree():
    [compared, _] = printed(shown(registries=(AWAY,)))
    assert compared.endswith("0 records in 0 registries, 14 objects in the stream, nothing could be compared.")


def test_other_names_of_this_cluster_are_told():
    named = msgspec.structs.replace(shown(STRAY), other_names=("a", "b"))
    assert "Check CLUSTER_NAME: records of this cluster's id say 'a', 'b', CLUSTER_NAME is 'prod'." in printed(named)
    assert as_data(named)["namedInRecords"] == ("a", "b")


def test_what_could_not_be_read_is_told():
    lines = printed(shown(registries=(HERE, AWAY), skipped=3))
    assert "Not read: ml/second: GET /inference_services: no answer" in lines
    assert lines[-1] == "3 objects could not be judged: no registry, or it was not read."


def test_the_question_counts_by_reason():
    assert reasons((STATE, STATE, STRAY)) == "1 x unknown, but deployed, 2 x wrong state"


def test_programs_get_everything():
    many = [difference(f"o{number}", Reason.GONE, "undeploy", undeploys=True) for number in range(6)]
    found = json.loads(msgspec.json.encode(as_data(shown(STATE, WAITS, *many, registries=(HERE, AWAY)))))
    assert [each["reason"] for each in found["differences"]] == ["wrong state", *["gone, but deployed"] * 6]
    assert [each["kept"] for each in found["differences"]] == [None, *["held"] * 6]
    assert (found["cluster"], found["clusterId"], found["deferredWriteBacks"]) == ("prod", "c-1", 1)
    assert found["registries"][1] == {
        "name": "ml/second",
        "records": 0,
        "ours": 0,
        "error": "GET /inference_services: no answer",
    }
