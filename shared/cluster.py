"""How to reach a Kubernetes API: from a kubeconfig or from inside a pod, to an httpx client that stays authenticated.

The `kubernetes` package reads the configuration (kubeconfig merging, exec plugins, certificates); requests go through
httpx. Tokens are fetched for each request: the package itself reads a `tokenFile` once and a service account's token
once a minute, and sends a rotated one too late.
"""
# mypy: allow-untyped-calls
# (the package's configuration loaders carry no types)

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import httpx
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger
from msgspec import Meta, Struct
from yaml import YAMLError

from shared.errors import RefusedToStartError, SettingsError, UnauthorizedError
from shared.kubernetes_errors import identity_in, raise_for, translated
from shared.logs import redact
from shared.tokens import TokenAuth, TokenFile, TokenSource
from shared.transport import ENCODING, CautiousTransport, connections

logger = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_UNUSABLE = (ConfigException, YAMLError, OSError, KeyError, TypeError, ValueError, AttributeError)
_CONNECT_TIMEOUT_S = 5.0
_WRITE_TIMEOUT_S = 10.0
_POOL_TIMEOUT_S = 10.0
# Bookmarks come every minute, and the server keeps 75 s of history: silence for 70 s is a dead connection, noticed
# early enough to go on without a new list.
_WATCH_READ_TIMEOUT_S = 70.0
_CONTROL_READ_TIMEOUT_S = 30.0


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """Which cluster, and how to get there."""

    kubeconfig: Annotated[
        str | None,
        Meta(description="kubeconfig file(s); unset: the pod's service account, else ~/.kube/config"),
    ] = None
    kube_context: Annotated[str | None, Meta(description="Context of the kubeconfig; unset: its current one")] = None
    kubernetes_proxy: Annotated[
        str | None,
        Meta(
            description="HTTP proxy to the Kubernetes API; HTTPS_PROXY is not read. A kubeconfig's proxy-url works, too"
        ),
    ] = None
    cluster_id: Annotated[
        str | None,
        Meta(description="Identity of the cluster, used only where the namespace kube-system cannot be read"),
    ] = None


class ClusterConfig(Struct, frozen=True):
    """All that a client needs. `tls` is None for plain http; `server_name` replaces the host in the TLS handshake."""

    host: str
    tls: ssl.SSLContext | None
    tokens: TokenSource
    server_name: str | None = None
    proxy: str | None = None


class Context(Struct, frozen=True):
    """A context of the kubeconfig as written: its name, its API server's URL, and the proxy before that, or ""."""

    name: str
    server: str
    proxy: str


class _Selected(Struct, frozen=True):
    """The cluster and the user of the chosen context, as written, and the folder of the user's file."""

    cluster: dict[str, Any]
    user: dict[str, Any]
    folder: Path

    @classmethod
    def of(cls, merged: ConfigNode, context: dict[str, str]) -> Self:
        cluster = merged["clusters"].get_with_name(context["cluster"])["cluster"]
        named = merged["users"].get_with_name(context["user"], safe=True) if context.get("user") else None
        user = {} if named is None else named["user"].value
        return cls(cluster.value, user, Path("." if named is None else named.path).parent)


class KubeconfigTokens:
    """The token, password or exec plugin of a kubeconfig's user.

    The package's refresh hook runs in a thread, since it starts the plugin when a token is about to expire; after a 401
    the kubeconfig is read anew, which starts the plugin again.
    """

    def __init__(self, path: str, context: str | None, configuration: Configuration) -> None:
        self._path = path
        self._context = context
        self._configuration = configuration
        self._value = configuration.get_api_key_with_prefix("BearerToken")
        self._lock = asyncio.Lock()  # one plugin at a time, however many requests wait

    async def current(self) -> str | None:
        if self._value is None:
            return None  # client certificates, or nothing
        async with self._lock:
            self._value = await asyncio.to_thread(self._configuration.get_api_key_with_prefix, "BearerToken")
            return self._value

    async def refused(self, value: str | None) -> str | None:
        if value is None:
            return None
        async with self._lock:
            if self._value == value:  # else another request has already brought a newer one
                try:
                    self._configuration, _ = await asyncio.to_thread(_read_kubeconfig, self._path, self._context)
                except SettingsError as error:
                    raise UnauthorizedError(f"401, and no new credentials: {error}") from error
                self._value = self._configuration.get_api_key_with_prefix("BearerToken")
            return self._value


def load_cluster(
    settings: ClusterSettings, environ: Mapping[str, str], *, service_account: Path = SERVICE_ACCOUNT
) -> ClusterConfig:
    """Find the cluster: KUBECONFIG, else the pod's service account, else ~/.kube/config. May run an exec plugin.

    Certificates are read here and now: a rotated client certificate or CA needs a restart. Raises SettingsError.
    """
    if settings.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ:
        return _in_cluster(settings, environ, service_account)
    return _from_kubeconfig(settings, _path(settings))


def find_context(settings: ClusterSettings) -> Context:
    """Look up where a context of the kubeconfig leads. Runs no plugin, connects to nothing. Raises SettingsError."""
    path = _path(settings)
    try:
        merged = KubeConfigMerger(path).config
        loader = KubeConfigLoader(merged, active_context=settings.kube_context, config_base_path=None)
        chosen = loader.current_context
        cluster = _Selected.of(merged, chosen["context"]).cluster
        return Context(str(chosen["name"]), str(cluster["server"]), str(cluster.get("proxy-url") or ""))
    except _UNUSABLE as error:
        raise _unusable(path, error) from error


