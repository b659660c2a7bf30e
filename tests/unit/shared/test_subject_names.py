"""Every object is one subject, every name one token, and the filters select what they say.

(What the broker makes of them is in tests/integration/test_subjects.py.)
"""

import random
import unicodedata

import pytest

from shared.errors import BadEventError
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects, escape, parse_object_subject, shard_of, unescape

SUBJECTS = Subjects("isvc", "prod.a", 16)
KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
FORBIDDEN = set(". *>\t\r\n\0")


def matches(pattern: str, subject: str) -> bool:
    """Say whether a NATS filter selects a subject."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(w in {"*", g} for w, g in zip(wanted, given, strict=True))


def unicode_samples() -> list[str]:
    """Return every ASCII character, and one character of each category in each plane."""
    seen: dict[tuple[str, int], str] = {}
    for point in range(0x80, 0x110000):
        if not 0xD800 <= point <= 0xDFFF:
            seen.setdefault((unicodedata.category(chr(point)), point >> 12), chr(point))
    return [chr(point) for point in range(0x80)] + list(seen.values())


def test_every_character_survives_escaping():
    samples = unicode_samples()
    assert len(samples) > 300
    assert [unescape(escape(character)) for character in samples] == samples


def test_an_escaped_character_is_one_token_of_harmless_ascii():
    for character in unicode_samples():
        token = escape(character)
        assert token.isascii()
        assert not FORBIDDEN & set(token)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("iris-v1_2", "iris-v1_2"),
        ("prod.a", "prod=2Ea"),
        ("=2E", "=3D2E"),
        ("a%41", "a=2541"),
        ("ä", "=C3=A4"),
        ("> *", "=3E=20=2A"),
        ("", ""),
    ],
)
def test_escaping_is_like_that_of_urls(text, token):
    assert escape(text) == token
    assert unescape(token) == text


def test_a_percent_sign_in_a_foreign_token_is_only_itself():
    assert unescape("a%41") == "a%41"


def test_different_texts_have_different_tokens():
    chance = random.Random(5)
    texts = {"".join(chance.choices("a.=2E%ä-", k=chance.randrange(5))) for _ in range(2000)}
    assert len({escape(text) for text in texts}) == len(texts)


def test_the_names_are_those_of_the_design():
    shard = shard_of(KEY, 16)
    assert SUBJECTS.event(KEY) == f"isvc.prod=2Ea.evt.{shard}.isvc.team-a.iris"
    assert SUBJECTS.look(KEY) == f"isvc.prod=2Ea.look.{shard}.isvc.team-a.iris"
    assert SUBJECTS.sync(Kind.LLMISVC) == "isvc.prod=2Ea.sync.llmisvc"
    assert SUBJECTS.dead_letter(KEY) == "isvc.prod=2Ea.dlq.isvc.team-a.iris"
    assert SUBJECTS.durable(3) == "isvc-prod=2Ea-3"


@pytest.mark.parametrize("name", ["iris", "a.b", "ä>", "x" * 300, "evt", "isvc"])
@pytest.mark.parametrize("channel", ["evt", "look"])
def test_a_subject_leads_back_to_its_object(channel, name):
    key = ObjectKey(Kind.LLMISVC, "team.a", name)
    subject = SUBJECTS.event(key) if channel == "evt" else SUBJECTS.look(key)
    assert parse_object_subject(subject) == (channel, key)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "isvc",
        "isvc.c.sync.isvc",
        "isvc.c.dlq.0.isvc.ns.name",
        "isvc.c.evt.0.pod.ns.name",
        "isvc.c.evt.0.isvc.ns",
        "isvc.c.evt.0.isvc.ns.na.me",
        "isvc.c.evt.0.isvc.ns.=FF",
        "isvc.c.evt.0.isvc.=C3.name",
        ">" * 5000,
    ],
)
def test_a_subject_that_names_no_object_is_refused_with_its_text(subject):
    with pytest.raises(BadEventError) as refused:
        parse_object_subject(subject)
    assert subject[:200] in str(refused.value)
    assert len(str(refused.value)) < 400


ALL = {
    "event": SUBJECTS.event(KEY),
    "llm event": SUBJECTS.event(ObjectKey(Kind.LLMISVC, "team-a", "iris")),
    "dotted event": SUBJECTS.event(ObjectKey(Kind.ISVC, "isvc", "a.b")),
    "look": SUBJECTS.look(KEY),
    "sync": SUBJECTS.sync(Kind.ISVC),
    "dead letter": SUBJECTS.dead_letter(KEY),
    "other cluster": Subjects("isvc", "prod", 16).event(KEY),
    "other prefix": Subjects("isvc-replay-1", "prod.a", 16).event(KEY),
}


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        pytest.param(SUBJECTS.all_events(Kind.ISVC), {"event", "dotted event"}, id="inventory of a kind"),
        pytest.param(SUBJECTS.all_events(Kind.LLMISVC), {"llm event"}, id="inventory of the other kind"),
        pytest.param(SUBJECTS.all_events(Kind.ISVC, "isvc"), {"dotted event"}, id="inventory of a namespace"),
        pytest.param(SUBJECTS.shard_filter(shard_of(KEY, 16)), {"event", "llm event", "look"}, id="a shard"),
        pytest.param(SUBJECTS.all_dead_letters(), {"dead letter"}, id="dead letters"),
        pytest.param(SUBJECTS.everything(), set(ALL) - {"other cluster", "other prefix"}, id="everything"),
    ],
)
def test_a_filter_selects_what_it_says(pattern, selected):
    assert shard_of(ObjectKey(Kind.ISVC, "isvc", "a.b"), 16) != shard_of(KEY, 16)
    assert {name for name, subject in ALL.items() if matches(pattern, subject)} == selected


def test_each_event_is_in_exactly_one_shard():
    for number in range(200):
        event = SUBJECTS.event(ObjectKey(Kind.ISVC, "ns", f"model-{number}"))
        assert sum(matches(SUBJECTS.shard_filter(shard), event) for shard in range(16)) == 1


@pytest.mark.parametrize("shards", [1, 2, 16, 64])
def test_a_shard_is_one_of_those_that_exist(shards):
    found = {shard_of(ObjectKey(Kind.ISVC, "ns", f"model-{number}"), shards) for number in range(2000)}
    assert found == set(range(shards))


def test_the_kind_does_not_move_an_object_to_another_shard():
    other = ObjectKey(Kind.LLMISVC, KEY.namespace, KEY.name)
    assert shard_of(other, 16) == shard_of(KEY, 16)
