"""From a kubeconfig, or a pod's service account, to an authenticated request: over real sockets, TLS and processes."""

import asyncio
import base64
import json
import os
import shutil
import socket
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from shared.cluster import ClusterSettings, client, cluster_id, load_cluster
from shared.errors import RefusedToStartError, SettingsError, UnauthorizedError, UnreachableError
from shared.kubernetes_errors import raise_for, translated
from tests.certificates import NEW_KEY, openssl

NAMESPACE = {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "uid-1"}}


class ApiServer:
    """Answers every GET, and remembers what it was asked and by whom."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.accepted: set[str | None] | None = None  # None: whoever comes
        self.answer: tuple[int, object] = (200, NAMESPACE)
        self.requests: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.peers: list[str] = []
        self.server_names: list[str | None] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                api.requests.append(dict(self.headers))
                api.paths.append(self.path)
                if tls is not None and (certificate := self.connection.getpeercert()):
                    api.peers.append(certificate["subject"][0][0][1])
                refused = api.accepted is not None and self.headers["Authorization"] not in api.accepted
                code, body = (401, {"kind": "Status", "message": "Unauthorized"}) if refused else api.answer
                content = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False  # server_close() waits: nothing is left running

            def get_request(self):
                connection, address = super().get_request()
                connection.settimeout(10)
                return connection, address

            def finish_request(self, request, client_address) -> None:
                if tls is not None:  # the handshake in the connection's own thread
                    try:
                        request = tls.wrap_socket(request, server_side=True)
                    except OSError:
                        return  # a client that does not trust us: the test looks at the client
                try:
                    super().finish_request(request, client_address)
                finally:
                    request.close()

        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: self.server_names.append(name)
        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.02])
        self._thread.start()

    def tokens(self) -> list[str | None]:
        return [request.get("Authorization") for request in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def start():
    servers: list[ApiServer] = []

    def make(tls: ssl.SSLContext | None = None) -> ApiServer:
        servers.append(ApiServer(tls))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def api(start):
    return start()


class Kubeconfig:
    """A kubeconfig file in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config"

    def write(self, server: str, user: dict[str, object] | None = None, **cluster: object) -> None:
        self.path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "main",
                    "contexts": [
                        {"name": "main", "context": {"cluster": "c", "user": "u"}},
                        {"name": "nobody", "context": {"cluster": "c"}},
                    ],
                    "clusters": [{"name": "c", "cluster": {"server": server} | cluster}],
                    "users": [{"name": "u", "user": user or {}}],
                }
            )
        )

    def settings(self, **others: str) -> ClusterSettings:
        return ClusterSettings(kubeconfig=str(self.path), **others)

    def client(self, **others: str):
        return client(load_cluster(self.settings(**others), {}), use="control", role="test")


@pytest.fixture
def kubeconfig(tmp_path):
    return Kubeconfig(tmp_path)


async def get(http, path: str = "/version"):
    with translated("asking"):
        response = await http.get(path)
    raise_for(response, "asking")
    return response


# --- tokens ---------------------------------------------------------------------------------------------------------


