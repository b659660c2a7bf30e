"""`filterQuery`: the small SQL-like language of lists, parsed to a predicate over rows.

    name = "fraud" AND (state = "LIVE" OR `odd name` LIKE "x%") AND score.double_value > 0.5

Operators and AND, OR, LIKE, IN are known in capitals only. A name that is no column is a custom property; one that no
row has gives no rows. There is no NOT and no IS NULL.
"""

import operator as operator_module
import re
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from sandbox.registry.errors import ApiError, DatabaseError, bad_request
from sandbox.registry.kinds import Kind
from sandbox.registry.like import Like
from sandbox.registry.store import Row

Predicate = Callable[[Row], bool]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\r\n]*)
      | (?P<ident>[a-zA-Z_][a-zA-Z0-9_]*)
      | (?P<float>[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+)
      | (?P<int>[-+]?\d+)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<escaped>`(?:[^`\\]|\\.)*`)
      | (?P<operator>>=|<=|!=|<>|=|>|<)
      | (?P<punct>[().,])""",
    re.VERBOSE,
)
_OPERATORS = {"=", "!=", "<>", ">=", "<=", ">", "<", "LIKE", "ILIKE", "IN"}
_BOOLEANS = {"true", "false", "TRUE", "FALSE"}
_VALUE_TYPES = ("string_value", "int_value", "double_value", "bool_value")


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    at: int


class _Comparison(msgspec.Struct, frozen=True):
    name: str
    value_type: str | None
    operator: str
    value: Any


def parse(text: str, kind: Kind) -> Predicate:
    """Turn a query into a predicate for rows of a kind.

    Raises ApiError 400 for bad syntax and
    DatabaseError for a value that does not fit; so does the predicate, for a LIKE pattern that ends in its escape.
    """
    parser = _Parser(text, kind)
    predicate = parser.disjunction()
    if parser.token.kind != "end":
        parser.fail()
    return predicate


class _Parser:
    def __init__(self, text: str, kind: Kind) -> None:
        self._text = text
        self._kind = kind
        self._at = 0
        self.token = self._next()

    def fail(self) -> NoReturn:
        """Refuse the token at hand."""
        shown = "<EOF>" if self.token.kind == "end" else self.token.text.replace('"', r"\"")
        raise self._refusal(self.token.at, f'unexpected token "{shown}"')

    def _refusal(self, at: int, what: str) -> ApiError:
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        return bad_request(
            f"invalid filter query syntax: error parsing filter query: {line}:{column}: {what}. "
            "Check that operators and values are correctly formatted"
        )

    def _next(self) -> _Token:
        while self._at < len(self._text):
            match = _TOKEN.match(self._text, self._at)
            if match is None or match.lastgroup is None:
                raise self._refusal(self._at, f'invalid input text "{self._text[self._at :]}"')
            at, self._at = self._at, match.end()
            if match.lastgroup != "space":
                return _Token(match.lastgroup, match.group(), at)
        return _Token("end", "", len(self._text))

    def _take(self) -> _Token:
        taken, self.token = self.token, self._next()
        return taken

    def _skip(self, text: str) -> bool:
        if self.token.kind in {"ident", "punct"} and self.token.text == text:
            self._take()
            return True
        return False

    def disjunction(self) -> Predicate:
        terms = [self._conjunction()]
        while self._skip("OR"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else lambda row: any(term(row) for term in terms)

    def _conjunction(self) -> Predicate:
        terms = [self._term()]
        while self._skip("AND"):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else lambda row: all(term(row) for term in terms)

    def _term(self) -> Predicate:
        if self._skip("("):
            inner = self.disjunction()
            if not self._skip(")"):
                self.fail()
            return inner
        return _predicate(self._comparison(), self._kind)

    def _comparison(self) -> _Comparison:
        name, value_type = self._name()
        if self.token.text not in _OPERATORS or self.token.kind not in {"ident", "operator"}:
            self.fail()
        operator = self._take().text
        return _Comparison(name, value_type, operator, self._value(lists=True))

    def _name(self) -> tuple[str, str | None]:
        if self.token.kind == "escaped":
            return self._take().text.strip("`").replace(r"\.", ".").replace(r"\\", "\\"), None
        if self.token.kind != "ident":
            self.fail()
        parts = [self._take().text]
        while self._skip("."):
            if self.token.kind != "ident":
                self.fail()
            parts.append(self._take().text)
        if len(parts) > 1 and parts[-1] in _VALUE_TYPES:
            return ".".join(parts[:-1]), parts[-1]
        return ".".join(parts), None

    def _value(self, *, lists: bool) -> Any:
        token = self.token
        if token.kind == "string":
            return _unquoted(self._take().text)
        if token.kind == "int":
            return int(self._take().text)
        if token.kind == "float":
            return float(self._take().text)
        if token.kind == "ident" and token.text in _BOOLEANS:
            return self._take().text.lower() == "true"
        if not lists or not self._skip("("):
            self.fail()
        values: list[Any] = []
        while not self._skip(")"):
            if values and not self._skip(","):
                self.fail()
            values.append(self._value(lists=False))
        return values


