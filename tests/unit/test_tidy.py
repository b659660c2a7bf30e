"""The style of the house, as far as a machine can hold it. Each list of exceptions says why, and may only shrink."""

import ast
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "producer", "consumer", "sandbox", "replay", "cli")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LINES_MAX = 300
FUNCTION_LINES_MAX = 40
HELP_COLUMNS = 78  # of a terminal of 80
MARK_WORDS_MIN = 3  # behind a mark: its codes, and then words

LONGER_FILES: dict[str, str] = {
    "producer/watch.py": "names every item, state and effect in its imports, one a line",
}
LONGER_FUNCTIONS: dict[str, str] = {
    "shared/streams.py:stream_configs": "the settings of three streams, one literal each",
    "shared/telemetry.py:__init__": "the table of all instruments",
}
# A broad handler that does not raise again: at most one for each place where a stranger's fault must not end the rest.
BROAD_HANDLERS: dict[str, str] = {
    "consumer/handle.py": "a fault with one object must not stop the others; it is logged and tried again",
    "consumer/sweep/survey.py": "an object that cannot be compared must not hide all others; it is logged and skipped",
    "producer/leader.py": "whatever goes wrong with a Lease is a failed renewal (R37); it is logged and tried again",
    "shared/health.py": "a probe whose check fails is an answer, not a broken connection",
    "consumer/delivery/pulls.py": "an exception here would end nats-py's read loop unseen; it is logged and counted",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_lines(path: Path) -> set[int]:
    """Return the lines of a file that hold code or docstrings: no blank lines, no comments."""
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    return {
        line
        for token in tokens
        if token.type not in {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        for line in range(token.start[0], token.end[0] + 1)
    }


def functions(tree: ast.AST):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def docstring_lines(node) -> int:
    body = node.body[0] if node.body else None
    is_docstring = (
        isinstance(body, ast.Expr) and isinstance(body.value, ast.Constant) and isinstance(body.value.value, str)
    )
    return body.end_lineno - body.lineno + 1 if is_docstring else 0


def test_no_file_is_too_long():
    longer = {name_of(path) for path in FILES if len(path.read_text().splitlines()) > LINES_MAX}
    assert longer == set(LONGER_FILES)


def test_no_function_is_too_long():
    longer = set()
    for path in FILES:
        code = code_lines(path)
        for node in functions(ast.parse(path.read_text())):
            own = sum(node.lineno <= line <= node.end_lineno for line in code)
            if own - docstring_lines(node) > FUNCTION_LINES_MAX:
                longer.add(f"{name_of(path)}:{node.name}")
    assert longer == set(LONGER_FUNCTIONS)


def test_the_help_of_every_command_fits_a_terminal_line_by_line():
    """The first paragraph is one sentence, and is wrapped; of the others each line stands as it is."""
    too_long = []
    for path in (each for each in FILES if name_of(each).startswith("cli/") and each.stem in {"app", "commands"}):
        for node in functions(ast.parse(path.read_text())):
            _, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
            too_long += [(node.name, line) for line in rest.splitlines() if len(line) > HELP_COLUMNS]
    assert too_long == []


def test_every_module_says_what_it_is():
    assert [name_of(path) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_only_listed_places_swallow_any_exception():
    broad = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = {"bare"} if node.type is None else {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            if caught & {"bare", "Exception", "BaseException"} and not raises:
                broad.add(name_of(path))
    assert broad == set(BROAD_HANDLERS)


@pytest.mark.parametrize("mark", ["# noqa", "# type: ignore", "# pragma: no cover"])
def test_every_silenced_rule_has_its_reason_beside_it(mark):
    for path in FILES:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if mark in line:
                reason = line.partition(mark)[2]
                assert len(reason.split()) > MARK_WORDS_MIN, (
                    f"{name_of(path)}:{number} silences a rule without a reason"
                )


def test_no_module_is_dead():
    text = {path: path.read_text() for path in FILES}
    dead = []
    for path in FILES:
        module = name_of(path).removesuffix(".py").replace("/", ".")
        if path.name in {"__init__.py", "__main__.py"}:
            continue
        package, _, leaf = module.rpartition(".")
        used = any(
            f"{module} " in other or f"{module}\n" in other or (f"from {package} import" in other and leaf in other)
            for name, other in text.items()
            if name != path
        )
        if not used:
            dead.append(module)
    assert dead == []
