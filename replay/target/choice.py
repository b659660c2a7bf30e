"""Where a replay may go, and in what guise. Pure.

A replay must never be taken for the cluster that it was recorded from. Where others may see it (a broker, a registry),
everything that identifies is its own: subjects and streams, cluster name and id, the uids of the objects, the serving
environments. So it finds, changes and undeploys no record but those it made, also where somebody has forwarded a
production server to loopback. In the sandbox, which nobody shares, it keeps the names of the capture.
"""

import ipaddress
import re
import uuid
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from replay.capture import Captured, Header
from shared.errors import SettingsError
from shared.events import encode

REPLAYED: Final = "ce-replayed"
SANDBOX: Final = "sandbox"
KUBE: Final = "kube:"  # and the name of a context
PREFIX: Final = "isvc-replay-"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_UIDS: Final = uuid.UUID(
    "6f3a3f0e-52a5-4f0e-8a43-6d5c3c1b7d10"
)  # the name space of mapped uids; any fixed one would do


class TargetKind(StrEnum):
    SANDBOX = "sandbox"
    NATS = "nats"
    REGISTRY = "registry"
    KUBE = "kube"


_SCHEMES: Final = {
    "nats": TargetKind.NATS,
    "tls": TargetKind.NATS,
    "http": TargetKind.REGISTRY,
    "https": TargetKind.REGISTRY,
}


class Target(msgspec.Struct, frozen=True):
    """A place to replay to. `url` is empty for the sandbox, and `kube:CONTEXT` for a cluster."""

    kind: TargetKind
    url: str = ""


class Guise(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay calls itself. `environment`: template of the serving environments.

    `maps_uids`: objects get uids of their own, the same ones in each replay of that name.
    """

    name: str
    cluster: str
    cluster_id: str
    environment: str
    maps_uids: bool

    @property
    def prefix(self) -> str:
        """The first token of all subjects; streams are named after it."""
        return PREFIX + self.name

    def uid(self, uid: str) -> str:
        return str(uuid.uuid5(_UIDS, f"{self.name}/{uid}")) if self.maps_uids else uid


def parse_target(to: str, yes_to: str = "") -> Target:
    """Return the target that `--to` names; anything off loopback must be named a second time, by `--yes-to`.

    Of a cluster only a kubeconfig says where it is: whoever reads that one calls `require_named`. Raises
    SettingsError; nothing is looked up or connected to for that.
    """
    if to == SANDBOX:
        return Target(TargetKind.SANDBOX)
    if to.startswith(KUBE):
        return Target(TargetKind.KUBE, to)
    kind, host = _address(to)
    require_named(to, host, yes_to)
    return Target(kind, to)


def require_named(to: str, host: str, yes_to: str) -> None:
    """Raise SettingsError unless that host is certainly this machine, or the target was named twice."""
    if not _is_loopback(host) and yes_to != to:
        named = f", and --yes-to names another one, {yes_to[:200]}" if yes_to else ""
        raise SettingsError(f"--to {to} may leave this machine{named}: add --yes-to {to} if that is meant.")


def guise(name: str, target: Target, header: Header, cluster_id: str = "") -> Guise:
    """Return the guise of a replay of that name. `cluster_id`: the events say that they come from this one instead.

    Raises SettingsError for a name that cannot be part of a subject.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(f"--name {name[:40]!r} must be small letters, digits and dashes, 31 at most.")
    environment = header.deciding.environment
    own = PREFIX + name
    if target.kind is TargetKind.SANDBOX:
        return Guise(
            name=name,
            cluster=header.cluster or SANDBOX,
            cluster_id=cluster_id or header.cluster_id or own,
            environment=environment,
            maps_uids=False,
        )
    return Guise(
        name=name, cluster=own, cluster_id=cluster_id or own, environment=f"{own}-{environment}", maps_uids=True
    )


def disguised(captured: Captured, guise: Guise) -> Captured:
    """Return the event in that guise. Raises BadEventError where its body is no object and would have to be changed."""
    event = replace(captured.event, uid=guise.uid(captured.event.uid), cluster_id=guise.cluster_id)
    if event.uid == captured.event.uid:
        return replace(captured, event=event)
    return _with_metadata(replace(captured, event=event), {"uid": event.uid})


def renumbered(captured: Captured, resource_version: str) -> Captured:
    """Return the event under another resourceVersion. Raises BadEventError where its body is no object."""
    if resource_version == captured.event.resource_version:
        return captured
    event = replace(captured.event, resource_version=resource_version)
    return _with_metadata(replace(captured, event=event), {"resourceVersion": resource_version})


def _with_metadata(captured: Captured, changes: dict[str, str]) -> Captured:
    body = body_of(captured)
    body["metadata"] |= changes
    return replace(captured, data=msgspec.json.encode(body))


def body_of(captured: Captured) -> dict[str, Any]:
    """Return the reduced object as it stands in the event. Raises BadEventError where it is none."""
    assert captured.obj, "decoding says what is wrong"
    body: dict[str, Any] = msgspec.json.decode(captured.data)
    return body


def headers_of(captured: Captured) -> dict[str, str]:
    """Return the headers under which a replayed event is published: its own, and a mark."""
    return encode(captured.event) | {REPLAYED: "true"}


def _address(to: str) -> tuple[TargetKind, str]:
    if "@" in to:
        raise SettingsError("--to must hold no user and no password: give NATS_CREDS_FILE or REGISTRY_TOKEN_FILE.")
    try:
        parts = urlsplit(to)
        kind = _SCHEMES.get(parts.scheme)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        kind = host = None
    if kind is None or not host:
        raise SettingsError(
            f"--to {to[:200]!r} is no target: it is `sandbox`, a NATS server (nats://HOST:PORT), a Model Registry "
            "(http://HOST:PORT) or a cluster (kube:CONTEXT)."
        )
    return kind, host


def _is_loopback(host: str) -> bool:
    """Whether an address is certainly on this machine. Names are not looked up: even the question would leave it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
