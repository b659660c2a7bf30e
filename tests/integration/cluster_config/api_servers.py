"""An API server that answers every GET, the kubeconfig that leads to it, and the certificates between the two."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from shared.cluster import ClusterSettings, client, load_cluster
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


@contextmanager
def api_servers() -> Iterator[Callable[..., ApiServer]]:
    """Yield what starts one, with TLS where it is given a context; all of them end with the block."""
    servers: list[ApiServer] = []

    def start(tls: ssl.SSLContext | None = None) -> ApiServer:
        servers.append(ApiServer(tls))
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.close()


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


async def get(http, path: str = "/version"):
    with translated("asking"):
        response = await http.get(path)
    raise_for(response, "asking")
    return response


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
