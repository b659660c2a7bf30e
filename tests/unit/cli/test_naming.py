"""Which other names the records give this cluster."""

from cli.naming import doubt, other_names
from consumer.records import PROPERTY, Identity, Record, Stamp, encode_stamp

US = Identity("typo", "c-1")


def record(cluster: str, cluster_id: str = "c-1", *, deployed: bool | None = True) -> Record:
    stamp = Stamp(cluster, cluster_id, "isvc", "team-a", "iris", "u1", 1, "10")
    return Record("7", "x", "y", "3", "1", deployed=deployed, properties={PROPERTY: encode_stamp(stamp)})


def test_each_other_name_is_found_once():
    records = [record("prod"), record("prod"), record("old", deployed=None), record("typo")]
    assert other_names(records, US) == ("old", "prod")


def test_other_clusters_records_and_predecessors_say_nothing_of_this_one():
    assert other_names([record("other", "c-2"), Record("9", "iris/u1", "", "3", "1", deployed=True)], US) == ()


def test_an_undeployed_record_keeps_a_former_name_for_good():
    assert other_names([record("former", deployed=False)], US) == ()


def test_where_all_agree_nothing_is_said():
    assert doubt((), "prod") == []
