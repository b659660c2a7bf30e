"""The connection to one Model Registry: its HTTP client, API version, credentials, and how much we ask at once.

One `RegistryClient` for each registry and process; `registry.py` says on top of it what is asked. It never speaks to
another host: not by a redirect, and not by an absolute address that somebody slips in.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import msgspec

from consumer.addresses import normal
from consumer.requests.circuit import Admission, Bearing, Circuit, Closed, Open, admit, name_of, settle
from consumer.requests.exchange import REQUEST_TIMEOUT_S, Budget, Exchanger, Instruments, Outgoing
from consumer.requests.inflight import InFlightLimit
from consumer.requests.registry_errors import Answer, OtherVersionError, Request, RequestKind, bearing_of, classify
from shared.decoding import UNDECODABLE
from shared.errors import IsvcSyncError, NotSentError, PermanentError, SettingsError, TransientError
from shared.tokens import TokenAuth, TokenFile
from shared.transport import CautiousTransport

logger = logging.getLogger(__name__)

T = TypeVar("T")

API_VERSIONS: Final = ("v1", "v1alpha3")
"""Best first: a registry that serves both is going to take v1alpha3 away (KEP-0004)."""

_API_ROOT: Final = "/api/model_registry/"
_PROBE: Final = Request(RequestKind.LIST, "GET", "/registered_models", {"pageSize": "1"})
_MAX_CONNECTIONS: Final = 16  # above any limit on requests in flight that makes sense for this server
_KEEPALIVE_S: Final = 60.0  # the server keeps idle connections longer than this


class RegistryAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a registry. `base_url` may have a port and a path; `api_version` None: find out.

    Raises ValueError, with a sentence for people, for an address that is none.
    """

    base_url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    api_version: str | None = None

    def __post_init__(self) -> None:
        try:
            normal(self.base_url)
            httpx.URL(self.base_url)
        except httpx.InvalidURL:
            raise ValueError("the registry's address has a host that is none") from None
        except ValueError as error:
            raise ValueError(f"the registry's address {error}") from None
        if self.api_version not in {None, *API_VERSIONS}:
            raise ValueError(
                f"the registry's API version must be {' or '.join(API_VERSIONS)}, not {self.api_version!r}"
            )


