"""The page as a file: what is in it, and that nothing gets out of its place."""

import base64
import hashlib
import re

import msgspec
import pytest

from replay.timeline.data import Page
from replay.timeline.html import html
from replay.timeline.lanes import Timeline
from tests.unit.replay import captures


def written(**header):
    return html(Timeline(msgspec.structs.replace(captures.HEADER, **header)).page())


def part(text, pattern):
    (found,) = re.findall(pattern, text, re.DOTALL)
    return found


def data(text):
    return part(text, r'<script type="application/json" id="data">(.*?)</script>')


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "]]>",
    "{script}{style}{policy}{data}",
    "&lt;/script&gt;",
    "\\u003c/script>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_ends_its_element(text):
    assert written(cluster=text).count("<script") == 2
    assert "<" not in data(written(cluster=text))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_arrives_as_it_is(text):
    assert msgspec.json.decode(data(written(cluster=text)), type=Page).about.cluster == text


def test_only_our_script_and_style_may_run():
    page = written()
    policy = part(page, r'http-equiv="Content-Security-Policy" content="([^"]*)"')
    script, style = part(page, r"<script>(.*?)</script>"), part(page, r"<style>(.*?)</style>")
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (script, style)
    ]
    assert policy == (
        f"default-src 'none'; style-src {hashes[1]}; script-src {hashes[0]}; base-uri 'none'; form-action 'none'"
    )


def test_the_policy_stands_before_what_it_is_about():
    page = written()
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")


def test_nothing_is_loaded():
    assert re.findall(r"(?:src|href)\s*=|@import|url\(", written()) == []


def test_nothing_is_put_on_the_page_as_markup():
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", written()) == []


def test_the_same_capture_is_the_same_page():
    assert written() == written()
