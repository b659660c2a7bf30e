"""The story that the demo tells: what a platform's users do to their deployments, one step after the other.

Each step acts on cluster or registry as a user would, and waits under a deadline until the record tells of it.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from cli.demo.clients import Kubernetes, Models, ready
from cli.demo.manifests import Manifest, manifests
from cli.demo.observer import Observer, now_ms
from cli.demo.processes import Child, free_port
from cli.demo.screen import Screen
from cli.demo.state import STOP_ANNOTATION, VERSION_LABEL, Change, Life, Record, Seen

_START_S, _RECORD_S, _SERVE_S = 30.0, 10.0, 30.0
_CHANGED, _STOPPED = "payments/scorer", "payments/limits"
_RECREATED, _UNWATCHED = "payments/iris", "payments/chargeback"
_NEVER_READY = {"ModelMesh", "Knative"}  # the sandbox plays a cluster that has neither installed

StartDaemon = Callable[[str, int], Awaitable[Child]]  # role and health port


class Story:
    """Tells the story once. `start` starts a daemon; `pause_s` is the time to read between steps."""

    def __init__(
        self, observer: Observer, clients: tuple[Kubernetes, Models], screen: Screen, start: StartDaemon, pause_s: float
    ) -> None:
        self.secret = f"s3cr3t-{secrets.token_hex(8)}"
        self.consumer_port = free_port()
        self._observer = observer
        self._kubernetes, self._models = clients
        self._screen = screen
        self._start = start
        self._pause_s = pause_s
        self._values: dict[str, str] = {}
        self._manifests: dict[str, Manifest] = {}

    async def tell(self) -> None:
        """Tell all of it. Raises DemoError at the step that does not come to its end."""
        for step in (
            self._daemons,
            self._registration,
            self._creation,
            self._serving,
            self._new_version,
            self._stop,
            self._re_creation,
            self._unwatched_delete,
        ):
            await step()
            await self._observer.linger(self._pause_s)

    async def _daemons(self) -> None:
        self._screen.step("Producer and consumer start, as processes of their own")
        for role, port in (("producer", free_port()), ("consumer", self.consumer_port)):
            await self._run_daemon(role, port)
        await self._until_ready(self.consumer_port, "consumer")

    async def _run_daemon(self, role: str, port: int) -> None:
        self._observer.children[role] = await self._start(role, port)
        if role == "producer":
            await self._until_ready(port, role)

    async def _until_ready(self, port: int, role: str) -> None:
        await self._observer.until_answered(f"the {role} becomes ready", lambda: ready(port), _START_S)

    async def _registration(self) -> None:
        self._screen.step("Two models with two versions each are registered")
        for short, name, versions in (
            ("fraud", "fraud-scorer", ("2024-11", "2025-02")),
            ("assistant", "support-assistant", ("v1", "v2")),
        ):
            model = await self._models.register(name)
            added = [await self._models.add_version(model, version) for version in versions]
            self._observer.knows(model, *added)
            self._values |= {short: model.id}
            self._values |= {f"{short}_{number}": version.id for number, version in enumerate(added, start=1)}
            self._screen.note(f"model {model.id} {name}: " + ", ".join(f"version {v.id} {v.name}" for v in added))

    async def _creation(self) -> None:
        unknown = str(max(int(value) for value in self._values.values()) + 1_000_000)
        found = manifests(self._values | {"unknown": unknown, "secret": self.secret})
        self._manifests = {manifest.name: manifest for manifest in found}
        self._screen.step(f"{len(found)} objects of {len(found)} shapes are created")
        for namespace in dict.fromkeys(manifest.namespace for manifest in found):
            await self._kubernetes.create_namespace(namespace)
        for manifest in found:
            await self._observer.create(manifest.shape, manifest.obj)
        await self._observer.until("each indexed object gets a record", _without_record, _RECORD_S)

    async def _serving(self) -> None:
        self._screen.step("KServe starts their pods; url and Ready reach the records")
        await self._observer.until("what can serve serves, and its record says where", _not_serving, _SERVE_S)

    async def _new_version(self) -> None:
        version = self._values["fraud_2"]
        name = self._observer.seen.versions[version].name
        self._screen.step(f"{_CHANGED} moves to version {name}")
        life = self._life(_CHANGED)
        patch = {"metadata": {"labels": {VERSION_LABEL: version}}, "spec": _storage("gs://models/fraud/2025-02")}
        await self._change(life, lambda record: record.model_version_id == version)
        await self._kubernetes.patch(life.key, patch)
        await self._shown(life, f"the record says version {name}")

    async def _stop(self) -> None:
        self._screen.step(f"{_STOPPED} is stopped")
        life = self._life(_STOPPED)
        await self._change(life, _is_undeployed)
        await self._kubernetes.patch(life.key, {"metadata": {"annotations": {STOP_ANNOTATION: "true"}}})
        await self._shown(life, "the record says UNDEPLOYED")

    async def _re_creation(self) -> None:
        self._screen.step(f"{_RECREATED} is deleted and created again: another uid, another record")
        await self._delete(self._life(_RECREATED))
        await self._shown(self._life(_RECREATED), "the record says UNDEPLOYED")
        manifest = self._manifests[_RECREATED]
        life = await self._observer.create(manifest.shape, manifest.obj)
        await self._shown(life, "a second record appears")
        await self._observer.until("it serves again", _not_serving, _SERVE_S)

    async def _unwatched_delete(self) -> None:
        self._screen.step(f"The producer is killed, {_UNWATCHED} is deleted, the producer starts again")
        await self._observer.children.pop("producer").kill()
        life = self._life(_UNWATCHED)
        life.unwatched = True
        await self._delete(life)
        states = [record.desired_state for record in self._observer.seen.records_of(life)]
        self._screen.note(f"{life.name} is gone and nobody saw it: its record still says {', '.join(states)}")
        await self._run_daemon("producer", free_port())
        await self._shown(life, "the record says UNDEPLOYED")

    def _life(self, name: str) -> Life:
        return self._observer.seen.life(name)

    async def _delete(self, life: Life) -> None:
        await self._change(life, _is_undeployed)
        await self._kubernetes.delete(life.key)
        await self._observer.until(f"{life.name} goes", lambda _: "" if life.gone else "it is still there", _RECORD_S)

    async def _change(self, life: Life, shows: Callable[[Record], bool]) -> None:
        """Time the change that follows: from now on until the record shows it."""
        await self._observer.look()
        life.latency_ms = None
        life.change = Change(now_ms(), lambda record: record.updated_ms if shows(record) else None)

    async def _shown(self, life: Life, what: str) -> None:
        def missing(seen: Seen) -> str:
            shown = [msgspec.to_builtins(record) for record in seen.records_of(life)]
            return f"seen: {_short(shown)}" if life.latency_ms is None else ""

        await self._observer.until(f"{life.name}: {what}", missing, _SERVE_S)
        self._screen.note(f"{life.name}: {what}, {life.latency_ms} ms after the change was sent")


def _storage(uri: str) -> dict[str, Any]:
    return {"predictor": {"model": {"storageUri": uri}}}


def _is_undeployed(record: Record) -> bool:
    return record.desired_state == "UNDEPLOYED"


def _short(records: list[dict[str, Any]]) -> str:
    shown = ("id", "desiredState", "modelVersionId")
    return "; ".join(", ".join(f"{name} {each.get(name) or 'none'}" for name in shown) for each in records) or "none"


def _without_record(seen: Seen) -> str:
    missing = [life.name for life in seen.indexed() if not seen.records_of(life)]
    return f"no record of {', '.join(missing)}" if missing else ""


def _not_serving(seen: Seen) -> str:
    """Name what should serve and does not, or whose record has not got the url yet."""
    waiting = [
        life.name
        for life in seen.lives
        if life.lives and not life.stopped and life.mode not in _NEVER_READY and life.ready != "True"
    ]
    behind = [life.name for life in seen.indexed() if not _says_url(life, seen) and life.lives]
    return "; ".join(
        f"{what}: {', '.join(names)}" for what, names in (("not Ready", waiting), ("url not recorded", behind)) if names
    )


def _says_url(life: Life, seen: Seen) -> bool:
    return any(record.url == life.url for record in seen.records_of(life))
