"""The commands and their options, nothing else: each command's work is a module that is imported when it runs."""

# ruff: noqa: PLC0415 - `isvc-sync version` must not wait for a Kubernetes client

from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.capture.commands import record, redact, stats, validate
from cli.migration.commands import adopt, leave
from cli.replaying.commands import diff, explain, explore, replay, shrink, timeline
from cli.variables import DaemonCommand

app = typer.Typer(
    name="isvc-sync",
    help="Records every KServe deployment in Kubeflow Model Registry.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # they may hold what nobody should paste into a ticket
)

Pace = Annotated[float, typer.Option(min=0.0, help="Multiplies the played delays; 0 is as fast as possible.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 lets the system choose.")]


@app.command()
def demo(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    pace: Pace = 1.0,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live table.")] = False,
) -> None:
    """Show the whole pipeline at work on this machine, and check that registry and cluster agree.

    Exit code 0: all checks passed. 1: a check failed. 2: it could not start. 130:
    interrupted.
    """
    from cli.demo.run import Options, run

    raise typer.Exit(run(Options(keep=keep, pace=pace, plain=plain)))


@app.command()
def sandbox(  # noqa: PLR0913 - one parameter for each option
    *,
    directory: Annotated[Path | None, typer.Option(help="Where files go; a temporary directory by default.")] = None,
    host: Annotated[str, typer.Option(help="Address of the two HTTP servers; nats-server stays on loopback.")] = (
        "127.0.0.1"
    ),
    kubernetes_port: Port = 0,
    registry_port: Port = 0,
    nats_port: Port = 0,
    no_broker: Annotated[bool, typer.Option("--no-broker", help="Start no nats-server.")] = False,
    no_kserve: Annotated[bool, typer.Option("--no-kserve", help="Play no KServe: objects get no status.")] = False,
    pace: Pace = 1.0,
    play: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="Play a captured watch stream; turns the played KServe off."),
    ] = None,
) -> None:
    """Run a local world until Ctrl-C: a Kubernetes API with a played KServe, a Model Registry, a real NATS server."""
    from cli.sandbox import run
    from sandbox.world import Options

    options = Options(
        host=host,
        kubernetes_port=kubernetes_port,
        registry_port=registry_port,
        nats_port=nats_port,
        broker=not no_broker,
        kserve=not (no_kserve or play),
        kserve_pace=pace,
    )
    raise typer.Exit(run(directory, options, tuple(play or ())))


@app.command(cls=DaemonCommand)
def producer() -> None:
    """Publish the changes of all InferenceServices of a cluster to NATS, until SIGTERM."""
    _daemon("producer")


@app.command(cls=DaemonCommand)
def consumer() -> None:
    """Reconcile the registry with the published changes and label the objects, until SIGTERM."""
    _daemon("consumer")


@app.command()
def release(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Holds to end; none: show them.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="End every hold.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where nobody can be asked.")] = False,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to show it.")] = "table",
) -> None:
    """Show what is held back because it looks like a mistake; with ids, say that it is none.

    The producer holds deletes, the consumer's sweep undeployments, when too many
    come at once or nothing is left. An id stands for exactly the objects shown:
    nothing that came later is released with them. docs/holds.md says what to
    check.

    Reads CLUSTER_NAME, SUBJECT_PREFIX and NATS_*, as the two daemons do.

    Exit code 0: nothing is held, or all that was named is released.
    1: something is held, or was not released. 2: wrong settings or options.
    3: nobody answers, or a part is silent. 130: interrupted.
    """
    from cli.release import Options, run

    options = Options(ids=tuple(ids or ()), everything=everything, yes=yes, output=output)
    raise typer.Exit(run(options))


@app.command()
def drift(
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Let it be repaired, after showing what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where nobody can be asked.")] = False,
    wait_s: Annotated[float, typer.Option(min=0.0, help="Seconds to wait for the repairs.")] = 30.0,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to show it.")] = "table",
) -> None:
    """Show where the registries and the cluster differ, as the consumer's sweep would find it now.

    Compares all records with the last event of each object. --fix asks the
    consumers to look at what differs, as the sweep does; what the sweep would
    hold is left to `isvc-sync release`. docs/sweep.md explains each line.

    Reads the consumer's variables: CLUSTER_NAME, REGISTRY_*, NATS_*, KUBECONFIG.

    Exit code 0: nothing differs, or all is repaired. 1: something differs.
    2: wrong settings or options. 3: something was not read. 130: interrupted.
    """
    from cli.drift import Options, run

    raise typer.Exit(run(Options(fix=fix, yes=yes, wait_s=wait_s, output=output)))


app.command()(adopt)
app.command()(leave)


@app.command()
def history(
    name: Annotated[str, typer.Argument(metavar="[NAMESPACE/NAME]", help="The object.", show_default=False)] = "",
    *,
    version: Annotated[str, typer.Option(metavar="ID", help="Where this model version was deployed instead.")] = "",
    cluster: Annotated[str, typer.Option(metavar="NAME|ID", help="Of this cluster only.")] = "",
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to show it.")] = "table",
) -> None:
    """Show which model versions were deployed when, from the registry alone.

    Reads REGISTRY_URL and the other REGISTRY_* variables, as the consumer does.

    Exit code 0: found. 1: the registry tells of none. 2: wrong settings or
    options. 3: the registry cannot be read. 130: interrupted.
    """
    from cli.history import Options, run

    raise typer.Exit(run(Options(name=name, version=version, cluster=cluster, output=output)))


app.command()(record)
app.command()(redact)
app.command()(validate)
app.command()(stats)
app.command()(replay)
app.command()(diff)
app.command()(explain)
app.command()(timeline)
app.command()(explore)
app.command()(shrink)


@app.command()
def version() -> None:
    """Print the version of isvc-sync."""
    from importlib.metadata import version as installed

    typer.echo(f"isvc-sync {installed('isvc-sync')}")


def _daemon(role: str) -> None:
    from cli.daemons import run

    raise typer.Exit(run(role))