def _unquoted(text: str) -> str:
    return text.strip("\"'").replace(r"\"", '"').replace(r"\'", "'").replace(r"\\", "\\")


def _predicate(comparison: _Comparison, kind: Kind) -> Predicate:
    operator, value, name = comparison.operator, comparison.value, comparison.name
    if name == "name" and kind.is_child and operator in {"=", "LIKE", "ILIKE"}:
        # Stored names begin with the parent's id, so the server compares their end.
        operator, value = ("LIKE" if operator == "=" else operator), f"%:{value}"
    wanted, read = _column(name, comparison.value_type or _value_type(value), kind)
    compare = _comparator(operator, value, wanted)

    def holds(row: Row) -> bool:
        stored = read(row)
        return stored is not None and compare(stored)

    return holds


def _value_type(value: Any) -> str:
    match value[0] if isinstance(value, list) and value else value:
        case bool():
            return "bool_value"
        case int():
            return "int_value"
        case float():
            return "double_value"
        case _:
            return "string_value"


_COLUMNS: dict[str, tuple[type[Any], Callable[[Row], Any]]] = {
    "id": (int, lambda row: row.id),
    "name": (str, lambda row: row.name),
    "externalId": (str, lambda row: row.external_id),
    "createTimeSinceEpoch": (int, lambda row: row.created_ms),
    "lastUpdateTimeSinceEpoch": (int, lambda row: row.updated_ms),
}
_CUSTOM_TYPES: dict[str, type[Any]] = {"string_value": str, "int_value": int, "double_value": float, "bool_value": bool}


def _column(name: str, value_type: str, kind: Kind) -> tuple[type[Any], Callable[[Row], Any]]:
    """Type and reader of a column, a field of the kind, or a custom property."""
    if name in _COLUMNS:
        return _COLUMNS[name]
    match kind.creatable.get(name):
        case "id":
            return int, lambda row: None if name not in row.fields else int(row.fields[name])
        case "string" | "state":
            return str, lambda row: row.fields.get(name)
        case _:
            return _custom_column(name, value_type)


def _custom_column(name: str, value_type: str) -> tuple[type[Any], Callable[[Row], Any]]:
    type_ = _CUSTOM_TYPES[value_type]

    def custom(row: Row) -> Any:
        value = row.properties.get(name, {}).get(value_type)
        return None if value is None else type_(value)

    return type_, custom


_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator_module.eq,
    "!=": operator_module.ne,
    "<>": operator_module.ne,
    ">": operator_module.gt,
    ">=": operator_module.ge,
    "<": operator_module.lt,
    "<=": operator_module.le,
}


def _comparator(operator: str, value: Any, column: type[Any]) -> Callable[[Any], bool]:
    if operator == "IN":
        values = [_as_type(column, wanted) for wanted in (value if isinstance(value, list) else [value])]
        return lambda stored: stored in values
    if operator in {"LIKE", "ILIKE"}:
        text = _as_type(str, value)
        if column is not str:
            raise _mismatch(value)
        return Like(text, str.lower).matches if operator == "ILIKE" else Like(text).matches
    wanted, order = _as_type(column, value), _ORDERS[operator]
    return lambda stored: bool(order(stored, wanted))


def _as_type(column: type[Any], value: Any) -> Any:
    """Read the value as a column of this type takes it: numbers also as text, everything else only as it is."""
    if type(value) is column:
        return value
    if column in {int, float} and (isinstance(value, str) or (column is float and type(value) is int)):
        try:
            return column(value)
        except ValueError:
            raise _mismatch(value) from None
    raise _mismatch(value)


def _mismatch(value: Any) -> DatabaseError:
    return DatabaseError(f"ERROR: invalid input for the type of the column: {value!r} (SQLSTATE 22P02)")
