"""The local world of a replay: the objects of the capture in a sandbox's cluster, its facts in a sandbox's registry."""

from typing import Any

import msgspec

from consumer.freshness import Freshness, Order, compare
from consumer.observation import freshness_of
from replay.capture import Captured, Facts, Header, RecordFact
from replay.target.choice import Guise, body_of, renumbered
from sandbox.cluster import ClusterSandbox
from sandbox.cluster.resources import NAMESPACES
from sandbox.registry import RegistryServer
from sandbox.world import World
from shared.errors import BadEventError, RefusedToStartError
from shared.events import EventType
from shared.objects import ObjectKey

_OTHERS = "example.com/others"  # stands for the annotations that a reduced object only counts


class Mirror:
    """Has the cluster show each object as the events say, so that GETs and patches of a consumer find it.

    A consumer's own patches take resourceVersions, too. Where the captured one is taken, the event gets the cluster's,
    or what was captured later would pass for older than the patch.
    """

    def __init__(self, cluster: ClusterSandbox) -> None:
        self._cluster = cluster
        self._shown: dict[str, tuple[Freshness, str]] = {}  # by uid: the newest state, and its digest
        self._numbers: dict[tuple[str, int, str], str] = {}  # uid, epoch, captured resourceVersion: the cluster's

    def present(self, captured: Captured) -> Captured:
        """Show the event's object; return the event as the cluster numbers it."""
        event = captured.event
        try:
            body, freshness = body_of(captured), freshness_of(event, captured.obj)
        except BadEventError:
            return captured  # nothing to show; what its readers make of it is for them to say
        seen = event.uid, event.epoch, event.resource_version
        if self._is_news(event.uid, freshness, event.digest):
            self._shown[event.uid] = freshness, event.digest
            number = self._write(event.key, event.uid, body, is_gone=event.type is EventType.DELETED)
            if number not in {"", event.resource_version}:
                self._numbers[seen] = number
        return renumbered(captured, self._numbers.get(seen, event.resource_version))

    def _is_news(self, uid: str, freshness: Freshness, digest: str) -> bool:
        if uid not in self._shown:
            return True
        before, digest_before = self._shown[uid]
        order = compare(freshness, before)
        return order is Order.NEWER or (order is Order.SAME and digest != digest_before)

    def _write(self, key: ObjectKey, uid: str, body: dict[str, Any], *, is_gone: bool) -> str:
        """Write or remove the object; return its resourceVersion, "" where nothing was to be done."""
        rules, kind = self._cluster.cluster, self._cluster.kind(key.kind.kubernetes_kind)
        place, version = f"{key.namespace}/{key.name}", int(body["metadata"]["resourceVersion"])
        current = self._cluster.store.get(kind.resource, place)
        if is_gone:
            there = current is not None and current.uid == uid
            return str(rules.vanish(kind, place, version).version) if there else ""
        self._cluster.create_namespace(key.namespace)
        obj = as_object(body) | {"apiVersion": kind.api_version(kind.stored), "kind": kind.kind}
        return str(rules.restore(kind, obj, version).version)


def as_object(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object whose reduced form is `body`."""
    metadata = {name: value for name, value in body["metadata"].items() if value not in ("", None)}
    if metadata.pop("hasAnnotations", False) and not metadata.get("annotations"):
        metadata["annotations"] = {_OTHERS: ""}
    return body | {"metadata": metadata}


class Seeding:
    """Gives a registry what the capture's facts say that it held. A capture of several registries is refused."""

    def __init__(self, registry: RegistryServer) -> None:
        self._registry = registry
        self._name: str | None = None
        self._given: dict[str, set[str]] = {}
        self._environments: dict[str, str] = {}

    def learn(self, facts: Facts) -> None:
        """Take facts in; several add up. Raises RefusedToStartError for what this registry cannot hold."""
        self._name = self._name or facts.registry
        if facts.registry != self._name:
            raise RefusedToStartError(
                f"the capture tells of the registries {self._name} and {facts.registry}, and the sandbox has one: "
                "use --plan, which has all of them."
            )
        self._environments |= facts.environments
        for name in sorted({record.environment for record in facts.records} - self._environments.keys()):
            taken = [int(number) for number in self._environments.values()]
            self._environments[name] = str(max(taken, default=0) + 1)
        try:
            self._seed("registered_models", [{"id": each, "name": f"model {each}"} for each in facts.models])
            self._seed(
                "model_versions",
                [
                    {"id": version, "name": f"version {version}", "registeredModelId": model}
                    for version, model in facts.versions.items()
                ],
            )
            named = [{"id": number, "name": name} for name, number in self._environments.items()]
            self._seed("serving_environments", named)
            self._seed("inference_services", [self._record(record) for record in facts.records])
        except ValueError as error:
            raise RefusedToStartError(f"the sandbox's registry cannot hold what the capture tells: {error}.") from error

    def _seed(self, collection: str, records: list[dict[str, Any]]) -> None:
        given = self._given.setdefault(collection, set())
        new = {record["id"]: record for record in records if record["id"] not in given}
        self._registry.seed(**{collection: list(new.values())})
        given.update(new)

    def _record(self, fact: RecordFact) -> dict[str, Any]:
        state = {} if fact.deployed is None else {"desiredState": "DEPLOYED" if fact.deployed else "UNDEPLOYED"}
        optional = {"externalId": fact.external_id, "modelVersionId": fact.version_id, "runtime": fact.runtime}
        return {
            "id": fact.id,
            "name": fact.name,
            "servingEnvironmentId": self._environments[fact.environment],
            "registeredModelId": fact.model_id,
            "customProperties": fact.properties,
            **{name: value for name, value in optional.items() if value},
            **state,
        }


def become(world: World, guise: Guise, header: Header) -> None:
    """Give the cluster its identity, and KServe's configuration the lists that the capture was decided with."""
    rules = world.cluster.cluster
    home = world.cluster.get("Namespace", "", "kube-system")
    assert home is not None, "every cluster has it"
    home["metadata"]["uid"] = guise.cluster_id
    rules.restore(rules.kinds[NAMESPACES], home, 0)
    denied = {
        "serviceAnnotationDisallowedList": list(header.deciding.denied_annotations),
        "serviceLabelDisallowedList": list(header.deciding.denied_labels),
    }
    text = _json(denied)
    world.cluster.patch("ConfigMap", ("kserve", "inferenceservice-config"), {"data": {"inferenceService": text}})


def environ_of(world: World, guise: Guise, header: Header) -> dict[str, str]:
    """Return the variables of a consumer that decides as the capture's did. It tells no collector of traces of that."""
    deciding = header.deciding
    return world.environ | {
        "SUBJECT_PREFIX": guise.prefix,
        "CLUSTER_NAME": guise.cluster,
        "LABEL_PREFIX": deciding.prefix,
        "ENVIRONMENT_NAME": guise.environment,
        "WRITE_BACK": deciding.write_back,
        "WRITE_BACK_FORM": deciding.write_back_form,
        "SWEEP_INTERVAL_S": "86400",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "",
    }


def _json(document: Any) -> str:
    return msgspec.json.encode(document).decode()
