"""A success that is about something else than what was asked is no answer; a 409 is told for what it can be about."""

import pytest

from consumer.actions import UpdateRecord
from shared.errors import ConflictError, TransientError
from tests.unit.consumer.requests.registry_script import Script, creation, error, ok

OURS = {"id": "17", "name": "iris/5a1e", "externalId": "kserve:5a1e/1"}
STRANGER = {"id": "9999", "name": "stranger", "externalId": "x", "registeredModelId": "39"}


def change(**changes):
    return UpdateRecord(id="17", deployed=True, properties={}, reason="x", **changes)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda registry: registry.find_record("kserve:5a1e/1"), id="find a record"),
        pytest.param(lambda registry: registry.create_record(creation(), "11"), id="create a record"),
        pytest.param(lambda registry: registry.update_record(change()), id="change a record"),
        pytest.param(lambda registry: registry.create_environment("team-a"), id="create an environment"),
        pytest.param(lambda registry: registry.model_exists("1"), id="a model by its id"),
        pytest.param(lambda registry: registry.model_of_version("4"), id="a version by its id"),
    ],
)
async def test_an_answer_about_something_else_is_tried_again(call):
    with pytest.raises(TransientError, match="the answer is about"):
        await call(Script(ok(STRANGER)).registry())


@pytest.mark.parametrize("field", ["name", "externalId"])
async def test_a_created_record_must_have_both_our_name_and_our_external_id(field):
    with pytest.raises(TransientError, match="stranger"):
        await Script(ok(OURS | {field: "stranger"})).registry().create_record(creation(), "11")


async def test_what_an_answer_calls_itself_is_cut_in_the_message():
    with pytest.raises(TransientError) as raised:
        await Script(ok(STRANGER | {"externalId": "x" * 100_000})).registry().find_record("kserve:5a1e/1")
    assert len(str(raised.value)) < 500


TAKEN = error(409, "inference service with name 11:iris already exists: conflict")


async def test_a_create_that_collides_says_that_name_or_external_id_is_taken():
    with pytest.raises(ConflictError, match=r"409 .*its name or its externalId kserve:5a1e/1 is taken"):
        await Script(TAKEN).registry().create_record(creation(), "11")


async def test_a_change_of_the_external_id_that_collides_says_that_this_is_taken():
    with pytest.raises(ConflictError, match=r"409 .*conflict \(its externalId kserve:5a1e/1 is taken"):
        await Script(TAKEN).registry().update_record(change(external_id="kserve:5a1e/1"))


async def test_a_409_to_a_change_without_external_id_blames_neither_name_nor_external_id():
    with pytest.raises(ConflictError, match=r"409 .*though the change has neither") as raised:
        await Script(TAKEN).registry().update_record(change())
    assert "is taken" not in str(raised.value)
