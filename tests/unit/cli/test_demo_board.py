"""The demo's table: objects beside records."""

from msgspec.structs import replace

from cli.demo.board import rows
from tests.unit.cli.demo_world import right


def test_the_lives_of_an_object_stand_below_each_other_with_a_record_each():
    assert [(row.name, row.ready, row.record, row.state) for row in rows(right().seen)] == [
        ("payments/scorer", "True", "11", "DEPLOYED"),
        ("payments/iris", "gone", "12", "UNDEPLOYED"),
        ("payments/iris", "True", "13", "DEPLOYED"),
        ("payments/late", "gone", "14", "UNDEPLOYED"),
        ("payments/knative", "True", "15", "DEPLOYED"),
        ("payments/free", "True", "-", "-"),
        ("payments/orphan", "True", "-", "-"),
    ]


def test_a_row_shows_names_and_not_ids_of_versions_and_the_url_without_its_scheme():
    row = rows(right().seen)[0]
    assert (row.version, row.url, row.write_back, row.latency) == ("v1", "scorer.example.com", "written", "-")


def test_an_id_is_written_deferred_or_neither():
    shown = {row.record: row.write_back for row in rows(right().seen)}
    assert (shown["13"], shown["15"]) == ("written", "deferred")
    [knative] = [life for life in right().seen.lives if life.mode == "Knative"]
    gone = replace(knative, gone=True)
    assert [row.write_back for row in rows(replace(right().seen, lives=(gone,)))] == ["-"]
