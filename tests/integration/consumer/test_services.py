"""The Services that the consumer may read, with exactly the rights of its Role, from the sandbox's Kubernetes API."""

import asyncio

import pytest
from opentelemetry.trace import NoOpTracer

import sandbox.cluster
from consumer.discovery import EXTERNAL_ADDRESSES, Asked, DiscoverySettings, Located, resolve
from consumer.requests.exchange import Exchanger, Instruments
from consumer.services import AGAIN_S, KEPT_S, PAGE_SIZE, ServiceCatalog
from sandbox.cluster.auth import ADMIN, Rule, User
from sandbox.faults import Fault
from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import TransientError

SERVICES = r".*/services|services.*"
CONSUMER = User("consumer", (Rule(("get", "list"), ("services",)),))
STRANGER = User("stranger", ())


@pytest.fixture
async def cluster():
    settings = sandbox.cluster.Settings(tokens={"consumer": CONSUMER, "stranger": STRANGER, "admin": ADMIN})
    async with sandbox.cluster.serve(settings) as served:
        served.create_namespace("kubeflow")
        served.create_namespace("ml")
        yield served


@pytest.fixture
async def catalog_of(cluster, tmp_path):
    opened, catalogs = [], []

    def made(*namespaces: str, token: str = "consumer") -> ServiceCatalog:
        path = cluster.write_kubeconfig(tmp_path / f"{token}.yaml", token)
        opened.append(client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="consumer"))
        catalogs.append(ServiceCatalog(Exchanger(opened[-1], Instruments(NoOpTracer(), lambda *_: None)), namespaces))
        return catalogs[-1]

    yield made
    for catalog in catalogs:
        await catalog.close()
    for http in opened:
        await http.aclose()


def service(name, namespace="kubeflow", **spec):
    ports = [{"name": "http-api", "port": 8080, "protocol": "TCP", "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"component": "model-registry", "app": "x"},
            "annotations": {"other.example/secret": "s3cr3t"},
        },
        "spec": {"ports": ports, **spec},
    }


def lists(cluster) -> int:
    return cluster.requests.total("GET", "services.*")


async def test_what_leads_to_a_registry_is_read_and_nothing_else(cluster, catalog_of):
    cluster.create(service("mr-a"))
    external = service("mr-b")
    external["metadata"]["annotations"][EXTERNAL_ADDRESSES[1]] = "gw.example/model-registry/b"
    cluster.create(external)
    cluster.create(service("elsewhere", "ml"))
    one, two = sorted(await catalog_of("kubeflow").services(), key=str)
    assert (str(one), one.labels, one.annotations, one.ports) == (
        "kubeflow/mr-a",
        {"component": "model-registry"},
        {},
        {"http-api": 8080},
    )
    assert two.annotations == {EXTERNAL_ADDRESSES[1]: "gw.example/model-registry/b"}


async def test_several_namespaces_are_read(cluster, catalog_of):
    cluster.create(service("mr-a"))
    cluster.create(service("mr-a", "ml"))
    assert {str(each) for each in await catalog_of("kubeflow", "ml").services()} == {"kubeflow/mr-a", "ml/mr-a"}


async def test_a_namespace_that_does_not_exist_has_none(catalog_of):
    assert await catalog_of("nowhere").services() == ()


async def test_without_namespaces_nothing_is_asked(cluster, catalog_of):
    assert await catalog_of().services() == ()
    assert cluster.requests.total() == 0


async def test_services_without_ports_labels_or_annotations_are_read(cluster, catalog_of):
    bare = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bare", "namespace": "kubeflow"}}
    cluster.create(bare | {"spec": {"type": "ExternalName", "externalName": "x.example"}})
    cluster.create(service("unnamed", ports=[{"port": 80}]))
    assert {str(each) for each in await catalog_of("kubeflow").services()} == {"kubeflow/bare", "kubeflow/unnamed"}