class RegistryClient:
    """Sends requests to one registry, in the API version that it serves, while its circuit lets them.

    `on_circuit` is told the circuit's state (closed, open, half-open) at the beginning and whenever it changes.
    """

    def __init__(
        self,
        access: RegistryAccess,
        limit: InFlightLimit,
        instruments: Instruments,
        on_circuit: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Raise SettingsError when the CA file cannot be used."""
        self._http = registry_http(access)
        self._exchanger = Exchanger(self._http, instruments)
        self._limit = limit
        self._pinned = access.api_version
        self._version = access.api_version
        self._probing = InFlightLimit(1)  # one asks for the version; nobody waits for long behind one without answer
        self._deprecated: set[str] = set()
        self._circuit: Circuit = Closed()
        self._on_circuit = on_circuit
        on_circuit(name_of(self._circuit))

    @property
    def address(self) -> str:
        return str(self._http.base_url)

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, request: Request, budget: Budget) -> bytes:
        """Return the body of a successful answer. Raises what `registry_errors.py` makes of any other.

        Raises NotSentError, with the seconds to wait, while the circuit is open.
        """
        admission = self._admit(request)
        bearing = Bearing.NOTHING
        try:
            body = await self._in_its_version(request, budget)
            bearing = Bearing.WELL
        except IsvcSyncError as error:
            bearing = bearing_of(request, error)
            if bearing is Bearing.ILL and self._version is None:
                bearing = Bearing.DEAD  # not even the first question was answered
            raise
        finally:
            self._become(settle(self._circuit, bearing, _now(), is_probe=admission.is_probe))
        return body

    def _admit(self, request: Request) -> Admission:
        admission = admit(self._circuit, _now())
        self._become(admission.circuit)
        if admission.wait_s > 0:
            raise self._away(request, admission.wait_s)
        return admission

    def _away(self, request: Request, wait_s: float) -> NotSentError:
        return NotSentError(f"{request}: not sent, {self.address} is away", retry_after_s=max(0.0, wait_s))

    def _become(self, circuit: Circuit) -> None:
        before, self._circuit = name_of(self._circuit), circuit
        now = name_of(circuit)
        if before == now:
            return
        self._on_circuit(now)
        if now == "open" and before == "closed":
            logger.error("the registry is away, its objects are held", extra={"registry": self.address})
        elif now == "closed":
            logger.info("the registry is back", extra={"registry": self.address})

    async def _in_its_version(self, request: Request, budget: Budget) -> bytes:
        version = self._version or await self._found_version(budget)
        try:
            return await self._call_version(version, request, budget)
        except OtherVersionError as error:
            if self._pinned is not None:
                raise TransientError(
                    f"{error}: REGISTRY_API_VERSION pins {version}, which the registry does not serve"
                ) from error
            if self._version == version:  # else somebody else has noticed, and found another one
                self._version = None
            raise

    async def _found_version(self, budget: Budget) -> str:
        async with self._probing:
            if self._version is None:
                self._version = await self._probe(budget)
                logger.info("found the registry", extra={"registry": self.address, "api_version": self._version})
            return self._version

    async def _probe(self, budget: Budget) -> str:
        said = []
        for version in API_VERSIONS:
            try:
                body = await self._call_version(version, _PROBE, budget)
            except (OtherVersionError, PermanentError) as error:
                said.append(f"{version}: {error}")  # whatever is refused here is no object's fault
                continue
            decoded(body, _Page, _PROBE)  # a login page comes with 200, too
            return version
        raise TransientError(
            f"{self.address} serves neither {' nor '.join(_API_ROOT + version for version in API_VERSIONS)}: "
            f"is the path in the registry's address right? ({'; '.join(said)})"
        )

    async def _call_version(self, version: str, request: Request, budget: Budget) -> bytes:
        prefix = f"{_API_ROOT}{version}"
        outgoing = Outgoing(
            method=request.method,
            path=prefix + request.path,
            route=prefix + request.route,
            params=request.params,
            body=request.body,
        )
        async with self._limit:
            if isinstance(self._circuit, Open):
                raise self._away(request, self._circuit.until - _now())  # it opened while we waited for a place
            response = await self._exchanger.send(outgoing, budget)
        self._note_deprecation(version, response.headers)
        error = classify(request, _answer(response))
        if error is not None:
            raise error
        return response.content

    def _note_deprecation(self, version: str, headers: httpx.Headers) -> None:
        announced = {name: headers[name] for name in ("deprecation", "sunset") if name in headers}
        if announced and version not in self._deprecated:
            self._deprecated.add(version)
            logger.warning(
                "the registry announces the end of an API version",
                extra={"registry": self.address, "api_version": version, **announced},
            )


class _Page(msgspec.Struct, frozen=True):
    items: list[Any]


def registry_http(access: RegistryAccess) -> httpx.AsyncClient:
    """Return an HTTP client that speaks to exactly one origin. Raises SettingsError for an unusable CA file."""
    base = httpx.URL(access.base_url)
    needs_tls = base.scheme == "https" or access.ca_file is not None

    async def refuse_others(request: httpx.Request) -> None:
        if _origin(request.url) != _origin(base):
            raise PermanentError(f"a request to {request.url.host} was stopped: this client speaks to {base.host} only")

    return httpx.AsyncClient(
        base_url=base,
        auth=None if access.token_file is None else TokenAuth(TokenFile(access.token_file)),
        transport=CautiousTransport(
            httpx.AsyncHTTPTransport(
                # To read the usual certificates takes longer than a request: not for plain http.
                verify=certificates(access.ca_file) if needs_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=_KEEPALIVE_S),
                trust_env=False,
            )
        ),
        timeout=httpx.Timeout(REQUEST_TIMEOUT_S),
        follow_redirects=False,
        trust_env=False,  # no proxy, no netrc: nothing else decides where a token goes
        headers={"Accept": "application/json"},
        event_hooks={"request": [refuse_others]},
    )


def decoded(body: bytes | msgspec.Raw, shape: type[T], request: Request) -> T:
    """Decode a successful answer. Raises TransientError when it is none of the registry's."""
    try:
        return msgspec.json.decode(body, type=shape)
    except UNDECODABLE as error:
        raise TransientError(f"{request}: the answer is not what the registry sends ({error})") from error


def _answer(response: httpx.Response) -> Answer:
    headers = response.headers
    return Answer(
        response.status_code, headers.get("Content-Type", ""), response.content, headers.get("Retry-After", "")
    )


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]


def _now() -> float:
    return asyncio.get_running_loop().time()


def certificates(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS context that trusts this file's certificates, or the usual ones. Raises SettingsError."""
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # SSLError is one, too
        raise SettingsError(f"REGISTRY_CA_FILE {ca_file} cannot be used: {error}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as towards Kubernetes: cluster CAs often lack the key identifier
    return context
