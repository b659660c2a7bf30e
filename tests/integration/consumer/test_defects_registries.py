"""The defects of earlier controllers that are about finding and reaching registries, through the whole loop.

Four registries: REGISTRY_URL's; one behind a Service with a port `http-api`; one behind a Service that has nothing but
`https-api`; and one that nobody allowed. The Services have names in a cluster domain of its own.
"""

import asyncio
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

import sandbox.registry
from consumer.worker import AT_HAND_MAX
from sandbox.faults import Fault
from tests.certificates import self_signed
from tests.cluster.processes import Guard
from tests.e2e.pipeline import PREFIX, STANDARD, Pipeline, isvc
from tests.eventually import eventually
from tests.integration.consumer.defects import delete, is_gone
from tests.integration.consumer.resolving import DOMAIN

pytestmark = pytest.mark.asyncio(loop_scope="module")

URL, NAME, NAMESPACE = (PREFIX + key for key in ("url", "name", "namespace"))
ADDRESS = "routing.kubeflow.org/external-address-rest"
MODELS = [{"id": "1", "name": "fraud"}]
VERSIONS = [{"id": number, "name": number, "registeredModelId": "1"} for number in ("101", "102")]


class Front:
    """What stands in front of a registry: forwards, with or without TLS, and counts connections."""

    def __init__(self, target: str) -> None:
        self._address = urlsplit(target)
        self.port = 0
        self.connections = 0

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None):
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        inner_reader, inner_writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        pumps = [pump(reader, inner_writer), pump(inner_reader, writer)]
        await asyncio.gather(*pumps, return_exceptions=True)


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


class World:
    def __init__(self, pipeline: Pipeline, servers: dict, fronts: dict[str, Front]) -> None:
        self.pipeline = pipeline
        self.plain, self.secure, self.forbidden = (servers[name] for name in ("plain", "secure", "forbidden"))
        self.fronts = fronts

    def create(self, name: str, service: str = "", **annotations: str) -> str:
        """Create an object; with a Service, it asks for the registry there. Return its uid."""
        obj = isvc(name, model="1", version="101", annotations=STANDARD | annotations)
        obj["metadata"]["labels"] |= {NAME: service} if service else {}
        return self.pipeline.cluster.create(obj)["metadata"]["uid"]

    def install(self, name: str, port: str, number: int, namespace: str = "kubeflow", **annotations: str) -> None:
        """Create a Service that leads to a registry."""
        metadata = {"name": name, "namespace": namespace, "labels": {"component": "model-registry"}}
        self.pipeline.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata | {"annotations": annotations},
                "spec": {"ports": [{"name": port, "port": number, "protocol": "TCP", "targetPort": number}]},
            }
        )

    async def reason(self, name: str) -> str:
        """Wait for an object's dead letter and return its reason."""

        async def found() -> str | None:
            letters = await self.pipeline.dead_letters()
            return next((text for subject, text in letters.items() if subject.endswith(name.replace("/", "."))), None)

        return await eventually(found, f"the dead letter of {name}")


def state(registry, uid: str) -> str | None:
    """Return the state of an object's one record in a registry, None where it has none."""
    records = [each for each in registry.records("inference_services") if each["externalId"] == f"kserve:{uid}/1"]
    assert len(records) <= 1
    return records[0]["desiredState"] if records else None


def has_version(registry, uid: str, version: str) -> bool:
    records = {each["externalId"]: each for each in registry.records("inference_services")}
    return records[f"kserve:{uid}/1"]["modelVersionId"] == version


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    directory, guard = self_signed(tmp_path_factory.mktemp("registries"), f"DNS:secure.kubeflow.svc.{DOMAIN}"), Guard()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "ca.pem", directory / "key.pem")
    environ = {
        "REGISTRY_NAMESPACES": "kubeflow",
        "REGISTRY_CA_FILE": str(directory / "ca.pem"),
        "CLUSTER_DOMAIN": DOMAIN,
    }
    async with AsyncExitStack() as stack:
        names = ("plain", "secure", "forbidden")
        servers = {name: await stack.enter_async_context(sandbox.registry.serve()) for name in names}
        for server in servers.values():
            server.seed(registered_models=MODELS, model_versions=VERSIONS)
        fronts = {name: Front(server.url) for name, server in servers.items()}
        await stack.enter_async_context(fronts["plain"].serving())
        await stack.enter_async_context(fronts["secure"].serving(context))
        pipeline = Pipeline(directory / "pipeline", guard, environ=environ, consumer=False)
        await stack.enter_async_context(pipeline)
        pipeline.seed(dict.fromkeys(("101", "102"), "1"))
        made = World(pipeline, servers, fronts)
        made.install("plain", "http-api", fronts["plain"].port)
        made.install("secure", "https-api", fronts["secure"].port)
        consumer = pipeline.another("tests.integration.consumer.resolving", "resolving", {"POD_NAME": "consumer-0"})
        stack.push_async_callback(consumer.close)
        await consumer.start()
        yield made
    guard.close()


