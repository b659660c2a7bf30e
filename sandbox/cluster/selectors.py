"""Label and field selectors, parsed into a predicate over entries. Pure."""

import re
from collections.abc import Callable

from sandbox.cluster.status import bad_request
from sandbox.cluster.store import Entry

Test = Callable[[Entry], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^=!]*)$")
_EXISTS = re.compile(r"^(?P<op>!?)\s*(?P<key>[A-Za-z0-9][\w./-]*)$")
_COMMA = re.compile(r",(?![^(]*\))")  # not inside parentheses


class Selector:
    """All conditions must hold; without conditions it matches everything and `trivial` is true.

    `asked` says whether the client selected by labels or fields, not only by the namespace of its path.
    """

    def __init__(self, tests: list[Test], *, asked: bool) -> None:
        self.asked = asked
        self._tests = tests

    @property
    def trivial(self) -> bool:
        return not self._tests

    def also(self, test: Test) -> "Selector":
        """Return a selector with one more condition."""
        return Selector([*self._tests, test], asked=True)

    def __call__(self, entry: Entry) -> bool:
        return all(test(entry) for test in self._tests)


def parse(labels: str, fields: str, known_fields: tuple[str, ...], namespace: str) -> Selector:
    """Build a selector from query parameters; raises ApiError 400 for what is no selector or no known field."""
    tests = [_label_test(part.strip()) for part in _COMMA.split(labels) if part.strip()]
    tests += [_field_test(part.strip(), known_fields) for part in fields.split(",") if part.strip()]
    asked = bool(tests)
    if namespace:
        tests.append(lambda entry: entry.namespace == namespace)
    return Selector(tests, asked=asked)


def _label_test(part: str) -> Test:
    if match := _SET.match(part):
        values = {value.strip() for value in match["values"].split(",")}
        return _in(match["key"], values, wanted=match["op"] == "in")
    if match := _EQUAL.match(part):
        return _in(match["key"], {match["value"].strip()}, wanted=match["op"] != "!=")
    if match := _EXISTS.match(part):
        return _exists(match["key"], wanted=not match["op"])
    raise bad_request(f"unable to parse requirement: {part!r} is no label selector")


def _in(key: str, values: set[str], *, wanted: bool) -> Test:
    if wanted:
        return lambda entry: entry.labels.get(key) in values
    return lambda entry: entry.labels.get(key) not in values


def _exists(key: str, *, wanted: bool) -> Test:
    return lambda entry: (key in entry.labels) == wanted


def _field_test(part: str, known: tuple[str, ...]) -> Test:
    match = _EQUAL.match(part)
    if match is None:
        raise bad_request(f"invalid selector: {part!r}; can't understand it")
    field, value, wanted = match["key"], match["value"].strip(), match["op"] != "!="
    if field == "metadata.name":
        return lambda entry: (entry.name == value) == wanted
    if field == "metadata.namespace":
        return lambda entry: (entry.namespace == value) == wanted
    if field in known:
        return lambda entry: (entry.fields.get(field, "") == value) == wanted
    raise bad_request(f"field label not supported: {field}")
