"""What the registry must hold so that a capture's labels mean something. Pure."""

import msgspec

from sandbox.cluster.play import Line
from shared.objects import is_registry_id
from shared.reduce import REGISTRY_PREFIXES


class Seeds(msgspec.Struct, frozen=True):
    """Records for `RegistryServer.seed`. `versions`: version id to the id of its model."""

    models: tuple[str, ...]
    versions: dict[str, str]

    def collections(self) -> dict[str, list[dict[str, str]]]:
        return {
            "registered_models": [{"id": model, "name": f"model {model}"} for model in self.models],
            "model_versions": [
                {"id": version, "name": f"version {version}", "registeredModelId": model}
                for version, model in self.versions.items()
            ],
        }


def seeds(lines: list[Line]) -> Seeds:
    """Return every model and version that the labels of the recorded objects name.

    A version belongs to the model beside which it stands first. Values that can be no id are left out.
    """
    pairs = [pair for line in lines if line.event is not None for pair in _labelled(line.event.object)]
    models = dict.fromkeys(model for model, _ in pairs if is_registry_id(model))
    versions: dict[str, str] = {}
    for model, version in pairs:
        if model in models and is_registry_id(version):
            versions.setdefault(version, model)
    return Seeds(tuple(models), versions)


def _labelled(obj: dict[str, object]) -> list[tuple[str, str]]:
    metadata = obj.get("metadata")
    labels = (metadata.get("labels") if isinstance(metadata, dict) else None) or {}
    return [
        (labels[f"{prefix}registered-model-id"], labels.get(f"{prefix}model-version-id", ""))
        for prefix in REGISTRY_PREFIXES
        if f"{prefix}registered-model-id" in labels
    ]
