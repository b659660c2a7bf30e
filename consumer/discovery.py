"""Which registry an object belongs to. Pure: labels, Services and settings in, an address or a refusal out.

`registries.py` asks, with the Services that `services.py` has read. An object says it in the words of the controllers
before us; the first line that applies decides:

    annotation <prefix>url                    that address, if it is allowed
    labels <prefix>name, <prefix>namespace    the Service of that name; without a name, the only one that is labelled
                                              component=model-registry; in that namespace, else in REGISTRY_NAMESPACES
    neither, and REGISTRY_URL is set          REGISTRY_URL
    neither                                   the only Service in REGISTRY_NAMESPACES that is labelled so

Without REGISTRY_NAMESPACES nothing is discovered: the labels are not looked at, there is one registry.
A Service's address is its external-address annotation (https), else its port `http-api` (http), else `https-api`; one
without an address is no registry.

Whoever may label an object chooses where our token goes, so two lists bound the choice: an address must lead to the
server of REGISTRY_URL, of a Service in REGISTRY_NAMESPACES, or to one of REGISTRY_ALLOWED_HOSTS; and REGISTRY_RULES may
keep a namespace's objects to certain registries. What these forbid is `Refused`: for good, until somebody changes the
object or the setting. What is not there, or not unique, is `Unsettled`: it may change by itself.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from consumer.addresses import host_and_port, normal, origin, same_host
from shared.objects import ReducedObject
from shared.reduce import known_prefixes

COMPONENT_LABEL: Final = ("component", "model-registry")
EXTERNAL_ADDRESSES: Final = (
    "routing.kubeflow.org/external-address-rest",
    "routing.opendatahub.io/external-address-rest",
)


class Rule(msgspec.Struct, frozen=True):
    """Objects in namespaces that match the pattern may use these registries: a Service `namespace/name`, or an address.

    The first rule whose pattern matches counts; where none does, all are allowed.
    """

    pattern: str
    registries: tuple[str, ...]


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`prefix` is that of our labels; `url` and each rule's addresses are in the form of `addresses.normal`.

    An allowed host that `addresses.host_and_port` refuses allows nothing.
    """

    prefix: str
    url: str | None = None
    namespaces: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    cluster_domain: str = "cluster.local"


class Asked(msgspec.Struct, frozen=True):
    """What an object says of its registry; empty texts: nothing."""

    url: str = ""
    namespace: str = ""
    name: str = ""


class Service(msgspec.Struct, frozen=True):
    """A Service of Kubernetes, as far as it can lead to a registry. `ports` by name."""

    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    ports: Mapping[str, int] = {}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Located(msgspec.Struct, frozen=True):
    """The registry.

    `name` tells registries apart: a Service's `namespace/name`, whatever its address; for any other its address.
    """

    name: str
    address: str


class Refused(msgspec.Struct, frozen=True):
    """Not allowed; `reason` names what was asked for and the setting that forbids it."""

    reason: str


class Unsettled(msgspec.Struct, frozen=True):
    """Nothing that fits, or several; `reason` says what would settle it."""

    reason: str


Resolution = Located | Refused | Unsettled


def asked_of(obj: ReducedObject, prefix: str) -> Asked:
    """Return what the object's labels and annotation say; the configured prefix wins over the other known ones."""

    def first(values: Mapping[str, str], name: str) -> str:
        return next((values[key] for each in known_prefixes(prefix) if (key := each + name) in values), "")

    labels, annotations = obj.metadata.labels, obj.metadata.annotations
    return Asked(first(annotations, "url"), first(labels, "namespace"), first(labels, "name"))


def resolve(namespace: str, asked: Asked, services: Sequence[Service], settings: DiscoverySettings) -> Resolution:
    """Return the registry of an object in `namespace`; `services` are all those in REGISTRY_NAMESPACES."""
    if asked.url:
        found = _by_address(asked.url, services, settings)
    elif settings.namespaces and (asked.name or asked.namespace):
        found = _by_labels(namespace, asked, services, settings)
    elif settings.url is not None:
        found = _located(settings.url, services, settings)
    else:
        found = _only_one(namespace, services, settings, "REGISTRY_NAMESPACES " + ",".join(settings.namespaces))
    if isinstance(found, Located) and not _follows_rules(namespace, found, settings):
        return Refused(f"registry {found.name} is not allowed for objects in namespace {namespace} by REGISTRY_RULES")
    return found


def known_registries(services: Sequence[Service], settings: DiscoverySettings) -> tuple[Located, ...]:
    """Return the registries that no object need name to be known: REGISTRY_URL's, labelled Services, those of rules."""
    named = {each for rule in settings.rules for each in rule.registries}
    key, value = COMPONENT_LABEL
    addresses = [settings.url] if settings.url is not None else []
    addresses += [
        address
        for service in services
        if (service.labels.get(key) == value or str(service) in named)
        and (address := address_of(service, settings)) is not None
    ]
    by_rule = (_by_address(each, services, settings) for each in sorted(named) if "://" in each)
    found = [_located(each, services, settings) for each in addresses]
    found += [each for each in by_rule if isinstance(each, Located)]
    return tuple({each.name: each for each in found}.values())


