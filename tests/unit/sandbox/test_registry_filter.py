"""filterQuery: what it selects, and what it refuses."""

import pytest

from sandbox.registry import filter as filter_query
from sandbox.registry.errors import ApiError, DatabaseError
from sandbox.registry.kinds import MODEL_VERSION, REGISTERED_MODEL
from sandbox.registry.store import Draft, Store

STRING, INT, DOUBLE, BOOL = (f"Metadata{name}Value" for name in ("String", "Int", "Double", "Bool"))
PROPERTIES = {
    "team": {"metadataType": STRING, "string_value": "a"},
    "n": {"metadataType": INT, "int_value": "5"},
    "score": {"metadataType": DOUBLE, "double_value": 0.5},
    "gpu": {"metadataType": BOOL, "bool_value": True},
    "odd name": {"metadataType": STRING, "string_value": "x"},
}


@pytest.fixture(scope="module")
def models():
    store = Store(now_ms=lambda: 1000)
    state = {"state": "LIVE"}
    store.insert(Draft(kind=REGISTERED_MODEL, name="fraud", external_id="e", fields=state, properties=PROPERTIES))
    store.insert(Draft(kind=REGISTERED_MODEL, name="it's", fields={"state": "ARCHIVED"}))
    return list(store.all(REGISTERED_MODEL))


def names(models, query):
    return [row.name for row in models if filter_query.parse(query, REGISTERED_MODEL)(row)]


@pytest.mark.parametrize(
    "query",
    [
        'name = "fraud"',
        "name='fraud'",
        "id = 1",
        'id = "1"',
        "id IN (1, 7)",
        'externalId = "e"',
        "createTimeSinceEpoch >= 1000 AND id < 2",
        'state = "LIVE"',
        'state != "ARCHIVED"',
        'state <> "ARCHIVED"',
        'name LIKE "fr%"',
        'name ILIKE "FR%"',
        'team = "a"',
        'team.string_value = "a"',
        '`odd name` = "x"',
        "n = 5",
        "n.int_value > 4",
        "score >= 0.5",
        "score.double_value < 1",
        "gpu = true",
        'name = "nope" OR team = "a" AND n = 5',
        '(name = "fraud" OR name = "it\'s") AND state = "LIVE" -- and a comment',
    ],
)
def test_queries_that_select_the_one_model(models, query):
    assert names(models, query) == ["fraud"]


@pytest.mark.parametrize(
    "query",
    ['unknown = "x"', "team = 5", 'TEAM = "a"', "n = 6", 'name = "FRAUD"', "gpu = false", "id IN ()", 'team != "a"'],
)
def test_queries_that_select_nothing(models, query):
    assert names(models, query) == []


def test_a_backslash_escapes_a_quote(models):
    assert names(models, r"name = 'it\'s'") == ["it's"]


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        (")(bad", '1:1: unexpected token ")"'),
        ("name = 'it''s'", "1:12: unexpected token \"'s'\""),
        ("name", '1:5: unexpected token "<EOF>"'),
        ('name = "a" and id = 1', '1:12: unexpected token "and"'),
        ('name like "a"', '1:6: unexpected token "like"'),
        ("name = fraud", '1:8: unexpected token "fraud"'),
        ("NOT id = 1", '1:5: unexpected token "id"'),
        ("id = 1)", '1:7: unexpected token ")"'),
        ("(id = 1", '1:8: unexpected token "<EOF>"'),
        ("id = 1 ;", '1:8: invalid input text ";"'),
        ("id = 1 AND\n)", '2:1: unexpected token ")"'),
        ("`odd`.string_value = 'x'", '1:6: unexpected token "."'),
    ],
)
def test_bad_syntax_is_refused_with_its_place(query, complaint):
    with pytest.raises(ApiError) as caught:
        filter_query.parse(query, REGISTERED_MODEL)
    assert caught.value.status == 400
    assert f"error parsing filter query: {complaint}. Check" in caught.value.message


@pytest.mark.parametrize(
    "query", ['id = "abc"', "name = 5", "id = (1, 2)", "id LIKE 'x'", 'n.int_value = "x"', "id = true"]
)
def test_a_value_that_does_not_fit_is_an_error_of_the_database(query):
    with pytest.raises(DatabaseError, match="SQLSTATE"):
        filter_query.parse(query, REGISTERED_MODEL)


@pytest.mark.parametrize(
    ("query", "selected"),
    [('name = "2"', True), ('name = "x"', False), ('name = "_"', True), ('name LIKE "%"', True), ('name != "2"', True)],
)
def test_the_name_of_a_version_is_compared_with_the_end_of_the_stored_one(query, selected):
    store = Store(now_ms=lambda: 1000)
    row = store.insert(Draft(kind=MODEL_VERSION, name="1:x:2", parent=1))
    assert filter_query.parse(query, MODEL_VERSION)(row) is selected
