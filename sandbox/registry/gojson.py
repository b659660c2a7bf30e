"""JSON, base64 and integers as the registry's server (Go) reads them: what it accepts, and the words of its refusals.

Clients see these words in 400 answers, and the leniencies (garbage after the object, the last of two equal keys, bytes
that are not UTF-8) decide which requests succeed. Valid text takes the fast path through the standard library; only a
refusal walks the text a second time, to find Go's words for it.
"""

import base64
import codecs
import json
import re
from typing import Any, NoReturn

_SPACE = " \t\r\n"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INT32 = range(-(2**31), 2**31)


class GoError(ValueError):
    """What Go's decoder says about a value that it refuses."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object in its order, equal keys included."""


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end  # Go replaces every byte, Python's `replace` whole sequences


codecs.register_error("go-replace", _each_byte)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Numbers are only ever told from strings, or read as a double: no need for Python's integers (and their digit limit).
_DECODER = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=float, parse_constant=_refuse_constant)


def decode(raw: bytes) -> Any:
    """Read the first JSON value of `raw`; what follows it is ignored. Objects come as `Pairs`. Raises GoError."""
    text = raw.decode("utf-8", "go-replace").lstrip(_SPACE)
    if not text:
        raise GoError("EOF")
    try:
        value, _ = _DECODER.raw_decode(text)
    except RecursionError:
        raise GoError("exceeded max depth") from None
    except ValueError:
        raise GoError(_Scanner(raw).complaint() or "invalid character in JSON") from None
    if isinstance(value, float) and (complaint := _Scanner(raw).complaint()):  # "1." is a number to Python
        raise GoError(complaint)
    return _well_formed(value) if "\\u" in text else value


def _well_formed(value: Any) -> Any:
    match value:
        case str():
            return _LONE_SURROGATE.sub("\ufffd", value)
        case Pairs():
            return Pairs((_well_formed(key), _well_formed(item)) for key, item in value)
        case list():
            return [_well_formed(item) for item in value]
        case _:
            return value


def kind_of(value: Any) -> str:
    """Go's word for the type of a JSON value."""
    match value:
        case str():
            return "string"
        case bool():
            return "bool"
        case float():
            return "number"
        case Pairs():
            return "object"
        case _:
            return "array"


def quote(text: str) -> str:
    """Quote text as Go does in messages."""
    return '"' + "".join(_QUOTED.get(char) or _quoted_char(char) for char in text) + '"'


_QUOTED = {'"': r"\"", "\\": r"\\"} | dict(zip("\a\b\f\n\r\t\v", (rf"\{name}" for name in "abfnrtv"), strict=True))


