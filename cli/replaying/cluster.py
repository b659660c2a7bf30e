"""`--to kube:CONTEXT`: a cluster of the kubeconfig, approved and opened. `to.py` plays to it; see docs/replay-to.md."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import urlsplit

from cli.replaying.stages import Order, Outcome
from replay.target.choice import KUBE, Target, TargetKind, require_named
from replay.target.cluster import MARK
from replay.target.kube import ClusterStage, KubeApi
from replay.target.play import Played
from shared.cluster import ClusterSettings, client, find_context, load_cluster

_KUBECONFIG: Final = "~/.kube/config"


class OpenedCluster:
    """An open cluster; has what `stages.Opened` has. Nothing runs: what is kept stays without this process."""

    runs = False

    def __init__(self, order: Order, events: ClusterStage) -> None:
        self.name = order.guise.name
        self.events = events

    @property
    def kept(self) -> tuple[str, ...]:
        where = ", ".join(self.events.namespaces)
        return (f"Kept: what has the annotation {MARK}: {self.name}, in {where or 'no namespace'}.",)

    async def settled(self) -> None:
        """Return at once: the API server has answered each write, and nobody tells when its watchers are done."""

    async def outcome(self, _played: Played) -> Outcome:
        return Outcome(
            rows=None,
            compared=False,
            dead={},
            duplicates=0,
            unreadable=self.events.unreadable,
            cluster=self.events.tally,
        )


def approved(target: Target, yes_to: str, environ: Mapping[str, str]) -> Target:
    """Return the target with its context by name, the current one included.

    Raises SettingsError unless the API server is certainly on this machine, or the context was named twice. Only reads
    the kubeconfig: a plugin for credentials, which may ask somebody far away, runs later.
    """
    found = find_context(_settings(target, environ))
    to = f"{KUBE}{found.name}"
    require_named(to, "" if found.proxy else _host(found.server), yes_to)  # a proxy leads anywhere
    return Target(TargetKind.KUBE, to)


async def open_cluster(order: Order, stack: AsyncExitStack) -> OpenedCluster:
    """Open the cluster; `stack` removes what is made in it, unless it is kept. Raises SettingsError."""
    http = client(load_cluster(_settings(order.target, order.environ), order.environ), use="control", role="replay")
    stack.push_async_callback(http.aclose)
    stage = ClusterStage(KubeApi(http), order.guise, order.wait_s)
    if not order.keep:
        # In a task of its own: this one is cancelled by Ctrl-C.
        stack.push_async_callback(lambda: asyncio.create_task(stage.remove(), name="removing the replay's objects"))
    return OpenedCluster(order, stage)


def _settings(target: Target, environ: Mapping[str, str]) -> ClusterSettings:
    context = target.url.removeprefix(KUBE)
    return ClusterSettings(kubeconfig=environ.get("KUBECONFIG") or _KUBECONFIG, kube_context=context or None)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
