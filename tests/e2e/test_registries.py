"""Several registries, found in several ways, by the consumer as a process.

One behind TLS on a path, found by its Service's external address and trusted by a CA file; one named by an annotation;
and one that the consumer may not speak to.
"""

import asyncio
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

import sandbox.registry
from tests.certificates import self_signed
from tests.e2e.pipeline import PREFIX, STANDARD, Pipeline, isvc
from tests.eventually import eventually

URL = PREFIX + "url"
PATH = "/model-registry/mr-a"
MODELS = {
    "registered_models": [{"id": "1", "name": "fraud"}],
    "model_versions": [{"id": "101", "name": "1", "registeredModelId": "1"}],
}


@pytest.fixture
def certificate(tmp_path):
    return self_signed(tmp_path)


@asynccontextmanager
async def gateway(certificate, target: str):
    """Stand in front of a registry as a gateway does: TLS, and a path of its own. Yields host and port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "ca.pem", certificate / "key.pem")
    address = urlsplit(target)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(address.hostname, address.port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data.replace(f" {PATH}/".encode(), b" /", 1))
                await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    yield "{}:{}".format(*server.sockets[0].getsockname())
    server.close()


@pytest.fixture
async def world(certificate, guard):
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(sandbox.registry.serve()) for _ in range(2)]
        for registry in (a, b):
            registry.seed(**MODELS)
        front = await stack.enter_async_context(gateway(certificate, a.url))
        environ = {
            "REGISTRY_URL": "",
            "REGISTRY_NAMESPACES": "kubeflow",
            "REGISTRY_ALLOWED_HOSTS": b.url.removeprefix("http://"),
            "REGISTRY_CA_FILE": str(certificate / "ca.pem"),
        }
        pipeline = await stack.enter_async_context(Pipeline(certificate / "pipeline", guard, environ=environ))
        yield a, b, front, pipeline


def service(address: str):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "mr-a",
            "namespace": "kubeflow",
            "labels": {"component": "model-registry"},
            "annotations": {"routing.opendatahub.io/external-address-rest": address + PATH},
        },
        "spec": {"ports": [{"name": "https-api", "port": 8443, "protocol": "TCP", "targetPort": 8443}]},
    }


def create(pipeline: Pipeline, name: str, url: str | None = None) -> None:
    annotations = STANDARD | ({URL: url} if url else {})
    pipeline.cluster.create(isvc(name, model="1", version="101", annotations=annotations))


def states(registry) -> dict[str, str]:
    records = registry.records("inference_services")
    return {record["name"].partition("/")[0]: record["desiredState"] for record in records}


async def test_each_object_finds_its_registry_and_leaves_it(world):
    a, b, front, pipeline = world
    create(pipeline, "team-a/waits")
    create(pipeline, "team-a/there", b.url)
    await eventually(lambda: states(b) == {"there": "DEPLOYED"}, "the one that names its registry")
    await eventually(
        lambda: any("no Service there is labelled" in line["reason"] for line in pipeline.consumer.entries("WARNING")),
        "it is said what is missing",
    )
    pipeline.cluster.create(service(front))
    await eventually(lambda: states(a) == {"waits": "DEPLOYED"}, "the one that waits for a registry", 30.0)

    pipeline.patch("team-a/there", {"metadata": {"annotations": {URL: None}}})
    await eventually(lambda: states(a) == {"waits": "DEPLOYED", "there": "DEPLOYED"}, "it has moved")
    assert states(b) == {"there": "UNDEPLOYED"}

    create(pipeline, "team-a/evil", pipeline.registry.url)
    await eventually(pipeline.dead_letters, "the dead letter")
    ((subject, reason),) = (await pipeline.dead_letters()).items()
    assert subject.endswith("team-a.evil")
    assert "REGISTRY_ALLOWED_HOSTS" in reason
    assert pipeline.registry.requests.total() == 0

    for registry in ("kubeflow/mr-a", b.url):
        closed = await pipeline.consumer.metric("isvc_sync_registry_circuit", registry=registry, state="closed")
        is_open = await pipeline.consumer.metric("isvc_sync_registry_circuit", registry=registry, state="open")
        assert (closed, is_open) == (1, 0)
