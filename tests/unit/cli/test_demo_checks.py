"""The demo's checks see what is wrong: each world is spoilt in one place, and named are the checks that must fail."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cli.demo.checks import Evidence, exits, verdicts
from cli.demo.state import ID_LABEL, STOP_ANNOTATION, VERSION_LABEL, Named, Record, Seen
from tests.unit.cli.demo_world import SECRET, labels, life, record, right

ONE, STATE, MODEL, VERSION = "each indexed object has one record", "state", "registered model", "model version"
URL, RUNTIME, ENVIRONMENT = "url", "runtime", "serving environment"
LABEL, UNLABELLED = "the object carries its record's id", "no label, no record"
DEAD, RECREATED = "an unknown model is a dead letter", "a re-created object has a record for each life"
UNWATCHED, SECRECY = "deleted while no producer ran", "no secret leaves the cluster"
NO_DOUBLE_ENVIRONMENT, NO_DOUBLE_RECORD = "no environment twice", "no record twice, none of nobody"


def failing(evidence: Evidence) -> set[str]:
    return {check.name for check in verdicts(evidence) if not check.passed}


def with_records(change: Callable[[tuple[Record, ...]], tuple[Record, ...]]) -> Evidence:
    world = right()
    return replace(world, seen=replace(world.seen, records=change(world.seen.records)))


def first(**changes: object) -> Evidence:
    """The world with other fields in the first record, payments/scorer's."""
    return with_records(lambda records: (replace(records[0], **changes), *records[1:]))


def labelled(number: int, name: str, value: str | None) -> Evidence:
    """The world with one label of one object changed, or taken away."""
    world = right()
    found = world.seen.lives[number].obj["metadata"]["labels"]
    found.pop(name, None)
    found |= {name: value} if value else {}
    return world


def stopped() -> Evidence:
    world = right()
    world.seen.lives[0].obj["metadata"]["annotations"][STOP_ANNOTATION] = "true"
    return world


def added(**fields: object) -> Evidence:
    return with_records(lambda records: (*records, record("20", **fields)))


def test_a_right_world_passes_every_check():
    checks = verdicts(right())
    assert [check for check in checks if not check.passed] == []
    assert len(checks) == 15


WRONG = {
    "no record": (with_records(lambda records: records[1:]), {ONE, LABEL}),
    "a second record of an object": (added(name="scorer", uid="u1"), {ONE, NO_DOUBLE_RECORD}),
    "a record of nobody": (added(name="ghost", uid="u99"), {NO_DOUBLE_RECORD}),
    "wrong state": (first(desired_state="UNDEPLOYED"), {STATE}),
    "no state": (first(desired_state=""), {STATE}),
    "a stopped object that is DEPLOYED": (stopped(), {STATE}),
    "wrong model": (first(registered_model_id="7"), {ONE, MODEL}),
    "wrong version": (first(model_version_id="3"), {VERSION}),
    "a version label that is not followed": (labelled(0, VERSION_LABEL, None), {VERSION}),
    "no url": (first(custom_properties={}), {URL}),
    "wrong runtime": (first(runtime=""), {RUNTIME}),
    "an environment that does not exist": (first(serving_environment_id="8"), {ENVIRONMENT}),
    "another record's id on the object": (labelled(0, ID_LABEL, "12"), {LABEL}),
    "an id that was not written and is not counted": (labelled(0, ID_LABEL, None), {LABEL}),
    "a deferral that the consumer does not know": (replace(right(), deferred=0), {LABEL}),
    "no number of deferrals": (replace(right(), deferred=None), {LABEL}),
    "a record without label": (added(name="free", uid="u6"), {UNLABELLED}),
    "a record of an unknown model": (added(name="orphan", uid="u7", registered_model_id="404"), {DEAD}),
    "no dead letter": (replace(right(), dead_letters={}), {DEAD}),
    "a dead letter without reason": (replace(right(), dead_letters=dict.fromkeys(right().dead_letters, "?")), {DEAD}),
    "an unexpected dead letter": (
        replace(right(), dead_letters=dict(right().dead_letters) | {right().seen.lives[0].key: "why"}),
        {DEAD},
    ),
    "an old life that stays DEPLOYED": (
        with_records(lambda records: (records[0], replace(records[1], desired_state="DEPLOYED"), *records[2:])),
        {STATE, RECREATED},
    ),
    "a delete that nobody noticed": (
        with_records(lambda records: (*records[:3], replace(records[3], desired_state="DEPLOYED"), records[4])),
        {STATE, UNWATCHED},
    ),
    "a secret in a message": (replace(right(), messages=("u1", f"env {SECRET}")), {SECRECY}),
    "a secret in a log": (replace(right(), logs=(SECRET,)), {SECRECY}),
    "a secret in a record": (first(custom_properties={"url": {"string_value": f"http://{SECRET}"}}), {URL, SECRECY}),
    "messages that are not about the secret's object": (replace(right(), messages=("u7",)), {SECRECY}),
    "no secret planted": (replace(right(), secret="another"), {SECRECY}),
}


@pytest.mark.parametrize(("world", "names"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_world_fails_exactly_the_checks_that_see_it(world, names):
    assert failing(world) == names


def test_a_doubled_environment_is_seen():
    world = right()
    doubled = replace(world.seen, environments=(*world.seen.environments, Named("10", "payments")))
    assert failing(replace(world, seen=doubled)) == {NO_DOUBLE_ENVIRONMENT}


def test_an_id_is_not_excused_where_nothing_serves():
    world = right()
    starting = life("scorer", "u1", labels(), secret=SECRET, url="")
    records = (replace(world.seen.records[0], custom_properties={}), *world.seen.records[1:])
    seen = replace(world.seen, lives=(starting, *world.seen.lives[1:]), records=records)
    assert failing(replace(world, seen=seen)) == {LABEL}
    serving = life("scorer", "u1", labels(), secret=SECRET)
    seen = replace(world.seen, lives=(serving, *world.seen.lives[1:]))
    assert failing(replace(world, seen=seen, deferred=2)) == set()


def test_checks_of_an_empty_world_fail_for_want_of_anything_to_compare():
    checks = verdicts(Evidence(Seen(), {}, (), (), SECRET, 0))
    assert [check.name for check in checks if check.passed] == []
    assert all("nothing to compare" in check.detail for check in checks)


def test_a_failed_check_says_what_was_expected_and_seen():
    [check] = [check for check in verdicts(first(model_version_id="3")) if check.name == VERSION]
    assert check.detail == "payments/scorer: expected 2, seen 3"


def test_of_many_problems_three_are_shown_and_the_rest_is_counted():
    world = with_records(lambda records: tuple(replace(record, runtime="other") for record in records))
    [check] = [check for check in verdicts(world) if check.name == RUNTIME]
    assert check.detail.count("expected kserve-sklearnserver, seen other") == 3
    assert check.detail.endswith("; and 2 more")


def test_a_secret_is_not_repeated_by_the_check_that_finds_it():
    [check] = [check for check in verdicts(replace(right(), messages=("u1", SECRET))) if check.name == SECRECY]
    assert SECRET not in check.detail


@pytest.mark.parametrize(("code", "passed"), [(0, True), (1, False), (-9, False)])
def test_only_exit_code_zero_is_a_clean_end(code, passed):
    assert [check.passed for check in exits({"producer": code})] == [passed]
