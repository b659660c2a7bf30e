"""How a cluster is found, reached and known: proxies, sockets, the kubeconfig itself, the cluster's identity."""

import socket

import pytest

from shared.cluster import ClusterSettings, client, cluster_id, find_context, load_cluster
from shared.errors import RefusedToStartError, SettingsError, UnauthorizedError, UnreachableError
from tests.integration.cluster_config.api_servers import get

# --- proxies, sockets -----------------------------------------------------------------------------------------------


async def test_R24_proxies_of_the_environment_are_not_used(api, kubeconfig, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.paths == ["/version"]


@pytest.mark.parametrize("by", ["setting", "kubeconfig"])
async def test_R24_a_proxy_is_used_when_it_is_configured(api, kubeconfig, by):
    url = "http://kubernetes.invalid:8080"
    if by == "setting":
        kubeconfig.write(url, {"token": "abc"})
        http = kubeconfig.client(kubernetes_proxy=api.url)
    else:
        kubeconfig.write(url, {"token": "abc"}, **{"proxy-url": api.url})
        http = kubeconfig.client()
    async with http:
        await get(http)
    assert api.paths == [f"{url}/version"]


def test_a_server_name_through_a_proxy_is_refused_for_it_would_be_ignored(kubeconfig):
    kubeconfig.write("https://127.0.0.1:1", {"token": "a"}, **{"tls-server-name": "x", "proxy-url": "http://p:1"})
    with pytest.raises(SettingsError, match="tls-server-name"):
        load_cluster(kubeconfig.settings(), {})


async def test_R23_connections_have_tcp_keepalive(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http, http.stream("GET", "/version") as response:
        connection = response.extensions["network_stream"].get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_R10_R23_a_watch_may_be_silent_longer_than_a_call(api, kubeconfig):
    kubeconfig.write(api.url)
    config = load_cluster(kubeconfig.settings(), {})
    async with client(config, use="watch", role="t") as watch, client(config, use="control", role="t") as control:
        assert (watch.timeout.read, control.timeout.read) == (70, 30)
        assert watch.timeout.connect == control.timeout.connect == 5


async def test_nobody_at_home_is_unreachable(kubeconfig):
    kubeconfig.write("http://127.0.0.1:1", {"token": "abc"})
    async with kubeconfig.client() as http:
        with pytest.raises(UnreachableError, match="asking: no answer"):
            await get(http)


# --- finding the cluster --------------------------------------------------------------------------------------------


def test_no_cluster_at_all_is_told_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SettingsError, match="Set KUBECONFIG"):
        load_cluster(ClusterSettings(), {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "current-context: x",
        "current-context: m\ncontexts: [{name: m, context: {cluster: c}}]\nclusters: [{name: c, cluster: {a: b}}]",
    ],
)
def test_a_kubeconfig_that_makes_no_sense_is_told_by_name(kubeconfig, text):
    kubeconfig.path.write_text(text)
    with pytest.raises(SettingsError, match=f"KUBECONFIG {kubeconfig.path} cannot be used"):
        load_cluster(kubeconfig.settings(), {})


CONTEXT = "current-context: m\ncontexts: [{name: m, context: {cluster: c, user: u}}]\n"


@pytest.mark.parametrize("read", [lambda settings: load_cluster(settings, {}), find_context])
@pytest.mark.parametrize(
    "text",
    [
        "root:x:0:0:root:/root:/bin/bash\nbin:x:1:1\n",
        "[1]",
        "7",
        "\x7fELF\udcff\udcfe",
        "clusters: 5",
        "current-context: m\ncontexts: [{name: m, context: 3}]",
        f"{CONTEXT}clusters: [{{name: c, cluster: 7}}]",
    ],
)
def test_a_file_that_is_no_kubeconfig_is_told_in_our_words(kubeconfig, read, text):
    kubeconfig.path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SettingsError) as told:
        read(kubeconfig.settings())
    assert str(told.value) == f"KUBECONFIG {kubeconfig.path} cannot be used: it is no kubeconfig file"


def test_a_kubeconfig_with_a_fault_in_its_yaml_is_told_on_one_line(kubeconfig):
    kubeconfig.path.write_text("a: [")
    with pytest.raises(SettingsError) as told:
        load_cluster(kubeconfig.settings(), {})
    assert len(str(told.value).splitlines()) == 1


# --- identity -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [None, "mine"])
async def test_the_identity_is_the_uid_of_kube_system_whenever_it_can_be_read(api, kubeconfig, setting):
    kubeconfig.write(api.url)
    async with kubeconfig.client() as http:
        assert await cluster_id(http, ClusterSettings(cluster_id=setting)) == "uid-1"
    assert api.paths == ["/api/v1/namespaces/kube-system"]


async def test_the_setting_is_the_identity_where_kube_system_cannot_be_read(api, kubeconfig):
    kubeconfig.write(api.url)
    api.answer = (403, {"kind": "Status", "message": "forbidden"})
    async with kubeconfig.client() as http:
        assert await cluster_id(http, ClusterSettings(cluster_id="mine")) == "mine"


async def test_without_either_the_start_is_refused_with_the_way_out(api, kubeconfig):
    kubeconfig.write(api.url)
    api.answer = (403, {"kind": "Status", "message": "forbidden"})
    async with kubeconfig.client() as http:
        with pytest.raises(RefusedToStartError, match="set CLUSTER_ID"):
            await cluster_id(http, ClusterSettings())


NO_NAMESPACES = [{}, [], {"metadata": None}, {"metadata": {}}, *({"metadata": {"uid": uid}} for uid in (None, "", 7))]


@pytest.mark.parametrize("body", NO_NAMESPACES, ids=str)
async def test_an_answer_without_a_uid_is_no_identity_and_asked_for_again(api, kubeconfig, body):
    kubeconfig.write(api.url)
    api.answer = (200, body)
    async with kubeconfig.client() as http:
        with pytest.raises(UnreachableError, match=r"reading the namespace kube-system .*: the answer is no object"):
            await cluster_id(http, ClusterSettings(cluster_id="mine"))


async def test_an_api_server_in_trouble_is_no_reason_to_use_the_setting(api, kubeconfig):
    kubeconfig.write(api.url)
    api.accepted = set()
    async with kubeconfig.client() as http:
        with pytest.raises(UnauthorizedError):
            await cluster_id(http, ClusterSettings(cluster_id="mine"))
