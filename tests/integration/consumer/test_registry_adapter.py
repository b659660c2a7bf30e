"""The adapter against the sandbox's registry: round trips, hostile names, bad days."""

import asyncio

import pytest
from opentelemetry.trace import NoOpTracer

import sandbox.registry
from consumer.actions import CreateRecord, UpdateRecord
from consumer.records import string_property
from consumer.registry import ModelRegistry
from consumer.requests.exchange import Instruments
from consumer.requests.registry_client import InFlightLimit, RegistryAccess, RegistryClient
from sandbox.faults import Fault
from shared.errors import (
    ConflictError,
    NotFoundError,
    NotSentError,
    PermanentError,
    TransientError,
    UnauthorizedError,
    UnreachableError,
)


@pytest.fixture(params=["v0.3.8", "v1"])
async def server(request):
    async with sandbox.registry.serve(sandbox.registry.Options(profile=request.param)) as served:
        served.seed(
            registered_models=[{"id": "1", "name": "fraud"}],
            model_versions=[{"id": "4", "name": "1", "registeredModelId": "1"}],
        )
        yield served


@pytest.fixture
async def connect(server):
    clients: list[RegistryClient] = []

    def connected(budget=lambda: 60.0, **access) -> ModelRegistry:
        instruments = Instruments(NoOpTracer(), lambda *_: None)
        clients.append(RegistryClient(RegistryAccess(base_url=server.url, **access), InFlightLimit(4), instruments))
        return ModelRegistry(clients[-1], budget)

    yield connected
    for client in clients:
        await client.close()


@pytest.fixture
def registry(connect):
    return connect()


def creation(name: str = "iris/5a1e", external_id: str = "kserve:5a1e/1", **changes) -> CreateRecord:
    fields = {"version_id": "4", "runtime": "sklearn", "deployed": True, "properties": {"url": string_property("u")}}
    return CreateRecord(
        environment="team-a", name=name, external_id=external_id, model_id="1", reason="test", **(fields | changes)
    )


async def test_record_is_the_same_whichever_way_it_is_found(registry):
    environment = await registry.create_environment("team-a")
    made = await registry.create_record(creation(), environment)
    assert made.deployed is True
    assert await registry.find_record("kserve:5a1e/1") == made
    assert await registry.find_record_by_name("iris/5a1e", environment) == made
    assert await registry.find_environment("team-a") == environment


async def test_update_changes_what_is_set_and_keeps_the_rest(registry):
    made = await registry.create_record(creation(), await registry.create_environment("team-a"))
    properties = {**made.properties, "team": string_property("blue")}
    updated = await registry.update_record(UpdateRecord(made.id, deployed=False, properties=properties, reason="test"))
    assert (updated.deployed, updated.properties) == (False, properties)
    assert (updated.external_id, updated.version_id, updated.runtime) == ("kserve:5a1e/1", "4", "sklearn")
    assert await registry.find_record("kserve:5a1e/1") == updated


async def test_update_that_says_nothing_of_the_state_does_not_deploy_again(registry):
    made = await registry.create_record(creation(deployed=False), await registry.create_environment("team-a"))
    again = await registry.update_record(
        UpdateRecord(made.id, deployed=False, properties={}, reason="test", runtime="x")
    )
    assert again.deployed is False


async def test_struct_property_of_a_user_survives_our_update(registry):
    struct = {"metadataType": "MetadataStructValue", "struct_value": "eyJhIjoxfQ=="}
    made = await registry.create_record(creation(properties={"st": struct}), await registry.create_environment("e"))
    assert made.properties["st"]["struct_value"] == '{"a":1}'
    updated = await registry.update_record(
        UpdateRecord(made.id, deployed=True, properties=made.properties, reason="test")
    )
    assert updated.properties == made.properties


NAMES = [
    "fraud_model",
    "fraudxmodel",
    "100%",
    "100",
    "%",
    "_",
    "back\\slash",
    "backslash",
    "end\\",
    "\\%",
    "a;b&c=d+e f",
    "é/:",
]


