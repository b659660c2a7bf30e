"""From a record to the periods of its versions, and what is refused before anybody is asked."""

import pytest
from msgspec.structs import replace

from cli.history import Options, run
from cli.versions import Period, deployment_of
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
