"""From a record to the periods of its versions, and what is refused before anybody is asked."""

import pytest
from msgspec.structs import replace
from rich.console import Console

from cli.history import Options, run
from cli.versions import Period, deployment_of, object_listing, of_object, of_version, version_listing
from consumer.records import PROPERTY, Record, Stamp, VersionChange, encode_stamp

STAMP = Stamp(
    cluster="prod",
    cluster_id="c-1",
    kind="isvc",
    namespace="ns",
    name="iris",
    uid="u",
    epoch=1,
    resource_version="7",
    model_version="12",
    deployed_at="T1",
    history=(VersionChange("11", "1", "T1"), VersionChange("", "2", "T2"), VersionChange("12", "3", "T3")),
)


def record(stamp: Stamp) -> Record:
    return Record("1", "iris/u", "kserve:u/1", "3", "1", deployed=True, properties={PROPERTY: encode_stamp(stamp)})


def drawn(what) -> str:
    shown = Console(width=200)
    with shown.capture() as capture:
        shown.print(what)
    return capture.get()


def periods(stamp: Stamp) -> list[Period]:
    found = deployment_of(record(stamp))
    assert found is not None
    return list(found.periods)


def test_a_version_lasts_until_the_next_one_or_the_end():
    assert periods(STAMP) == [Period("11", "T1", "T2"), Period("", "T2", "T3"), Period("12", "T3", "")]
    assert periods(replace(STAMP, undeployed_at="T4"))[-1] == Period("12", "T3", "T4")


def test_an_object_that_never_had_a_version_has_one_period_without():
    assert periods(replace(STAMP, history=(), model_version="", undeployed_at="T4")) == [Period("", "T1", "T4")]


def test_a_return_after_a_stop_is_told_and_a_first_deployment_is_none():
    assert deployment_of(record(STAMP)).returned_at == ""
    assert deployment_of(record(replace(STAMP, deployed_at="T5"))).returned_at == "T5"
    assert deployment_of(record(replace(STAMP, deployed_at="T5", undeployed_at="T6"))).returned_at == ""


def test_a_first_deployment_is_no_return_though_its_event_came_within_the_second_of_its_creation():
    history = (VersionChange("11", "1", "2026-11-30T10:00:02.164Z"),)
    stamp = replace(STAMP, model_version="11", deployed_at="2026-11-30T10:00:02Z", history=history)
    assert deployment_of(record(stamp)).returned_at == ""
    later = replace(stamp, deployed_at="2026-11-30T10:00:03.100Z")
    assert deployment_of(record(later)).returned_at == "2026-11-30T10:00:03.100Z"


def test_a_version_that_ended_before_the_next_one_came_is_told_until_then():
    changes = (VersionChange("11", "1", "T1", until="T2"), VersionChange("12", "3", "T4"))
    assert periods(replace(STAMP, history=changes)) == [Period("11", "T1", "T2"), Period("12", "T4", "")]


def test_a_version_that_was_never_deployed_has_no_period():
    changes = (VersionChange("11", "1", "T1", until="T2"), VersionChange("12", "3", "T3", until="T3"))
    assert periods(replace(STAMP, history=changes, undeployed_at="T2")) == [Period("11", "T1", "T2")]


def test_what_was_created_stopped_and_stayed_so_was_never_deployed():
    stamp = replace(STAMP, history=(VersionChange("12", "1", "T1"),), deployed_at="", undeployed_at="T1")
    assert periods(stamp) == []
    assert of_version([record(stamp)], "12", "") == []
    assert "It was never deployed." in drawn(object_listing(of_object([record(stamp)], "ns", "iris", "")))


def test_clusters_of_one_name_are_told_apart_by_their_ids():
    records = [record(STAMP), record(replace(STAMP, cluster_id="c-2", uid="v"))]
    found = of_object(records, "ns", "iris", "")
    assert [f"cluster prod ({id_})" in drawn(object_listing(found)) for id_ in ("c-1", "c-2")] == [True, True]
    assert "(c-2)" in drawn(version_listing(of_version(records, "12", "")))
    assert "(c-1)" not in drawn(object_listing(found[:1]))


def test_a_cluster_is_chosen_by_its_name_or_its_id():
    records = [record(STAMP), record(replace(STAMP, cluster_id="c-2", uid="v"))]
    assert [len(of_object(records, "ns", "iris", each)) for each in ("prod", "c-2", "other")] == [2, 1, 0]


def test_a_record_of_somebody_else_tells_nothing():
    assert deployment_of(replace(record(STAMP), properties={})) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(), "give either an object, NAMESPACE/NAME, or --version ID"),
        (Options(name="a/b", version="1"), "give either"),
        (Options(name="iris"), "'iris' is not NAMESPACE/NAME"),
        (Options(name="a/b/c"), "'a/b/c' is not NAMESPACE/NAME"),
        (Options(name="a/b"), "REGISTRY_URL"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(options, said, capsys):
    assert run(options, {}) == 2
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True)
