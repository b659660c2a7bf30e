"""The loader: a table of values per type, all mistakes at once, near misses, and rows for the documentation."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from shared.broker import BrokerSettings
from shared.cluster import ClusterSettings
from shared.errors import SettingsError
from shared.health import HealthSettings
from shared.logs import LogSettings
from shared.settings import READABLE, Row, describe, load, near_misses
from shared.telemetry import TelemetrySettings


def short(seconds: float) -> None:
    if seconds > 1000:
        raise ValueError("must be shorter than a shift")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    ack_wait_s: Annotated[
        float, Meta(gt=0, description="How long a message may stay un-acked", extra={"check": short})
    ] = 30.0
    token_file: Annotated[str | None, Meta(description="File with the token")] = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    registry_url: Annotated[str, Meta(description="Base URL of the registry.")]
    shards: Annotated[int, Meta(ge=1, le=64, description="Number of shards")] = 16
    write_back: Annotated[Literal["off", "safe"], Meta(description="What may be patched")] = "safe"
    dry_run: Annotated[bool, Meta(description="Decide, do nothing")] = False
    namespaces: Annotated[tuple[str, ...], Meta(description="Namespaces to watch")] = ()
    parallel: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Workers", extra={"variable": "WORKERS"})
    ] = None
    group: Group


REQUIRED = {"REGISTRY_URL": "http://registry"}


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("SHARDS", "8", "shards", 8),
        ("SHARDS", " 8 ", "shards", 8),
        ("WRITE_BACK", "off", "write_back", "off"),
        ("DRY_RUN", "true", "dry_run", True),
        ("DRY_RUN", "False", "dry_run", False),
        ("DRY_RUN", "1", "dry_run", True),
        ("NAMESPACES", "a", "namespaces", ("a",)),
        ("NAMESPACES", "a, b,,c ", "namespaces", ("a", "b", "c")),
        ("WORKERS", "3", "parallel", 3),
        ("REGISTRY_URL", "null", "registry_url", "null"),
        ("ACK_WAIT_S", "2.5", "group.ack_wait_s", 2.5),
        ("TOKEN_FILE", "/run/token", "group.token_file", "/run/token"),
        ("SHARDS", "", "shards", 16),  # empty is unset
        ("NAMESPACES", "  ", "namespaces", ()),
    ],
)
def test_a_variable_becomes_the_value_of_its_field(variable, text, path, value):
    found: object = load(Sample, REQUIRED | {variable: text})
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("SHARDS", "0", "SHARDS is '0': it must be a whole number from 1 to 64. Number of shards."),
        ("SHARDS", "65", "SHARDS is '65'"),
        ("SHARDS", "many", "SHARDS is 'many'"),
        ("SHARDS", "1.5", "SHARDS is '1.5'"),
        ("WRITE_BACK", "always", "WRITE_BACK is 'always': it must be off or safe."),
        ("DRY_RUN", "yes", "DRY_RUN is 'yes': it must be true or false."),
        ("ACK_WAIT_S", "0", "ACK_WAIT_S is '0': it must be a number above 0."),
        ("ACK_WAIT_S", "nan", "ACK_WAIT_S is 'nan'"),
        ("ACK_WAIT_S", "inf", "ACK_WAIT_S is 'inf'"),
        ("WORKERS", "null", "WORKERS is 'null': it must be a whole number, at least 1."),
        ("ACK_WAIT_S", "5000", "ACK_WAIT_S must be shorter than a shift."),
        ("REGISTRY_URL", "", "REGISTRY_URL is not set: it must be a text. Base URL of the registry."),
    ],
)
def test_a_wrong_value_is_told_with_variable_problem_and_way_out(variable, text, told):
    with pytest.raises(SettingsError) as caught:
        load(Sample, REQUIRED | {variable: text})
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_told_at_once():
    environ = {"SHARDS": "x", "DRY_RUN": "perhaps", "ACK_WAIT_S": "-1"}
    with pytest.raises(SettingsError) as caught:
        load(Sample, environ)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == [
        "REGISTRY_URL",
        "SHARDS",
        "DRY_RUN",
        "ACK_WAIT_S",
    ]


def test_a_text_that_does_not_fit_is_not_shown_for_it_may_be_a_secret():
    with pytest.raises(SettingsError) as caught:
        load(BrokerSettings, {"SUBJECT_PREFIX": "S3cret!", "NATS_URL": "wss://me:hunter2@nats"})
    assert "S3cret" not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        load(BrokerSettings, {"NATS_URL": "wss://me:hunter2@nats"})
    assert "hunter2" not in str(caught.value)
    assert "NATS_URL must hold" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("REGISTRY_ULR", "REGISTRY_URL"),
        ("REGISTRYURL", "REGISTRY_URL"),
        ("WRITEBACK", "WRITE_BACK"),
        ("SHARD", "SHARDS"),
        ("NAMESPACE", "NAMESPACES"),
        ("TOKEN", "TOKEN_FILE"),
    ],
)
def test_a_near_miss_of_our_names_is_named_with_what_is_meant(name, meant):
    (sentence,) = near_misses(Sample, {name: "S3cret"})
    assert sentence.startswith(name)
    assert meant in sentence
    assert "S3cret" not in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REGISTRY_URL", "http://x"),
        ("REGISTRY_URLS_SERVICE_HOST", "10.0.0.1"),
        ("SHARDS_PORT", "tcp://10.0.0.1:80"),
        ("REGISTRY_PORT", "tcp://10.0.0.1:80"),
        ("PATH", "/bin"),
        ("HOSTNAME", "pod"),
    ],
)
def test_other_peoples_variables_and_service_links_are_no_near_miss(name, value):
    assert near_misses(Sample, {name: value}) == ()


def test_the_rows_for_the_documentation_follow_the_fields():
    assert describe(Sample) == (
        Row("REGISTRY_URL", "a text", None, "Base URL of the registry"),
        Row("SHARDS", "a whole number from 1 to 64", "16", "Number of shards"),
        Row("WRITE_BACK", "off or safe", "safe", "What may be patched"),
        Row("DRY_RUN", "true or false", "false", "Decide, do nothing"),
        Row("NAMESPACES", "a comma-separated list", "", "Namespaces to watch"),
        Row("WORKERS", "a whole number, at least 1", "", "Workers"),
        Row("ACK_WAIT_S", "a number above 0", "30.0", "How long a message may stay un-acked"),
        Row("TOKEN_FILE", "a text", "", "File with the token"),
    )


@pytest.mark.parametrize("settings", [BrokerSettings, ClusterSettings, HealthSettings, LogSettings, TelemetrySettings])
def test_every_default_of_a_shared_group_is_a_value_that_may_be_set(settings):
    rows = describe(settings)
    environ = {row.variable: row.default for row in rows if row.default is not None}
    assert load(settings, environ) == load(settings, {})


def test_a_setting_without_a_description_is_a_mistake_of_ours():
    class Bare(msgspec.Struct, frozen=True):
        shards: int = 1

    with pytest.raises(TypeError, match="SHARDS has no description"):
        describe(Bare)


def test_what_a_check_refuses_is_told_beside_all_else():
    with pytest.raises(SettingsError) as caught:
        load(Sample, REQUIRED | {"ACK_WAIT_S": "5000", "SHARDS": "0"})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("make", [lambda path: path / "absent", lambda path: path], ids=["absent", "folder"])
def test_a_file_that_cannot_be_read_is_told(tmp_path, make):
    class Secrets(msgspec.Struct, frozen=True, kw_only=True):
        token_file: Annotated[str | None, Meta(description="Token", extra=READABLE)] = None

    with pytest.raises(SettingsError, match=r"TOKEN_FILE names .* which is no file that can be read here"):
        load(Secrets, {"TOKEN_FILE": str(make(tmp_path))})


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two settings of which one is needed."""

    this: Annotated[str | None, Meta(description="This")] = None
    that: Annotated[str | None, Meta(description="That")] = None

    def __post_init__(self) -> None:
        if self.this is None and self.that is None:
            raise ValueError("THIS or THAT must be set.")


class Pairs(msgspec.Struct, frozen=True, kw_only=True):
    pair: Pair
    number: Annotated[int, Meta(description="A number")]


def test_what_concerns_several_fields_is_said_with_everything_else():
    with pytest.raises(SettingsError) as raised:
        load(Pairs, {})
    assert str(raised.value).splitlines()[0] == "THIS or THAT must be set."
    assert "NUMBER is not set" in str(raised.value)
    assert load(Pairs, {"THAT": "x", "NUMBER": "1"}).pair.that == "x"
