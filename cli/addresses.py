"""Where a running sandbox is reached: for scripts as `sandbox.json`, for people as lines to paste."""

import os
from pathlib import Path

import msgspec

from sandbox.world import World

FILE_NAME = "sandbox.json"
_ANY_ADDRESS = "//0.0.0.0:"


class Addresses(msgspec.Struct, frozen=True):
    """The content of `sandbox.json`. `environ` is what a producer and a consumer need; `nats` None: no broker runs."""

    pid: int
    kubernetes: str
    registry: str
    nats: str | None
    kubeconfig: str
    environ: dict[str, str]

    @classmethod
    def of(cls, world: World) -> "Addresses":
        """Return the addresses as this machine reaches them, whatever the servers listen on."""
        return cls(
            pid=os.getpid(),
            kubernetes=_reachable(world.cluster.url),
            registry=_reachable(world.registry.url),
            nats=world.broker.url if world.broker else None,
            kubeconfig=str(world.kubeconfig),
            environ={name: _reachable(value) for name, value in world.environ.items()},
        )

    def write(self, directory: Path) -> None:
        """Write the file in one step, so that who waits for it never reads half of it."""
        unfinished = directory / f"{FILE_NAME}.new"
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(self)))
        unfinished.replace(directory / FILE_NAME)

    @classmethod
    def read(cls, directory: Path) -> "Addresses | None":
        """Read the file, None while it is not there."""
        path = directory / FILE_NAME
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else None

    def lines(self) -> list[str]:
        """Return the addresses, and lines that work when they are pasted into a shell."""
        exports = " ".join(f"{name}={value}" for name, value in self.environ.items())
        records = f"{self.registry}/api/model_registry/v1alpha3/inference_services"
        return [
            f"Kubernetes API   {self.kubernetes}",
            f"Model Registry   {self.registry}",
            f"NATS             {self.nats or 'none (--no-broker)'}",
            "",
            f"export {exports}",
            "kubectl get isvc,llmisvc -A -L modelregistry.kubeflow.org/inference-service-id",
            "kubectl get isvc -A -w",
            f"curl -s {records}",
            f'curl -s -X PUT -d \'{{"faults": [{{"outage": true}}]}}\' {self.registry}/_sandbox/faults',
            f"curl -s -X DELETE {self.registry}/_sandbox/faults",
        ]


def _reachable(address: str) -> str:
    return address.replace(_ANY_ADDRESS, "//127.0.0.1:")