async def test_every_name_finds_itself_and_only_itself(registry):
    environment = await registry.create_environment("team-a")
    made = {
        name: await registry.create_record(creation(name, f"kserve:{at}/1"), environment)
        for at, name in enumerate(NAMES)
    }
    for name in NAMES:
        assert await registry.find_record_by_name(name, environment) == made[name]
    for absent in ("fraud%", "fraud\\_model", "10_", "endx", "FRAUDXMODEL"):
        assert await registry.find_record_by_name(absent, environment) is None


async def test_every_environment_finds_itself_and_only_itself(registry):
    made = {name: await registry.create_environment(name) for name in NAMES}
    assert {name: await registry.find_environment(name) for name in NAMES} == made
    assert await registry.find_environment("fraud%") is None


async def test_record_behind_the_first_page_is_found(registry, server):
    environment = await registry.create_environment("team-a")
    server.seed(
        inference_services=[
            {"id": str(100 + at), "name": f"n_{at}", "servingEnvironmentId": environment, "registeredModelId": "1"}
            for at in range(450)
        ]
    )
    several = '{"code": "Not Found", "message": "multiple inference services found for name=n_449: not found"}'
    server.faults.set(
        Fault(
            path=".*/inference_service",
            error_rate=1.0,
            error_status=404,
            error_body=several,
            error_headers={"Content-Type": "application/json; charset=UTF-8"},
        )
    )
    record = await registry.find_record_by_name("n_449", environment)
    assert record is not None
    assert record.id == "549"
    assert server.faults.injected["error"] == 1
    assert server.requests.total("GET", ".*/serving_environments/.*") == 3


async def test_names_that_differ_in_case_are_not_taken_for_each_other():
    options = sandbox.registry.Options(case_insensitive=True)
    async with sandbox.registry.serve(options) as server:
        client = RegistryClient(
            RegistryAccess(base_url=server.url), InFlightLimit(1), Instruments(NoOpTracer(), lambda *_: None)
        )
        registry = ModelRegistry(client, lambda: 60.0)
        await registry.create_environment("Team-A")
        assert await registry.find_environment("team-a") is None
        with pytest.raises(ConflictError):
            await registry.create_environment("team-a")
        await client.close()


async def test_taken_name_and_taken_external_id_are_conflicts(registry):
    environment = await registry.create_environment("team-a")
    await registry.create_record(creation(), environment)
    with pytest.raises(ConflictError):
        await registry.create_record(creation(external_id="kserve:other/1"), environment)
    with pytest.raises(ConflictError):
        await registry.create_record(creation(name="other"), environment)


async def test_external_id_of_another_record_cannot_be_taken_over(registry):
    environment = await registry.create_environment("team-a")
    await registry.create_record(creation(), environment)
    other = await registry.create_record(creation("other", "kserve:other/1"), environment)
    with pytest.raises(ConflictError):
        await registry.update_record(
            UpdateRecord(other.id, deployed=True, properties={}, reason="test", external_id="kserve:5a1e/1")
        )


async def test_create_in_an_environment_that_is_gone_is_not_found(registry):
    with pytest.raises(NotFoundError):
        await registry.create_record(creation(), "4242")


async def test_name_that_is_too_long_is_permanent(registry):
    with pytest.raises(PermanentError, match="too long"):
        await registry.create_record(creation(name="n" * 300), await registry.create_environment("team-a"))


async def test_models_and_versions_exist_or_do_not(registry):
    assert await registry.model_exists("1")
    assert not await registry.model_exists("999")
    assert await registry.model_of_version("4") == "1"
    assert await registry.model_of_version("999") is None


