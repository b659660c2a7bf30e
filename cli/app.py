"""The commands and their options, nothing else: each command's work is a module that is imported when it runs."""

# ruff: noqa: PLC0415 - `isvc-sync version` must not wait for a Kubernetes client

from pathlib import Path
from typing import Annotated

import typer

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

    Exit code 0: all checks passed. 1: a check failed. 2: it could not start. 130: interrupted.
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
def version() -> None:
    """Print the version of isvc-sync."""
    from importlib.metadata import version as installed

    typer.echo(f"isvc-sync {installed('isvc-sync')}")


def _daemon(role: str) -> None:
    from cli.daemons import run

    raise typer.Exit(run(role))
