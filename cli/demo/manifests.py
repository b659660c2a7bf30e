"""The demo's objects: manifests as files beside this module, with placeholders for what the registry decides.

The file name says the shape: `01-model-format.yaml` is applied first and is a "model format".
"""

import importlib.resources
from string import Template
from typing import Any

import msgspec
import yaml


class Manifest(msgspec.Struct, frozen=True):
    """An object to apply, and what kind of manifest it is an example of."""

    shape: str
    obj: dict[str, Any]

    @property
    def namespace(self) -> str:
        return str(self.obj["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.obj['metadata']['name']}"


def manifests(values: dict[str, str]) -> list[Manifest]:
    """Read all manifests and fill in the placeholders. Raises KeyError for one that has no value."""
    files = (importlib.resources.files("cli.demo") / "objects").iterdir()
    texts = {file.name: file.read_text() for file in files if file.name.endswith(".yaml")}
    return [
        Manifest(_shape(name), yaml.safe_load(Template(text).substitute(values)))
        for name, text in sorted(texts.items())
    ]


def _shape(file_name: str) -> str:
    return file_name.removesuffix(".yaml").partition("-")[2].replace("-", " ")