def client(config: ClusterConfig, *, use: Literal["watch", "control"], role: str) -> httpx.AsyncClient:
    """Return a client that takes paths of the API server.

    One for watches and one for everything else: a watch that fills its connections must not starve the lease. `role`
    goes into the User-Agent, for the audit log.
    """
    read_s = _WATCH_READ_TIMEOUT_S if use == "watch" else _CONTROL_READ_TIMEOUT_S

    async def name_server(request: httpx.Request) -> None:
        if config.server_name is not None:
            request.extensions["sni_hostname"] = config.server_name

    return httpx.AsyncClient(
        base_url=config.host,
        auth=TokenAuth(config.tokens),
        transport=CautiousTransport(connections(config.tls, config.proxy), endless=use == "watch"),
        timeout=httpx.Timeout(read_s, connect=_CONNECT_TIMEOUT_S, write=_WRITE_TIMEOUT_S, pool=_POOL_TIMEOUT_S),
        trust_env=False,
        headers={
            "Accept": "application/json",
            "Accept-Encoding": ENCODING if use == "control" else "identity",  # it would hold small events back
            "User-Agent": f"isvc-sync/{version('isvc-sync')} ({role})",
        },
        event_hooks={"request": [name_server]},
    )


async def cluster_id(http: httpx.AsyncClient, settings: ClusterSettings) -> str:
    """Return the cluster's identity: the uid of the namespace kube-system, else the setting CLUSTER_ID.

    Raises RefusedToStartError when neither is there; TransientError while the API does not answer.
    """
    what = f"reading the namespace kube-system at {redact(str(http.base_url)).rstrip('/')}"
    with translated(what):
        response = await http.get("/api/v1/namespaces/kube-system")
    if response.status_code not in {403, 404}:
        raise_for(response, what)
        uid = identity_in(response, what).uid
        if settings.cluster_id not in {None, uid}:
            logger.warning("CLUSTER_ID is not used: kube-system can be read", extra={"cluster_id": uid})
        return uid
    if settings.cluster_id is None:
        raise RefusedToStartError(
            f"The namespace kube-system cannot be read ({response.status_code}), and its uid is the cluster's "
            "identity: grant get on it, or set CLUSTER_ID to a value that no other cluster has."
        )
    return settings.cluster_id


def _in_cluster(settings: ClusterSettings, environ: Mapping[str, str], account: Path) -> ClusterConfig:
    configuration = Configuration()
    try:
        InClusterConfigLoader(str(account / "token"), str(account / "ca.crt"), environ=environ).load_and_set(
            configuration
        )
    except ConfigException as error:
        raise SettingsError(f"The pod has no usable service account in {account}: {error}") from error
    return ClusterConfig(
        host=configuration.host,
        tls=_tls(configuration),
        tokens=TokenFile(account / "token"),
        proxy=settings.kubernetes_proxy,
    )


def _path(settings: ClusterSettings) -> str:
    path = settings.kubeconfig or "~/.kube/config"
    if not any(Path(part).expanduser().is_file() for part in path.split(os.pathsep)):
        raise SettingsError(
            f"No cluster is configured: {path} does not exist and this is no pod. Set KUBECONFIG to a kubeconfig file."
        )
    return path


def _from_kubeconfig(settings: ClusterSettings, path: str) -> ClusterConfig:
    configuration, selected = _read_kubeconfig(path, settings.kube_context)
    tokens: TokenSource = KubeconfigTokens(path, settings.kube_context, configuration)
    if "tokenFile" in selected.user:  # stronger than a token beside it, as for kubectl
        tokens = TokenFile(selected.folder / selected.user["tokenFile"])
    proxy = settings.kubernetes_proxy or selected.cluster.get("proxy-url")
    if proxy and configuration.tls_server_name:
        raise SettingsError(
            f"KUBECONFIG {path} has tls-server-name, which does not work through a proxy: drop one of the two"
        )
    return ClusterConfig(
        host=configuration.host,
        tls=_tls(configuration) if configuration.host.startswith("https:") else None,
        tokens=tokens,
        server_name=configuration.tls_server_name,
        proxy=proxy,
    )


def _read_kubeconfig(path: str, context: str | None) -> tuple[Configuration, _Selected]:
    """Read the files and run the user's exec plugin, if there is one. Never writes to them."""
    configuration = Configuration()
    try:
        merged = KubeConfigMerger(path).config
        loader = KubeConfigLoader(merged, active_context=context, config_base_path=None)
        loader.load_and_set(configuration)
        selected = _Selected.of(merged, loader.current_context["context"])
    except _UNUSABLE as error:
        raise _unusable(path, error) from error
    if "server" not in selected.cluster:
        raise SettingsError(f"KUBECONFIG {path} cannot be used: its cluster names no server")
    if "exec" in selected.user and not (configuration.api_key or configuration.cert_file):
        # The package logs the reason and goes on without credentials.
        raise SettingsError(
            f"KUBECONFIG {path} cannot be used: the plugin {selected.user['exec'].get('command')} gave no credentials"
        )
    return configuration, selected


def _unusable(path: str, error: Exception) -> SettingsError:
    why = f"it names no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
    odd = isinstance(error, TypeError | AttributeError | UnicodeDecodeError)  # Python's words help nobody
    return SettingsError(f"KUBECONFIG {path} cannot be used: {'it is no kubeconfig file' if odd else why}")


def _tls(configuration: Configuration) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python 3.13 demands an Authority Key Identifier, which many clusters' certificates lack; Go does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"the certificates for {configuration.host} cannot be used: {error}") from error
    return context
