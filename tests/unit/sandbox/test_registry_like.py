"""SQL LIKE, which decides what a find by name finds."""

import pytest

from sandbox.registry.errors import DatabaseError
from sandbox.registry.like import Like
from sandbox.registry.switches import fold_mysql


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("iris", "iris", True),
        ("iris", "IRIS", False),
        ("iris", "iris2", False),
        ("fraud_model", "fraudxmodel", True),
        ("fraud_model", "fraudmodel", False),
        (r"fraud\_model", "fraud_model", True),
        (r"fraud\_model", "fraudxmodel", False),
        ("fraud%", "fraud", True),
        ("%:2", "1:x:2", True),
        ("%", "line\nbreak", True),
        (r"back\slash", r"back\slash", False),
        (r"back\\slash", r"back\slash", True),
        (r"\%", "%", True),
        ("a.c", "abc", False),
    ],
)
def test_wildcards_and_escapes(pattern, text, matches):
    assert Like(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "exact"),
    [("11:iris", "11:iris"), (r"11:fraud\_model", "11:fraud_model"), ("a_", None), ("a%", None), ("a\\", None)],
)
def test_a_pattern_without_wildcards_names_the_only_text_that_it_matches(pattern, exact):
    assert Like(pattern).exact == exact


def test_an_escape_at_the_end_is_an_error_only_where_text_is_left_for_it():
    like = Like("fraud\\")
    assert not like.matches("iris")
    assert not like.matches("fraud")
    with pytest.raises(DatabaseError, match="SQLSTATE 22025"):
        like.matches("fraud_model")


@pytest.mark.parametrize("name", ["IRIS", "ïris", "iris  "])
def test_mysql_compares_without_case_accents_and_blanks_at_the_end(name):
    assert fold_mysql(name) == "iris"
