"""Stable tokens for names: a capture that tells nobody who and where, and in which everything still belongs together.

The same name has the same token wherever it stands in a file, and another one in a file with another salt. What an
object may keep is a list here, too: identities (uids, ids of the registry, resourceVersions, times), numbers, and the
words that KServe itself coined. Everything else becomes a token or is left out. Pure; the salt is an argument.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from consumer.discovery import DiscoverySettings, Rule, Service
from consumer.records import PROPERTY, URL_PROPERTY, Stamp, encode_stamp, string_property
from replay.capture import Action, Captured, Deciding, Facts, Footer, Header, Line, RecordFact
from replay.moments import micros
from replay.steps import DECISIONS, ENDS
from replay.upkeep.tokens import Names, Tokens
from shared.decoding import UNDECODABLE
from shared.objects import ObjectKey

_IDS: Final = ("registered-model-id", "model-version-id", "inference-service-id")
_FLAGS: Final = ("stop", "deploymentMode")
_WORDS: Final = frozenset(
    ("type", "status", "reason", "deploymentMode", "transitionStatus", "activeModelState", "targetModelState")
)
_URLS: Final = frozenset(("url",))
_URIS: Final = frozenset(("storageUri", "uri"))
_RUNTIMES: Final = frozenset(("runtime", "servingRuntimeName", "clusterServingRuntimeName"))
_VERSIONS: Final = frozenset(("protocolVersion", "runtimeVersion", "version"))


class Anonymizer:
    """Makes the lines of one file anonymous. `namespaces` are those for which rules with wildcards are spelt out."""

    def __init__(self, salt: bytes, header: Header, namespaces: frozenset[str] = frozenset()) -> None:
        self._tokens = Tokens(salt)
        self._namespaces = namespaces
        self._names = Names(self._tokens, header)

    def header(self, header: Header) -> Header:
        names, deciding = self._names, header.deciding
        return replace(
            header,
            cluster=names.cluster(header.cluster),
            cluster_id=names.cluster_id(header.cluster_id),
            stream=names.stream(header.stream),
            deciding=self._deciding(deciding),
        )

    def line(self, line: Line) -> Line:
        names = self._names
        match line:
            case Captured():
                return self._event(line)
            case Facts():
                return replace(
                    line,
                    registry=names.registry(line.registry),
                    environments={names.environment(name): each for name, each in line.environments.items()},
                    records=tuple(map(self._record, line.records)),
                )
            case Action():
                parts = line.object.split("/")
                named = [*parts[:1], *(names.namespace(part) for part in parts[1:2]), *map(names.name, parts[2:])]
                member = self._tokens.of("member", line.member)
                kind = line.kind if line.kind in DECISIONS | ENDS else self._tokens.of("action", line.kind)
                time = line.time if micros(line.time) is not None else ""
                return replace(line, object="/".join(named), kind=kind, reason="", time=time, member=member, tool="")
            case Header():
                return self.header(line)
            case Footer():
                return line

    def _event(self, line: Captured) -> Captured:
        names, event = self._names, line.event
        key = ObjectKey(event.key.kind, names.namespace(event.key.namespace), names.name(event.key.name))
        event = replace(
            event, key=key, digest=names.digest(event.digest), cluster_id=names.cluster_id(event.cluster_id)
        )
        data = msgspec.json.encode(_Objects(names).object(msgspec.json.decode(line.data)))
        position = replace(line.position, subject=names.subject(line.position.subject, key))
        return replace(line, event=event, data=data, position=position)

    def _record(self, record: RecordFact) -> RecordFact:
        names = self._names
        stamp = _stamp_of(record)
        uid = stamp.uid if stamp else ""
        return replace(
            record,
            name=names.record_name(record.name, uid),
            external_id=names.external_id(record.external_id, uid),
            environment=names.environment(record.environment),
            runtime=names.runtime(record.runtime),
            properties=dict(self._property(name, value) for name, value in record.properties.items()),
        )

    def _property(self, name: str, value: Any) -> tuple[str, Any]:
        text = _text_of(value)
        if name == URL_PROPERTY:
            return name, string_property(self._names.url(text))
        if name != PROPERTY:
            return self._tokens.of("property", name), value  # emptied before
        try:
            return name, encode_stamp(self._stamp(msgspec.json.decode(text, type=Stamp)))
        except UNDECODABLE:
            return name, value  # emptied before

    def _stamp(self, stamp: Stamp) -> Stamp:
        names = self._names
        return replace(
            stamp,
            cluster=names.cluster(stamp.cluster),
            cluster_id=names.cluster_id(stamp.cluster_id),
            namespace=names.namespace(stamp.namespace),
            name=names.name(stamp.name),
            digest=names.digest(stamp.digest),
            load_failure=names.word(stamp.load_failure),
            deployment_mode=names.word(stamp.deployment_mode),
            model_format=names.model_format(stamp.model_format),
            storage_uri=names.uri(stamp.storage_uri),
        )

    def _deciding(self, deciding: Deciding) -> Deciding:
        names, discovery = self._names, deciding.discovery
        ours = deciding.prefix + "inference-service-id"
        return replace(
            deciding,
            prefix=names.prefix(deciding.prefix),
            environment=names.template,
            denied_labels=tuple(names.key(each) for each in deciding.denied_labels if each == ours),
            denied_annotations=tuple(names.key(each) for each in deciding.denied_annotations if each == ours),
            discovery=None if discovery is None else self._discovery(discovery),
            services=tuple(map(self._service, deciding.services)),
        )

    def _discovery(self, discovery: DiscoverySettings) -> DiscoverySettings:
        names = self._names
        return replace(
            discovery,
            prefix=names.prefix(discovery.prefix),
            url=None if discovery.url is None else names.url(discovery.url),
            namespaces=tuple(map(names.namespace, discovery.namespaces)),
            allowed_hosts=tuple(map(names.host_and_port, discovery.allowed_hosts)),
            rules=tuple(each for rule in discovery.rules for each in self._rules(rule)),
            cluster_domain=names.domain(discovery.cluster_domain),
        )

    def _rules(self, rule: Rule) -> list[Rule]:
        """Return the rule for tokens: a pattern is spelt out, since no token matches it."""
        registries = tuple(map(self._names.registry, rule.registries))
        if rule.pattern == "*":
            return [Rule("*", registries)]
        if not any(mark in rule.pattern for mark in "*?["):
            return [Rule(self._names.namespace(rule.pattern), registries)]
        matching = (each for each in sorted(self._namespaces) if fnmatchcase(each, rule.pattern))
        return [Rule(self._names.namespace(each), registries) for each in matching]

    def _service(self, service: Service) -> Service:
        names = self._names
        return replace(
            service,
            namespace=names.namespace(service.namespace),
            name=names.name(service.name),
            annotations={key: names.address(text) for key, text in service.annotations.items()},
        )


class _Objects:
    """Reduced objects. Their fields are known by name, so one walk does; maps of labels are looked at key by key."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._rules = {
            **dict.fromkeys(_WORDS, names.word),
            **dict.fromkeys(_URLS, names.url),
            **dict.fromkeys(_URIS, names.uri),
            **dict.fromkeys(_RUNTIMES, names.runtime),
            **dict.fromkeys(_VERSIONS, names.version),
        }

    def object(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        names, metadata = self._names, raw["metadata"]
        return {
            **{name: raw[name] for name in ("apiVersion", "kind") if name in raw},
            "metadata": {
                **metadata,
                "name": names.name(metadata["name"]),
                "namespace": names.namespace(metadata["namespace"]),
                "labels": self._labels(metadata.get("labels", {})),
                "annotations": self._labels(metadata.get("annotations", {})),
            },
            "spec": self._part(raw.get("spec", {})),
            "status": self._part(raw.get("status", {})),
        }

    def _part(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._value(name, value) for name, value in raw.items()}

    def _value(self, name: str, value: Any) -> Any:
        match value:
            case str():
                return self._rules.get(name, self._names.text)(value)
            case dict() if name == "labels":
                return {self._names.key(key): "" for key in value}
            case dict() if name == "modelFormat":
                return self._part(value) | {"name": self._names.model_format(str(value.get("name", "")))}
            case dict():
                return self._part(value)
            case list():
                return [self._value(name, each) for each in value]
            case _:
                return value

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels or annotations that decide something."""
        names = self._names
        rules = {
            **dict.fromkeys(_IDS, names.registry_id),
            **dict.fromkeys(_FLAGS, names.flag),
            "name": names.name,
            "namespace": names.namespace,
            "url": names.url,
        }
        split = ((key, key.rpartition("/")[2], text) for key, text in labels.items())
        return {names.key(key): rules[name](text) for key, name, text in split if name in rules}


def _stamp_of(record: RecordFact) -> Stamp | None:
    try:
        return msgspec.json.decode(_text_of(record.properties.get(PROPERTY)), type=Stamp)
    except UNDECODABLE:
        return None


def _text_of(value: Any) -> str:
    """Return the text of a custom property, "" where it is none."""
    text = value.get("string_value") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
