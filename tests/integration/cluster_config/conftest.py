"""API servers to be found, and the kubeconfig that leads to one."""

import pytest

from tests.integration.cluster_config.api_servers import Authority, Kubeconfig, api_servers


@pytest.fixture
def start():
    with api_servers() as started:
        yield started


@pytest.fixture
def api(start):
    return start()


@pytest.fixture
def kubeconfig(tmp_path):
    return Kubeconfig(tmp_path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))
