"""A record of the registry as we read it, and the property in which we keep what the registry has no field for. Pure.

The registry's InferenceService has a name, references and a desired state; no url, no readiness, no version of what it
was written from. Those live in two custom properties: `url`, which other readers know, and `isvc-sync`, a JSON object.
Two and not twelve, because the server rewrites every property at every PATCH.
"""

from datetime import datetime
from functools import cached_property
from typing import Any, Final

import msgspec

from consumer.freshness import Freshness
from shared.decoding import UNDECODABLE
from shared.errors import BadEventError
from shared.objects import ObjectKey, compare_resource_versions

PROPERTY: Final = "isvc-sync"
URL_PROPERTY: Final = "url"
HISTORY_MAX: Final = 50


class Identity(msgspec.Struct, frozen=True):
    """Who writes: the cluster's name for people, and its id, by which records are told apart."""

    cluster: str
    cluster_id: str


class VersionChange(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """From this moment the object carried this version label (empty: none).

    `until`: when the deployment ended, where that was before the next change; empty where it went on until then.
    """

    version: str
    resource_version: str
    time: str
    until: str = ""


class Stamp(msgspec.Struct, frozen=True, rename="camel"):
    """The content of the property `isvc-sync`.

    `epoch, resource_version, digest, generation` say what the record was written from; they ride along and never cause
    a write of their own. `ready` is Kubernetes' condition Ready while the object lives. `load_failure` is set while the
    labelled version cannot be loaded and an older one serves. `history_cut` counts the changes that no longer fit.
    """

    cluster: str
    cluster_id: str
    kind: str
    namespace: str
    name: str
    uid: str
    epoch: int
    resource_version: str
    deleted: bool = False
    digest: str = ""
    generation: int = 0
    ready: bool = False
    load_failure: str = ""
    deployment_mode: str = ""
    model_format: str = ""
    storage_uri: str = ""
    model_version: str = ""
    deployed_at: str = ""
    undeployed_at: str = ""
    history: tuple[VersionChange, ...] = ()
    history_cut: int = 0

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that the history names, in order.

        Without a first period of none: that is told after a stop only, and whether a stop was seen is chance.
        """
        found = tuple(change.version for change in self.history)
        return found[1:] if found[:1] == ("",) else found

    @property
    def freshness(self) -> Freshness:
        return Freshness(self.epoch, self.resource_version, self.deleted)


class Record(msgspec.Struct, frozen=True, dict=True):
    """One InferenceService of the registry. `deployed` is None where the registry holds no desired state at all.

    `properties` are the custom properties as the registry gave them (name to tagged value), users' own included.
    """

    id: str
    name: str
    external_id: str
    environment_id: str
    model_id: str
    version_id: str = ""
    runtime: str = ""
    deployed: bool | None = None
    properties: dict[str, Any] = {}

    @cached_property
    def stamp(self) -> Stamp | None:
        """Our property, or None where there is none that decodes: a predecessor's record, or one edited by hand."""
        text = _string_value(self.properties.get(PROPERTY))
        try:
            stamp = msgspec.json.decode(text, type=Stamp)
            compare_resource_versions(stamp.resource_version, stamp.resource_version)
        except (*UNDECODABLE, BadEventError):
            return None
        return stamp

    @property
    def url(self) -> str:
        return _string_value(self.properties.get(URL_PROPERTY))


def is_before(moment: str, other: str) -> bool:
    """Whether a moment in RFC 3339 comes before another one; servers say seconds, we say milliseconds."""
    try:
        return datetime.fromisoformat(moment) < datetime.fromisoformat(other)
    except (ValueError, TypeError):  # edited by hand: no moment, or one without its zone
        return moment < other


def external_id(uid: str, model_id: str) -> str:
    """Return the key under which we find a record again: one for each uid and registered model."""
    return f"kserve:{uid}/{model_id}"


def base_name(key: ObjectKey, uid: str) -> str:
    """Return the name of the first record of a uid, the same that earlier controllers used."""
    return f"{key.name}/{uid}"


def string_property(text: str) -> dict[str, str]:
    """Return a custom property in the registry's tagged form."""
    return {"metadataType": "MetadataStringValue", "string_value": text}


def encode_stamp(stamp: Stamp) -> dict[str, str]:
    return string_property(msgspec.json.encode(stamp, order="sorted").decode())


def _string_value(value: Any) -> str:
    text = value.get("string_value") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def later_name(key: ObjectKey, uid: str, model_id: str) -> str:
    """Return the name of a record of a uid that is not its first one."""
    return f"{base_name(key, uid)}/{model_id}"