async def test_more_services_than_a_page_holds_are_all_read(cluster, catalog_of):
    for number in range(PAGE_SIZE + 1):
        cluster.create(service(f"mr-{number}"))
    assert len(await catalog_of("kubeflow").services()) == PAGE_SIZE + 1


async def test_one_reads_for_all_and_what_was_read_is_kept(cluster, catalog_of):
    catalog = catalog_of("kubeflow")
    await asyncio.gather(*(catalog.services() for _ in range(20)))
    await catalog.services()
    assert lists(cluster) == 1


async def test_who_finds_nothing_reads_again_but_not_more_than_once_a_second(cluster, catalog_of, monkeypatch):
    catalog = catalog_of("kubeflow")
    assert await catalog.services() == ()
    cluster.create(service("mr-a"))
    assert await catalog.services(not_older_than_s=AGAIN_S) == ()
    advance(monkeypatch, AGAIN_S)
    assert await catalog.services() == ()  # nobody is in need: it is younger than half a minute
    assert len(await catalog.services(not_older_than_s=AGAIN_S)) == 1
    assert lists(cluster) == 2


async def test_half_a_minute_later_it_is_read_anew(cluster, catalog_of, monkeypatch):
    catalog = catalog_of("kubeflow")
    await catalog.services()
    cluster.create(service("mr-a"))
    advance(monkeypatch, KEPT_S)
    assert len(await catalog.services()) == 1


async def test_an_api_that_fails_leaves_what_was_read_before(cluster, catalog_of, monkeypatch, caplog):
    cluster.create(service("mr-a"))
    catalog = catalog_of("kubeflow")
    await catalog.services()
    cluster.faults.set(Fault(outage=True))
    advance(monkeypatch, KEPT_S)
    assert len(await catalog.services()) == 1
    assert cluster.faults.injected["outage"] == 1
    assert "the last ones count" in caplog.text


@pytest.mark.parametrize(
    "fault",
    [Fault(outage=True), Fault(drop_rate=1.0), Fault(error_rate=1.0, error_status=200, error_body="<html>log in"),
     Fault(error_rate=1.0, error_status=200, error_body='{"items": 7}',
           error_headers={"Content-Type": "application/json"}),
     Fault(error_rate=1.0, error_status=410), Fault(error_rate=1.0, error_status=404)],
    ids=["outage", "drop", "login", "nonsense", "410", "404"],
)  # fmt: skip
async def test_an_api_that_never_answered_is_waited_for(cluster, catalog_of, fault):
    cluster.faults.set(fault)
    with pytest.raises(TransientError):
        await catalog_of("kubeflow").services()
    assert cluster.faults.injected.total() == 1


async def test_a_missing_right_is_named_and_waited_for(catalog_of):
    with pytest.raises(TransientError, match=r'no right to list services.*in the namespace "kubeflow"'):
        await catalog_of("kubeflow", token="stranger").services()


async def test_a_first_failure_is_not_repeated_by_each_object(cluster, catalog_of):
    cluster.faults.set(Fault(outage=True))
    catalog = catalog_of("kubeflow")
    results = await asyncio.gather(*(catalog.services() for _ in range(20)), return_exceptions=True)
    assert {isinstance(result, TransientError) for result in results} == {True}
    assert cluster.faults.injected["outage"] == 1


async def test_what_is_read_resolves(cluster, catalog_of):
    cluster.create(service("mr-a"))
    settings = DiscoverySettings(prefix="modelregistry.kubeflow.org/", namespaces=("kubeflow",))
    found = resolve("team-a", Asked(), await catalog_of("kubeflow").services(), settings)
    assert found == Located("kubeflow/mr-a", "http://mr-a.kubeflow.svc.cluster.local:8080")


def advance(monkeypatch, seconds: float) -> None:
    """Move the loop's clock forward; what is scheduled comes early, nothing else notices."""
    loop = asyncio.get_running_loop()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + seconds)
