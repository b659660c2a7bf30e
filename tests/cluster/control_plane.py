"""A real Kubernetes control plane for tests: etcd and kube-apiserver, from nothing to ready in three to five seconds.

No kubelet, no scheduler, no controller-manager: objects are stored, validated, watched and authorised as in any
cluster, but nobody acts on them (no garbage collection, a Deployment gets no pods, a deleted namespace stays).

The API server makes its own certificate for 127.0.0.1, and clients verify it against the CA that it made with it. RBAC
is on. The administrator has a static token (group system:masters); a ServiceAccount gets bound tokens by TokenRequest,
signed with the serving key, which stays in the directory across restarts.

All ports are chosen by the system and stay reserved by a bound socket that never listens (SO_REUSEPORT): nobody else
can take them, not even while the API server restarts.
"""

import base64
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tests.cluster.processes import Guard, Process

CRDS: Final = Path(__file__).with_name("crds")
BUILT_ASSETS: Final = Path(__file__).parents[2] / "build" / "cluster"
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_SERVED: Final = (
    "/apis/serving.kserve.io/v1beta1/inferenceservices",
    "/apis/serving.kserve.io/v1alpha2/llminferenceservices",
)


class MissingBinariesError(RuntimeError):
    """kube-apiserver, etcd or kubectl is not where it should be."""


class KubectlError(RuntimeError):
    """kubectl ended with a failure; the message is what it wrote."""


def assets_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory with kube-apiserver, etcd and kubectl. Raises MissingBinariesError when one of them is missing."""
    configured = environment.get(ASSETS_VARIABLE)
    directory = Path(configured) if configured else BUILT_ASSETS
    missing = [name for name in ("kube-apiserver", "etcd", "kubectl") if not os.access(directory / name, os.X_OK)]
    if missing:
        raise MissingBinariesError(
            f"{directory} has no {', '.join(missing)}: run `make test-cluster`, which builds them, "
            f"or set {ASSETS_VARIABLE} to a directory that has them"
        )
    return directory


class _ReservedPort:
    """A loopback port that stays ours: bound with SO_REUSEPORT but never listening, so it takes no connection."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