def _quoted_char(char: str) -> str:
    code = ord(char)
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Scanner:
    """Walks broken text, byte by byte, until the first one that Go's scanner refuses."""

    def __init__(self, raw: bytes) -> None:
        self.text = raw.decode("latin-1")
        self.at = 0

    def complaint(self) -> str | None:
        try:
            self._value("looking for beginning of value")
        except GoError as error:
            return str(error)
        except RecursionError:
            return "exceeded max depth"
        return None

    def _fail(self, context: str) -> NoReturn:
        if self.at >= len(self.text):
            raise GoError("unexpected EOF")
        char = self.text[self.at]
        shown = {"'": r"'\''", '"': "'\"'"}.get(char) or "'" + quote(char)[1:-1] + "'"
        raise GoError(f"invalid character {shown} {context}")

    def _peek(self) -> str:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1
        return self.text[self.at : self.at + 1]

    def _expect(self, chars: str, context: str) -> str:
        char = self._peek()
        if not char or char not in chars:
            self._fail(context)
        self.at += 1
        return char

    def _value(self, context: str) -> None:
        match self._peek():
            case "{":
                self._container("}", "object key:value pair", self._member)
            case "[":
                self._container("]", "array element", lambda: self._value("looking for beginning of value"))
            case '"':
                self._string()
            case "t" | "f" | "n":
                self._literal()
            case char if char and char in "-0123456789":
                self._number()
            case _:
                self._fail(context)

    def _container(self, close: str, what: str, item: Any) -> None:
        self.at += 1
        if self._peek() == close:
            self.at += 1
            return
        while True:
            item()
            if self._expect("," + close, f"after {what}") == close:
                return

    def _member(self) -> None:
        if self._peek() != '"':
            self._fail("looking for beginning of object key string")
        self._string()
        self._expect(":", "after object key")
        self._value("looking for beginning of value")

    def _string(self) -> None:
        self.at += 1
        while (char := self.text[self.at : self.at + 1]) != '"':
            if not char or char < " ":
                self._fail("in string literal")
            self.at += 1
            if char == "\\":
                self._escape()
        self.at += 1

    def _escape(self) -> None:
        char = self.text[self.at : self.at + 1]
        if not char or char not in 'bfnrt\\/"u':
            self._fail("in string escape code")
        self.at += 1
        for _ in range(4 if char == "u" else 0):
            if self.text[self.at : self.at + 1] not in set("0123456789abcdefABCDEF"):
                self._fail("in \\u hexadecimal character escape")
            self.at += 1

    def _literal(self) -> None:
        word = {"t": "true", "f": "false", "n": "null"}[self.text[self.at]]
        for wanted in word:
            if self.text[self.at : self.at + 1] != wanted:
                self._fail(f"in literal {word} (expecting '{wanted}')")
            self.at += 1

    def _number(self) -> None:
        self.at += self.text[self.at] == "-"
        if self.text[self.at : self.at + 1] == "0":
            self.at += 1
        else:
            self._digits("in numeric literal")
        if self.text[self.at : self.at + 1] == ".":
            self.at += 1
            self._digits("after decimal point in numeric literal")
        if self.text[self.at : self.at + 1] in {"e", "E"}:
            self.at += 1
            self.at += self.text[self.at : self.at + 1] in {"+", "-"}
            self._digits("in exponent of numeric literal")

    def _digits(self, context: str) -> None:
        """At least one digit."""
        end = self.at
        while self.text[end : end + 1] in set("0123456789"):
            end += 1
        if end == self.at:
            self._fail(context)
        self.at = end


def parse_int32(text: str) -> int:
    """Read a decimal integer of 32 bits, sign and leading zeros allowed. Raises GoError."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise GoError(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    # int() refuses more than 4,300 digits: whatever is that long is out of range, unless it is mostly zeros.
    digits = text.lstrip("+-").lstrip("0") or "0"
    value = int(digits) * (-1 if text.startswith("-") else 1) if len(digits) <= 10 else _INT32.stop
    if value not in _INT32:
        raise GoError(f"strconv.ParseInt: parsing {quote(text)}: value out of range")
    return value


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def decode_base64(text: str) -> bytes:
    """Decode standard base64 with padding; line ends are skipped. Raises GoError naming the first illegal byte."""
    data = text.encode().decode("latin-1")
    at = 0
    while at < len(data):
        at = _quantum(data, at)
    # Bits of the last character that no byte needs are ignored, by Go and by this decoder.
    return base64.b64decode(data.replace("\r", "").replace("\n", ""))


def _quantum(data: str, at: int) -> int:
    """Check the next four characters and return where they end."""
    seen = 0
    while seen < 4:
        if at == len(data):
            if seen:
                raise _illegal(at - seen)
            return at
        char = data[at]
        at += 1
        if char in _BASE64:
            seen += 1
        elif char == "=" and seen >= 2:
            return _padding(data, at, seen)
        elif char not in "\r\n":
            raise _illegal(at - 1)
    return at


def _padding(data: str, at: int, seen: int) -> int:
    at = _after_line_ends(data, at)
    if seen == 2:
        if at == len(data):
            raise _illegal(at)
        if data[at] != "=":
            raise _illegal(at - 1)
        at = _after_line_ends(data, at + 1)
    if at < len(data):
        raise _illegal(at)
    return at


def _after_line_ends(data: str, at: int) -> int:
    while data[at : at + 1] in {"\r", "\n"}:
        at += 1
    return at


def _illegal(at: int) -> GoError:
    return GoError(f"illegal base64 data at input byte {at}")