def registry_named(name: str, services: Sequence[Service], settings: DiscoverySettings) -> Located | None:
    """Return the registry of a name that a `Located` had, if requests to it are allowed; rules do not count here."""
    if "://" in name:
        found = _by_address(name, services, settings)
        return found if isinstance(found, Located) else None
    service = next((service for service in services if str(service) == name), None)
    located = _at(service, settings) if service is not None else None
    return located if isinstance(located, Located) else None


def address_of(service: Service, settings: DiscoverySettings) -> str | None:
    """Return the address of a Service, or None when it has none that leads to a registry."""
    external = next((service.annotations[key] for key in EXTERNAL_ADDRESSES if service.annotations.get(key)), None)
    host = f"{service.name}.{service.namespace}.svc.{settings.cluster_domain}"
    if external is not None:
        address = external if "://" in external else f"https://{external}"
        if not address.lower().startswith("https://"):
            return None  # a token is not sent outside in clear
    elif "http-api" in service.ports:
        address = f"http://{host}:{service.ports['http-api']}"
    elif "https-api" in service.ports:
        address = f"https://{host}:{service.ports['https-api']}"
    else:
        return None
    try:
        return normal(address)
    except ValueError:
        return None


def _by_address(url: str, services: Sequence[Service], settings: DiscoverySettings) -> Resolution:
    try:
        address = normal(url)
    except ValueError as error:
        return Refused(f"annotation {settings.prefix}url names no registry: it {error}")
    scheme, host, port = origin(address)
    known = [settings.url, *(address_of(service, settings) for service in services)]
    by_host = any(_allows(each, host, port) for each in settings.allowed_hosts)
    if not by_host and (scheme, host, port) not in {origin(each) for each in known if each is not None}:
        return Refused(
            f"annotation {settings.prefix}url names a server that is not allowed, {host}:{port}: it is neither "
            "REGISTRY_URL's, nor a Service's in REGISTRY_NAMESPACES, nor in REGISTRY_ALLOWED_HOSTS"
        )
    return _located(address, services, settings)


def _allows(entry: str, host: str, port: int) -> bool:
    try:
        allowed_host, allowed_port = host_and_port(entry)
    except ValueError:
        return False  # in a recording: the settings refuse it
    return same_host(allowed_host, host) and allowed_port in {None, port}


def _by_labels(namespace: str, asked: Asked, services: Sequence[Service], settings: DiscoverySettings) -> Resolution:
    label = f"label {settings.prefix}namespace={asked.namespace}"
    if asked.namespace and asked.namespace not in settings.namespaces:
        return Refused(f"{label} is none of REGISTRY_NAMESPACES")
    near = [service for service in services if asked.namespace in {"", service.namespace}]
    if not asked.name:
        return _only_one(namespace, near, settings, label)
    named = [service for service in near if service.name == asked.name]
    name_label = f"label {settings.prefix}name={asked.name}"
    match named:
        case []:
            return Unsettled(f"{name_label}: there is no such Service in REGISTRY_NAMESPACES")
        case [service]:
            return _at(service, settings)
        case _:
            return Unsettled(f"{name_label} is several Services: label {settings.prefix}namespace says which")


def _only_one(namespace: str, services: Sequence[Service], settings: DiscoverySettings, where: str) -> Resolution:
    """Return the only Service that is labelled as a registry and has an address; rules may leave one of several."""
    key, value = COMPONENT_LABEL
    labelled = [service for service in services if service.labels.get(key) == value]
    if not labelled:
        return Unsettled(f"{where}: no Service there is labelled {key}={value}")
    found = [_at(service, settings) for service in labelled]
    usable = [each for each in found if isinstance(each, Located)]
    fitting = [each for each in usable if _follows_rules(namespace, each, settings)]
    match fitting:
        case []:
            return (usable or found)[0]  # the caller refuses it, by the rule; or it says why it has no address
        case [only]:
            return only
        case _:
            names = ", ".join(each.name for each in fitting)
            return Unsettled(f"{where}: several registries ({names}); label {settings.prefix}name says which")


def _at(service: Service, settings: DiscoverySettings) -> Resolution:
    address = address_of(service, settings)
    if address is None:
        return Unsettled(f"Service {service} has no usable external address and no port http-api or https-api")
    return Located(str(service), address)


def _located(address: str, services: Sequence[Service], settings: DiscoverySettings) -> Located:
    """Return the registry at an address, under its Service's name where it is one's: one registry, one name."""
    owner = next((service for service in services if address_of(service, settings) == address), None)
    return Located(address if owner is None else str(owner), address)


def _follows_rules(namespace: str, found: Located, settings: DiscoverySettings) -> bool:
    rule = next((rule for rule in settings.rules if fnmatchcase(namespace, rule.pattern)), None)
    return rule is None or found.name in rule.registries or found.address in rule.registries
