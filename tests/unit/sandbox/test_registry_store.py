"""The tables behind the registry: ids, unique keys, snapshots, and the order of pages."""

import itertools

import pytest

from sandbox.registry.errors import DatabaseError, DuplicateKeyError
from sandbox.registry.kinds import INFERENCE_SERVICE, REGISTERED_MODEL, SERVE_MODEL, SERVING_ENVIRONMENT
from sandbox.registry.records import Registry
from sandbox.registry.store import Draft, Page, PropertyTooLongError, Row, Store
from sandbox.registry.switches import fold_mysql


def new_store(**options):
    ticks = itertools.count(1000)
    return Store(now_ms=lambda: next(ticks), **options)


def model(name, **fields):
    return Draft(kind=REGISTERED_MODEL, name=name, **fields)


def test_one_counter_numbers_all_kinds_of_a_table():
    store = new_store()
    kinds = (REGISTERED_MODEL, SERVING_ENVIRONMENT, INFERENCE_SERVICE, SERVE_MODEL)
    assert [store.insert(Draft(kind=kind, name="x")).id for kind in kinds] == [1, 2, 3, 1]


def test_a_failed_insert_uses_up_an_id():
    store = new_store()
    store.insert(model("a"))
    with pytest.raises(DuplicateKeyError):
        store.insert(model("a"))
    assert store.insert(model("b")).id == 3


def test_a_value_that_is_too_long_uses_up_an_id_only_once_the_statement_runs_with_a_general_plan():
    store = new_store()
    long_name = "n" * 256
    with pytest.raises(DatabaseError, match="value too long"):
        store.insert(model(long_name))
    for number in range(5):
        store.insert(model(f"m{number}"))
    for _ in range(2):
        with pytest.raises(DatabaseError, match="value too long"):
            store.insert(model(long_name))
    assert store.insert(model("last")).id == 7


def test_names_are_unique_in_their_kind_and_external_ids_in_their_table():
    store = new_store()
    store.insert(model("a", external_id="x"))
    store.insert(Draft(kind=SERVING_ENVIRONMENT, name="a"))
    store.insert(Draft(kind=SERVE_MODEL, name="a", external_id="x"))
    with pytest.raises(DuplicateKeyError, match="external id"):
        store.insert(Draft(kind=SERVING_ENVIRONMENT, name="b", external_id="x"))


def test_an_update_may_keep_its_keys_and_frees_an_external_id():
    store = new_store()
    row = store.insert(model("a", external_id="x"))
    store.update(row)
    changed = Row(**{**{field: getattr(row, field) for field in row.__struct_fields__}, "external_id": "y"})
    store.update(changed)
    assert store.insert(model("b", external_id="x")).external_id == "x"


def test_a_row_that_was_read_does_not_change_under_its_reader():
    store = new_store()
    row = store.insert(model("a", fields={"owner": "ana"}))
    store.update(Row(**{**{field: getattr(row, field) for field in row.__struct_fields__}, "fields": {"owner": "bo"}}))
    assert row.fields == {"owner": "ana"}
    assert store.get(REGISTERED_MODEL, row.id).fields == {"owner": "bo"}


def test_a_property_key_has_255_characters():
    store = new_store()
    store.insert(model("fits", properties={"k" * 255: {}}))
    with pytest.raises(PropertyTooLongError):
        store.insert(model("not", properties={"k" * 256: {}}))


def test_length_is_counted_in_characters():
    assert new_store().insert(model("日" * 255)).id == 1


def test_mysql_takes_names_for_equal_that_differ_in_case():
    store = new_store(fold=fold_mysql)
    row = store.insert(model("iris"))
    with pytest.raises(DuplicateKeyError):
        store.insert(model("IRIS"))
    assert list(store.by_name(REGISTERED_MODEL, "IR%", None)) == [row]


def test_restored_rows_keep_their_ids_and_new_ones_go_on_above():
    store = new_store()
    row = new_store().insert(model("a"))
    store.restore(Row(**{**{field: getattr(row, field) for field in row.__struct_fields__}, "id": 41}))
    assert store.get(REGISTERED_MODEL, 41).name == "a"
    assert store.insert(model("b")).id == 42


def pages(store, size, **order):
    """All pages of models, with the token made as the server makes it."""
    seen, after = [], None
    while True:
        rows, more = store.page(REGISTERED_MODEL, None, None, Page(size=size, after=after, **order))
        seen += [row.id for row in rows]
        if not more:
            return seen
        time = {"CREATE_TIME": rows[-1].created_ms, "LAST_UPDATE_TIME": rows[-1].updated_ms}
        after = (rows[-1].id, str(time.get(order["order_by"], rows[-1].id)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order_by", ["ID", "CREATE_TIME", "LAST_UPDATE_TIME"])
def test_pages_hold_every_row_once_while_times_differ(size, descending, order_by):
    store = new_store()
    ids = [store.insert(model(f"m{number}")).id for number in range(7)]
    assert pages(store, size, order_by=order_by, descending=descending) == (ids[::-1] if descending else ids)


@pytest.mark.parametrize("descending", [False, True])
def test_rows_of_one_millisecond_are_lost_by_a_scan_in_time_order_and_never_in_id_order(descending):
    store = Store(now_ms=lambda: 1000)
    ids = {store.insert(model(f"m{number}")).id for number in range(30)}
    assert set(pages(store, 7, order_by="CREATE_TIME", descending=descending)) < ids
    assert set(pages(store, 7, order_by="ID", descending=descending)) == ids


def test_a_cursor_whose_value_is_no_number_is_an_error_of_the_database():
    with pytest.raises(DatabaseError, match="SQLSTATE"):
        new_store().page(REGISTERED_MODEL, None, None, Page(after=(1, "x")))


def test_clearing_begins_again_at_id_1():
    store = new_store()
    store.insert(model("a"))
    store.clear()
    assert (store.insert(model("a")).id, store.count(REGISTERED_MODEL)) == (1, 1)


def test_seeded_rows_of_different_kinds_may_share_an_id_as_recorded_stories_do():
    registry = Registry(new_store())
    registry.seed(1, {"registered_models": [{"id": "1", "name": "m"}]})
    registry.seed(1, {"model_versions": [{"id": "1", "name": "v", "registeredModelId": "1", "externalId": "x"}]})
    assert [registry.records(kind)[0]["id"] for kind in ("registered_models", "model_versions")] == ["1", "1"]
    with pytest.raises(ValueError, match="id 1 is taken"):
        registry.seed(1, {"registered_models": [{"id": "1", "name": "other"}]})