@pytest_asyncio.fixture(loop_scope="module")
async def world(shared):
    yield shared
    shared.plain.faults.clear()


async def recorded(world: World, registry, uid: str) -> None:
    await eventually(lambda: state(registry, uid) == "DEPLOYED", "it is recorded")


async def test_D16_an_object_that_names_a_server_of_its_own_is_a_dead_letter_and_nothing_goes_there(world):
    """Neither by its address, nor by a Service of the user's own, nor by an address that such a Service names."""
    host = world.forbidden.url.removeprefix("http://")
    world.install("mine", "http-api", int(host.rpartition(":")[2]), namespace="mallory")
    world.install("far", "http-api", 80, "mallory", **{ADDRESS: host})
    world.create("d16/by-url", **{URL: world.forbidden.url})
    world.create("d16/by-service", **{URL: f"http://mine.mallory.svc.{DOMAIN}:{host.rpartition(':')[2]}"})
    by_label = isvc("d16/by-label", model="1", annotations=STANDARD)
    by_label["metadata"]["labels"] |= {NAMESPACE: "mallory", NAME: "far"}
    world.pipeline.cluster.create(by_label)
    for name in ("d16/by-url", "d16/by-service"):
        assert "REGISTRY_ALLOWED_HOSTS" in await world.reason(name)
    assert "REGISTRY_NAMESPACES" in await world.reason("d16/by-label")
    assert world.forbidden.requests.total() == 0


async def test_D18_a_registry_that_accepts_and_never_answers_stops_no_other(world):
    hung = world.plain.faults.injected["hang"]
    world.plain.faults.set(Fault(hang=True))
    more_than_fit = AT_HAND_MAX + 20
    stuck = [world.create(f"d18/stuck-{number}", "plain") for number in range(more_than_fit)]
    await eventually(lambda: world.plain.faults.injected["hang"] > hung, "a request hangs")
    free = [world.create(f"d18/free-{number}", "secure") for number in range(5)]
    await eventually(lambda: {state(world.secure, uid) for uid in free} == {"DEPLOYED"}, "the others", 4.0)
    assert {state(world.plain, uid) for uid in stuck} == {None}
    world.plain.faults.clear()
    await eventually(lambda: {state(world.plain, uid) for uid in stuck} == {"DEPLOYED"}, "those that waited", 30.0)


async def test_D20_a_service_with_nothing_but_an_https_port_is_used(world):
    await recorded(world, world.secure, world.create("d20/iris", "secure"))
    assert world.fronts["secure"].connections > 0, "through TLS, to the Service's own name"


async def test_D21_services_are_reached_under_the_clusters_own_domain(world):
    """Names of another domain lead nowhere here: a consumer that asked for one would never get through."""
    await recorded(world, world.plain, world.create("d21/iris", "plain"))
    assert world.fronts["plain"].connections > 0


async def test_D25_events_share_one_client_and_one_list_of_services(world):
    objects = {f"d25/iris-{number}": world.create(f"d25/iris-{number}", "plain") for number in range(30)}
    for uid in objects.values():
        await recorded(world, world.plain, uid)
    lists = world.pipeline.cluster.requests.total("GET", "services.*")
    connections, written = world.fronts["plain"].connections, world.plain.requests.total("PATCH")
    for name in objects:
        world.pipeline.set_labels(name, model_version_id="102")
    for uid in objects.values():
        await eventually(partial(has_version, world.plain, uid, "102"), "the change is recorded")
    assert world.plain.requests.total("PATCH") - written == len(objects)
    assert world.fronts["plain"].connections - connections <= 4, "no more than are in flight at once"
    assert world.pipeline.cluster.requests.total("GET", "services.*") - lists <= 1, "read again each 30 s"


async def test_D26_a_delete_after_its_registry_is_gone_is_not_held_up_and_recorded_when_it_is_back(world):
    uid = world.create("d26/iris", "plain")
    await recorded(world, world.plain, uid)
    refused = world.plain.faults.injected["outage"]
    world.plain.faults.set(Fault(outage=True))
    world.pipeline.cluster.delete("Service", "kubeflow", "plain")
    delete(world.pipeline, "d26/iris")
    assert is_gone(world.pipeline, "d26/iris")
    await eventually(lambda: world.plain.faults.injected["outage"] > refused, "it is tried")
    assert state(world.plain, uid) == "DEPLOYED"
    world.plain.faults.clear()
    world.install("plain", "http-api", world.fronts["plain"].port)
    await eventually(lambda: state(world.plain, uid) == "UNDEPLOYED", "it is recorded", 30.0)