async def test_the_token_and_our_name_are_sent(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Bearer abc"]
    assert api.requests[0]["User-Agent"].startswith("isvc-sync/")
    assert api.requests[0]["User-Agent"].endswith(" (test)")


async def test_user_and_password_are_sent(api, kubeconfig):
    kubeconfig.write(api.url, {"username": "me", "password": "pw"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Basic " + base64.b64encode(b"me:pw").decode()]


async def test_the_context_can_be_chosen(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client(kube_context="nobody") as http:
        await get(http)
    assert api.tokens() == [None]


async def test_a_rotated_token_file_is_used_by_the_next_request(api, kubeconfig, tmp_path):
    (tmp_path / "token").write_text("first")
    kubeconfig.write(api.url, {"tokenFile": "token"})  # relative to the kubeconfig
    async with kubeconfig.client() as http:
        await get(http)
        (tmp_path / "token").write_text("second, longer")
        await get(http)
    assert api.tokens() == ["Bearer first", "Bearer second, longer"]


async def test_a_token_file_wins_over_a_token_as_it_does_for_kubectl(api, kubeconfig, tmp_path):
    (tmp_path / "token").write_text("file")
    kubeconfig.write(api.url, {"tokenFile": "token", "token": "inline"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Bearer file"]


async def test_after_a_401_the_token_is_read_again_and_the_request_repeated_once(api, kubeconfig, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    os.utime(token, ns=(1, 1))
    kubeconfig.write(api.url, {"tokenFile": "token"})
    async with kubeconfig.client() as http:
        await get(http)
        token.write_text("new")
        os.utime(token, ns=(1, 1))  # a rotation that time and size do not show
        api.accepted = {"Bearer new"}
        await get(http)
    assert api.tokens() == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_401_for_a_token_that_did_not_change_is_not_repeated(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    api.accepted = set()
    async with kubeconfig.client() as http:
        with pytest.raises(UnauthorizedError):
            await get(http)
    assert api.tokens() == ["Bearer abc"]


async def test_a_pod_uses_its_service_account_and_follows_its_rotation(start, tmp_path, authority):
    api = start(authority.server_context())
    (tmp_path / "token").write_text("pod-1")
    shutil.copy(authority.ca, tmp_path / "ca.crt")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    config = load_cluster(ClusterSettings(), environ, service_account=tmp_path)
    async with client(config, use="watch", role="test") as http:
        await get(http)
        (tmp_path / "token").write_text("pod-22")
        await get(http)
    assert api.tokens() == ["Bearer pod-1", "Bearer pod-22"]


def test_a_pod_without_a_service_account_is_told(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(SettingsError, match="no usable service account"):
        load_cluster(ClusterSettings(), environ, service_account=tmp_path)


# --- exec plugins ---------------------------------------------------------------------------------------------------


class Plugin:
    """An exec plugin: prints token-1, token-2, ... and counts its runs in a file."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        self.script = folder / "plugin.py"
        self.expires("2999-01-01T00:00:00Z")

    def expires(self, when: str) -> None:
        self.script.write_text(
            "import json, pathlib\n"
            f"runs = pathlib.Path({str(self._runs)!r})\n"
            "count = int(runs.read_text()) + 1 if runs.exists() else 1\n"
            "runs.write_text(str(count))\n"
            "status = {'token': f'token-{count}', 'expirationTimestamp': " + repr(when) + "}\n"
            "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
            " 'status': status}))\n"
        )

    def breaks(self) -> None:
        self.script.write_text("import sys; sys.exit('the vault is sealed')\n")

    @property
    def runs(self) -> int:
        return int(self._runs.read_text())

    @property
    def user(self) -> dict[str, object]:
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [str(self.script)],
                "interactiveMode": "Never",
            }
        }


@pytest.fixture
def plugin(tmp_path):
    return Plugin(tmp_path)


async def test_an_exec_plugin_gives_the_token_and_is_run_once_while_it_is_valid(api, kubeconfig, plugin):
    kubeconfig.write(api.url, plugin.user)
    before = kubeconfig.path.read_bytes()
    async with kubeconfig.client() as http:
        await get(http)
        await get(http)
    assert api.tokens() == ["Bearer token-1"] * 2
    assert plugin.runs == 1
    assert kubeconfig.path.read_bytes() == before


async def test_an_exec_plugin_is_run_again_when_its_token_has_expired(api, kubeconfig, plugin):
    plugin.expires("2020-01-01T00:00:00Z")
    kubeconfig.write(api.url, plugin.user)
    async with kubeconfig.client() as http:
        plugin.expires("2999-01-01T00:00:00Z")
        await get(http)
        await get(http)
    first, second = api.tokens()
    assert first == second == f"Bearer token-{plugin.runs}"
    assert plugin.runs > 1


async def test_a_refused_token_of_an_exec_plugin_is_replaced_once_for_all_who_wait(api, kubeconfig, plugin):
    kubeconfig.write(api.url, plugin.user)
    async with kubeconfig.client() as http:
        api.accepted = {"Bearer token-2"}
        await asyncio.gather(*(get(http) for _ in range(8)))
    assert plugin.runs == 2
    assert api.tokens().count("Bearer token-2") >= 8


async def test_an_exec_plugin_that_fails_later_is_an_unauthorized_error_that_names_it(api, kubeconfig, plugin):
    kubeconfig.write(api.url, plugin.user)
    async with kubeconfig.client() as http:
        plugin.breaks()
        api.accepted = set()
        with pytest.raises(UnauthorizedError, match=r"the plugin .* gave no credentials"):
            await get(http)


def test_an_exec_plugin_that_fails_at_start_is_told(api, kubeconfig, plugin):
    plugin.breaks()
    kubeconfig.write(api.url, plugin.user)
    with pytest.raises(SettingsError, match=r"KUBECONFIG .* the plugin .* gave no credentials"):
        load_cluster(kubeconfig.settings(), {})


# --- certificates ---------------------------------------------------------------------------------------------------


class Authority:
    """A CA, a server certificate for 127.0.0.1, one for kube.test, and a client's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = folder / "ca.crt"
        openssl(self._folder, "req", "-x509", *NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test-ca")
        self.sign("ip", "subjectAltName=IP:127.0.0.1")
        self.sign("name", "subjectAltName=DNS:kube.test")
        self.sign("client", "extendedKeyUsage=clientAuth")

    def sign(self, name: str, extension: str) -> None:
        openssl(self._folder, "req", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self._folder / f"{name}.ext").write_text(extension)
        signing = ["-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
        openssl(self._folder, "x509", *signing, "-out", f"{name}.crt", "-extfile", f"{name}.ext", "-days", "2")

    def server_context(self, name: str = "ip", *, ask_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        if ask_client:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def data(self, file: str) -> str:
        return base64.b64encode((self._folder / file).read_bytes()).decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


async def test_the_clusters_ca_is_trusted(start, kubeconfig, authority):
    api = start(authority.server_context())
    kubeconfig.write(api.url, {"token": "abc"}, **{"certificate-authority-data": authority.data("ca.crt")})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Bearer abc"]


async def test_a_server_of_another_ca_is_not_talked_to(start, kubeconfig, authority):
    api = start(authority.server_context())
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http:
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await get(http)
    assert api.requests == []


async def test_verification_is_off_only_where_the_kubeconfig_says_so(start, kubeconfig, authority):
    api = start(authority.server_context("name"))
    kubeconfig.write(api.url, {"token": "abc"}, **{"insecure-skip-tls-verify": True})
    async with kubeconfig.client() as http:
        await get(http)


async def test_a_client_certificate_is_shown(start, kubeconfig, authority):
    api = start(authority.server_context(ask_client=True))
    certificate = {
        "client-certificate-data": authority.data("client.crt"),
        "client-key-data": authority.data("client.key"),
    }
    kubeconfig.write(api.url, certificate, **{"certificate-authority-data": authority.data("ca.crt")})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.peers == ["client"]
    assert api.tokens() == [None]


async def test_the_name_in_the_kubeconfig_is_asked_for_and_verified(start, kubeconfig, authority):
    api = start(authority.server_context("name"))
    trust = {"certificate-authority-data": authority.data("ca.crt")}
    kubeconfig.write(api.url, {"token": "abc"}, **trust, **{"tls-server-name": "kube.test"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.server_names == ["kube.test"]
    kubeconfig.write(api.url, {"token": "abc"}, **trust)
    async with kubeconfig.client() as http:
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await get(http)


def test_a_broken_certificate_is_told(kubeconfig):
    broken = base64.b64encode(b"no certificate").decode()
    kubeconfig.write("https://127.0.0.1:1", {"token": "abc"}, **{"certificate-authority-data": broken})
    with pytest.raises(SettingsError, match="certificates for https://"):
        load_cluster(kubeconfig.settings(), {})


# --- proxies, sockets -----------------------------------------------------------------------------------------------


async def test_proxies_of_the_environment_are_not_used(api, kubeconfig, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.paths == ["/version"]


@pytest.mark.parametrize("by", ["setting", "kubeconfig"])
async def test_a_proxy_is_used_when_it_is_configured(api, kubeconfig, by):
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


async def test_connections_have_tcp_keepalive(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http, http.stream("GET", "/version") as response:
        connection = response.extensions["network_stream"].get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def test_a_watch_may_be_silent_longer_than_a_call(api, kubeconfig):
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


async def test_an_api_server_in_trouble_is_no_reason_to_use_the_setting(api, kubeconfig):
    kubeconfig.write(api.url)
    api.accepted = set()
    async with kubeconfig.client() as http:
        with pytest.raises(UnauthorizedError):
            await cluster_id(http, ClusterSettings(cluster_id="mine"))