@pytest.mark.parametrize("database", ["stopped", "refusing", "never_reached"])
async def test_fault_of_the_database_is_never_taken_for_absence(registry, connect, server, database):
    environment = await registry.create_environment("team-a")
    made = await registry.create_record(creation(), environment)
    server.switch(database=database)
    calls = (
        lambda ill: ill.find_environment("team-a"),
        lambda ill: ill.create_environment("team-b"),
        lambda ill: ill.find_record("kserve:5a1e/1"),
        lambda ill: ill.find_record_by_name("iris/5a1e", environment),
        lambda ill: ill.update_record(UpdateRecord(made.id, deployed=True, properties={}, reason="test")),
        lambda ill: ill.model_exists("1"),
        lambda ill: ill.model_of_version("4"),
    )
    for call in calls:
        with pytest.raises(TransientError) as raised:
            await call(connect(api_version="v1alpha3"))  # another client each: a circuit must not answer for it
        assert not isinstance(raised.value, NotSentError)
    with pytest.raises((NotFoundError, TransientError)):  # whose 404 the caller does not believe either
        await connect(api_version="v1alpha3").create_record(creation("b", "kserve:b/1"), environment)
    server.switch(database="well")
    assert await registry.find_record("kserve:5a1e/1") == made


async def test_overload_is_never_taken_for_absence(registry, server):
    made = await registry.create_record(creation(), await registry.create_environment("team-a"))
    server.switch(connection_limit=1, statement_s=0.02)
    found = await asyncio.gather(*(registry.find_record("kserve:5a1e/1") for _ in range(8)), return_exceptions=True)
    faults = [one for one in found if isinstance(one, TransientError)]
    assert faults
    assert [one for one in found if not isinstance(one, TransientError)] == [made] * (8 - len(faults))


async def test_rotated_token_is_taken_up_in_the_middle_of_the_work(server, connect, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    server.switch(require_token="old")
    registry = connect(token_file=token)
    await registry.create_environment("team-a")
    server.switch(require_token="new")
    with pytest.raises(UnauthorizedError):
        await registry.find_environment("team-a")
    token.write_text("new!")
    server.switch(require_token="new!")
    assert await registry.find_environment("team-a") is not None


async def test_proxy_of_the_environment_is_not_used(connect, monkeypatch):
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert await connect().model_exists("1")


async def test_registry_that_hangs_is_cut_off_and_the_next_call_works(server, connect):
    left_s = 60.0
    registry = connect(lambda: left_s)
    made = await registry.create_record(creation(), await registry.create_environment("team-a"))
    server.faults.set(Fault(hang=True))
    left_s = 1.0
    with pytest.raises(UnreachableError, match=r"1\.0 s"):
        await registry.find_record("kserve:5a1e/1")
    assert server.faults.injected["hang"] == 1
    server.faults.clear()
    left_s = 60.0
    assert await registry.find_record("kserve:5a1e/1") == made


async def test_lost_reply_of_a_create_turns_up_as_conflict_and_is_found(registry, server):
    environment = await registry.create_environment("team-a")
    server.faults.set(Fault(method="POST", lost_reply_rate=1.0))
    with pytest.raises(UnreachableError):
        await registry.create_record(creation(), environment)
    assert server.faults.injected["lost_reply"] == 1
    server.faults.clear()
    with pytest.raises(ConflictError):
        await registry.create_record(creation(), environment)
    found = await registry.find_record("kserve:5a1e/1")
    assert found is not None
    assert len(server.records("inference_services")) == 1


async def test_refusal_of_a_proxy_is_about_credentials(registry, server):
    await registry.create_environment("team-a")
    server.faults.set(Fault(error_rate=1.0, error_status=403, error_body="RBAC: access denied"))
    with pytest.raises(UnauthorizedError):
        await registry.find_environment("team-a")


async def test_withdrawn_version_is_replaced_by_the_other_one(connect, server):
    server.switch(versions=("v1alpha3",))
    registry = connect()
    made = await registry.create_environment("team-a")
    server.switch(versions=("v1",), gone=("v1alpha3",))
    with pytest.raises(TransientError):
        await registry.find_environment("team-a")
    assert await registry.find_environment("team-a") == made


async def test_environments_created_at_once_are_one(registry):
    results = await asyncio.gather(*(registry.create_environment("team-a") for _ in range(20)), return_exceptions=True)
    ids = [result for result in results if isinstance(result, str)]
    assert len(ids) == 1
    assert all(isinstance(result, ConflictError) for result in results if not isinstance(result, str))
