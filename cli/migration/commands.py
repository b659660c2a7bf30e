"""The options of `isvc-sync adopt` and `isvc-sync leave`; `app.py` registers them."""

# ruff: noqa: PLC0415 - `isvc-sync version` must not wait for a Kubernetes client

from typing import Annotated, Literal

import typer

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where nobody can be asked.")]
Shown = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to show it.")]
OrphansMax = Annotated[
    int | None, typer.Option(min=0, help="How many orphans to believe; default 5, or a fifth of all that is deployed.")
]
Namespaces = Annotated[
    list[str] | None, typer.Option("--namespace", "-n", help="Look at this namespace only; may be repeated.")
]


def adopt(  # noqa: PLR0913 - one parameter for each option
    *,
    strip_finalizers: Annotated[
        bool, typer.Option("--strip-finalizers", help="Take the predecessors' finalizers off the objects.")
    ] = False,
    undeploy_orphans: Annotated[
        bool, typer.Option("--undeploy-orphans", help="Undeploy its records whose objects are not in this cluster.")
    ] = False,
    max_orphans: OrphansMax = None,
    namespace: Namespaces = None,
    controller_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Look for the predecessor's Deployment there only.")
    ] = "",
    controller_stopped: Annotated[
        bool, typer.Option("--controller-stopped", help="Go on where Deployments may not be listed: it is stopped.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    wait_s: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the consumers.")] = 30.0,
    output: Shown = "table",
) -> None:
    """Take over from Kubeflow's or Open Data Hub's controller: its records, ids and finalizers.

    Shows what it has left, asks, and lets the consumers adopt it; so producer and
    consumers must run, and the controller must not. A record whose object is not
    in this cluster may be another cluster's: look before --undeploy-orphans.
    docs/adoption.md goes through a migration.

    Reads the consumer's variables: CLUSTER_NAME, REGISTRY_*, NATS_*, KUBECONFIG.

    Exit code 0: nothing of a predecessor is left. 1: something is. 2: wrong
    settings or options, or the controller runs. 3: something was not read.
    130: interrupted.
    """
    from cli.migration.adopt import Options, run
    from cli.migration.adopting import Scope

    scope = Scope(
        namespaces=frozenset(namespace or ()),
        controller_namespace=controller_namespace,
        strip=strip_finalizers,
        undeploy=undeploy_orphans,
        orphans_max=max_orphans,
    )
    how = {"controller_stopped": controller_stopped, "dry_run": dry_run, "yes": yes}
    raise typer.Exit(run(Options(scope=scope, wait_s=wait_s, output=output, **how)))


def leave(
    *,
    restart_pods: Annotated[
        bool, typer.Option("--restart-pods", help="Remove ids, too, where that restarts pods.")
    ] = False,
    consumers_stopped: Annotated[
        bool, typer.Option("--consumers-stopped", help="Do not ask the broker: no consumer runs.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Shown = "table",
) -> None:
    """Take isvc-sync's ids off the objects, before it is uninstalled.

    Only where that restarts no pod, unless it is asked for; nothing else is
    touched, and the records stay. Refuses while consumers run that would write
    them again. docs/adoption.md says what else to do.

    Reads the consumer's variables: CLUSTER_NAME, REGISTRY_*, NATS_*, KUBECONFIG.

    Exit code 0: no id of ours is left. 1: some are. 2: wrong settings or options,
    or consumers run. 3: something was not read. 130: interrupted.
    """
    from cli.migration.leave import Options, run

    options = Options(
        restart_pods=restart_pods, consumers_stopped=consumers_stopped, dry_run=dry_run, yes=yes, output=output
    )
    raise typer.Exit(run(options))