class ControlPlane:
    """etcd and kube-apiserver with the CRDs of KServe, from `start` to `stop`; all they write is in `directory`."""

    def __init__(self, directory: Path, assets: Path, api_server_flags: Sequence[str] = ()) -> None:
        self.directory = directory
        self.admin_token = secrets.token_urlsafe(24)
        self.ca_file = directory / "ca.crt"
        self.kubeconfig = directory / "admin.kubeconfig"
        self._assets = assets
        self._extra_flags = tuple(api_server_flags)
        self._ports = {name: _ReservedPort() for name in ("etcd", "etcd-peer", "api")}
        self._guard = Guard()
        self._etcd: Process | None = None
        self._api_server: Process | None = None

    @property
    def pids(self) -> list[int]:
        """The processes that run now: the API server, then etcd."""
        return [process.pid for process in (self._api_server, self._etcd) if process is not None]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports['api'].number}"

    @property
    def etcd_url(self) -> str:
        """Address of etcd, for tests that compact it behind the API server's back."""
        return f"http://127.0.0.1:{self._ports['etcd'].number}"

    # --- life ---

    def start(self) -> None:
        """Start both and wait until the CRDs are served. Raises ProcessError, with the log, and leaves nothing."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        tokens = self.directory / "tokens.csv"
        tokens.write_text(f'{self.admin_token},admin,admin,"system:masters"\n')
        tokens.chmod(0o600)
        self._start_etcd()
        self._start_api_server()
        self.write_kubeconfig(self.kubeconfig, self.admin_token)
        self.kubectl("apply", "--server-side", "-f", str(CRDS))
        self._wait_for_crds()

    def _spawn(self, program: str, *flags: str) -> Process:
        env = {"HOME": str(self.directory), "PATH": os.environ.get("PATH", "")}
        return Process(self._guard, [self._assets / program, *flags], self.directory / f"{program}.log", env)

    def _start_etcd(self) -> None:
        url = f"http://127.0.0.1:{self._ports['etcd'].number}"
        peer_url = f"http://127.0.0.1:{self._ports['etcd-peer'].number}"
        self._etcd = self._spawn(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--socket-reuse-port=true",
            "--log-level=warn",
            "--unsafe-no-fsync=true",  # nothing here outlives the test run
        )
        self._etcd.wait_until(lambda: _answers_ok(f"{url}/readyz"), "ready")

    def _start_api_server(self) -> None:
        certificates = self.directory / "certificates"
        key = certificates / "apiserver.key"
        self._api_server = self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd'].number}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports['api'].number}",
            "--permit-port-sharing=true",
            f"--cert-dir={certificates}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",  # a loopback address is no endpoint
            *self._extra_flags,
        )
        self._api_server.wait_until(self._ready, "ready", deadline_s=60)

    def _ready(self) -> bool:
        certificate = self.directory / "certificates" / "apiserver.crt"
        pem = certificate.read_text() if certificate.exists() else ""
        if pem.count("-----END CERTIFICATE-----") < 2:
            return False  # not written yet: the serving certificate comes first, then the CA that signed it
        _, begin, ca = pem.rpartition("-----BEGIN CERTIFICATE-----")
        beside = self.ca_file.with_suffix(".new")
        beside.write_text(begin + ca)
        beside.replace(self.ca_file)  # a test may be reading it: after a restart it is there already
        return _answers_ok(f"{self.url}/readyz", self.ssl_context(), self.admin_token)

    def _wait_for_crds(self) -> None:
        assert self._api_server is not None, "started"
        for path in _SERVED:
            served = partial(_answers_ok, self.url + path, self.ssl_context(), self.admin_token)
            self._api_server.wait_until(served, f"{path} served")

    def stop(self) -> None:
        """Stop the API server, then etcd (the other way round the API server takes more than ten seconds)."""
        for process in (self._api_server, self._etcd):
            if process is not None:
                process.stop()
        self._api_server = self._etcd = None
        self._guard.close()
        for port in self._ports.values():
            port.release()

    # --- faults ---

    def kill_api_server(self) -> None:
        """SIGKILL: connections break, new ones are refused until `restart_api_server`."""
        assert self._api_server is not None, "started"
        self._api_server.kill()

    def restart_api_server(self, flags: Sequence[str] | None = None) -> None:
        """Stop it (if it still runs) and start it on the same port, data and keys; returns when it is ready again.

        `flags` replace those that were given at the start, for this process and the ones after it.
        """
        assert self._api_server is not None, "started"
        self._extra_flags = self._extra_flags if flags is None else tuple(flags)
        self._api_server.stop()
        self._start_api_server()
        self._wait_for_crds()

    def copy_etcd(self, to: Path) -> Path:
        """Copy etcd's data as a power cut at this moment would leave them, to a new directory, and return that.

        etcd stands still meanwhile, so that no file is caught in the middle of a write.
        """
        assert self._etcd is not None, "started"
        self._etcd.send(signal.SIGSTOP)
        try:
            return Path(shutil.copytree(self.directory / "etcd", to))
        finally:
            self._etcd.send(signal.SIGCONT)

    def put_back_etcd(self, copy: Path) -> None:
        """Restore a backup: stop both, replace etcd's data by `copy`, start both; returns when the server is ready."""
        assert self._etcd is not None, "started"
        assert self._api_server is not None, "started"
        self._api_server.stop()
        self._etcd.stop()
        shutil.rmtree(self.directory / "etcd")
        shutil.copytree(copy, self.directory / "etcd")
        self._start_etcd()
        self._start_api_server()
        self._wait_for_crds()

    def compact_etcd(self) -> int:
        """Forget all revisions before the present one, behind the API server's back; return the present one."""
        with httpx.Client(base_url=self.etcd_url, trust_env=False) as etcd:
            read = etcd.post("/v3/kv/range", json={"key": "AA==", "limit": "1"}).raise_for_status()
            revision = int(read.json()["header"]["revision"])
            etcd.post("/v3/kv/compaction", json={"revision": str(revision), "physical": True}).raise_for_status()
        return revision

    def take_out_of_etcd(self, resource: str, key: str) -> bool:
        """Delete an object of the group serving.kserve.io in etcd, as no API server would; say whether it was there."""
        encoded = base64.b64encode(f"/registry/serving.kserve.io/{resource}/{key}".encode()).decode()
        with httpx.Client(base_url=self.etcd_url, trust_env=False) as etcd:
            answer = etcd.post("/v3/kv/deleterange", json={"key": encoded}).raise_for_status()
        return answer.json().get("deleted") == "1"

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as on a half-open network."""
        assert self._api_server is not None, "started"
        self._api_server.send(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._api_server is not None, "started"
        self._api_server.send(signal.SIGCONT)

    # --- use ---

    def ssl_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def client(self, token: str | None = None) -> httpx.Client:
        """An HTTP client with the API server's base URL and CA; `token` is the administrator's if none is given."""
        headers = {"Authorization": f"Bearer {token or self.admin_token}"}
        return httpx.Client(base_url=self.url, headers=headers, verify=self.ssl_context(), timeout=10, trust_env=False)

    def service_account_token(self, namespace: str, name: str) -> str:
        """A bound token of an existing ServiceAccount, good for an hour. Raises httpx.HTTPStatusError without one."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        with self.client() as client:
            answer = client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", json=body)
        token: str = answer.raise_for_status().json()["status"]["token"]
        return token

    def write_kubeconfig(self, path: Path, token: str, namespace: str = "default") -> Path:
        """Write a kubeconfig for `token` to `path`, readable by its owner only, and return the path."""
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(self._kubeconfig(token, namespace)))
        return path

    def _kubeconfig(self, token: str, namespace: str) -> dict[str, Any]:
        name = "isvc-sync-test"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
            "current-context": name,
        }

    def kubectl(self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl, as administrator unless another kubeconfig is given; return its output. Raises KubectlError."""
        env = {
            "HOME": str(self.directory),
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "PATH": os.environ["PATH"],
        }
        command = [str(self._assets / "kubectl"), *args]
        done = subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def log_tails(self) -> str:
        """The end of both logs, for a failed test."""
        running = [process for process in (self._api_server, self._etcd) if process is not None]
        return "\n".join(f"== {process.log}\n{process.log_tail()}" for process in running)


def _answers_ok(url: str, verify: ssl.SSLContext | bool = False, token: str = "") -> bool:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, verify=verify, timeout=2, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False  # not listening yet; the caller polls under a deadline
