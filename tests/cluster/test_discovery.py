"""Registries are found on a real API server, with the account and the rights that `k8s/base` gives the consumer."""

from pathlib import Path

import pytest
import yaml
from opentelemetry.trace import NoOpTracer

from consumer.discovery import Asked, DiscoverySettings, Located, resolve
from consumer.requests.exchange import Exchanger, Instruments
from consumer.services import ServiceCatalog
from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import TransientError

pytestmark = pytest.mark.cluster

BASE = Path(__file__).parents[2] / "k8s" / "base"
SETTINGS = DiscoverySettings(prefix="modelregistry.kubeflow.org/", namespaces=("kubeflow",))


def service(name: str, port: str, annotations: dict[str, str] | None = None, **labels: str):
    metadata = {"name": name, "namespace": "kubeflow", "labels": labels, "annotations": annotations or {}}
    spec = {"ports": [{"name": port, "port": 8080}], "selector": {"app": "none"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def deployed(control_plane):
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("kubeflow", "kserve")
    ]
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(namespaces))
    control_plane.kubectl("apply", "--server-side", "--kustomize", str(BASE))
    services = [
        service("mr-plain", "http-api", component="model-registry"),
        service("mr-proxied", "https-api"),
        service("mr-outside", "https-api", {"routing.opendatahub.io/external-address-rest": "gw.example:8443/mr/x"}),
        service("other", "http"),
    ]
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(services))
    yield control_plane
    control_plane.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(services))


@pytest.fixture
async def catalog_of(deployed, tmp_path):
    token = deployed.service_account_token("isvc-sync", "isvc-sync-consumer")
    path = deployed.write_kubeconfig(tmp_path / "kubeconfig", token)
    http = client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="consumer")
    exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
    yield lambda *namespaces: ServiceCatalog(exchanger, namespaces)
    await http.aclose()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (Asked(), Located("kubeflow/mr-plain", "http://mr-plain.kubeflow.svc.cluster.local:8080")),
        (
            Asked(name="mr-proxied"),
            Located("kubeflow/mr-proxied", "https://mr-proxied.kubeflow.svc.cluster.local:8080"),
        ),
        (Asked(name="mr-outside"), Located("kubeflow/mr-outside", "https://gw.example:8443/mr/x")),
    ],
    ids=["the labelled one", "https-api", "external address"],
)
async def test_a_registry_is_found_by_its_service(catalog_of, asked, found):
    assert resolve("team-a", asked, await catalog_of("kubeflow").services(), SETTINGS) == found


async def test_a_namespace_without_the_role_is_named(catalog_of):
    with pytest.raises(TransientError, match=r'no right to list services.*"default"'):
        await catalog_of("default").services()
