"""Reading all records of a registry: page by page, by id, whatever else happens to them."""

import math

import pytest
from opentelemetry.trace import NoOpTracer

import sandbox.registry
from consumer.registry import PAGE_SIZE, ModelRegistry
from consumer.requests.exchange import Instruments
from consumer.requests.inflight import InFlightLimit
from consumer.requests.registry_client import RegistryAccess, RegistryClient
from shared.errors import TransientError

COUNT = 2 * PAGE_SIZE + 1


@pytest.fixture
async def server():
    async with sandbox.registry.serve() as served:
        served.seed(
            registered_models=[{"id": "1", "name": "iris"}],
            serving_environments=[{"id": "2", "name": "team-a"}],
            inference_services=[
                {"id": str(10 + n), "name": f"iris-{n}", "servingEnvironmentId": "2", "registeredModelId": "1"}
                for n in range(COUNT)
            ],
        )
        yield served


@pytest.fixture
async def registry(server):
    access = RegistryAccess(base_url=server.url, api_version="v1alpha3")
    client = RegistryClient(access, InFlightLimit(1), Instruments(NoOpTracer(), lambda *_: None))
    yield ModelRegistry(client, lambda: math.inf)
    await client.close()


async def test_every_record_is_read_once_in_the_order_of_ids_a_request_for_each_page(registry, server):
    ids = [int(record.id) async for record in registry.all_records()]
    assert ids == list(range(10, 10 + COUNT))
    assert server.requests.total("GET", ".*/inference_services") == 3


async def test_records_of_others_are_read_as_they_are(registry):
    first = await anext(aiter(registry.all_records()))
    assert (first.name, first.external_id, first.stamp) == ("iris-0", "", None)


async def test_a_fault_in_the_middle_is_no_end_of_the_list(registry, server):
    records = registry.all_records()
    for _ in range(PAGE_SIZE):
        await anext(records)
    server.switch(database="stopped")
    with pytest.raises(TransientError):
        await anext(records)
