"""The options of `isvc-sync record`, `redact`, `validate` and `stats`; `app.py` registers them."""

# ruff: noqa: PLC0415 - `isvc-sync version` must not wait for a Kubernetes client

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Anonymous = Annotated[bool, typer.Option("--anonymous", help="Replace all names by tokens.")]
Salt = Annotated[str, typer.Option(help="Of the tokens, to have the same in several files; keep it secret.")]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that exists.")]
Output = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to show it.")]


def record(  # noqa: PLR0913 - one parameter for each option
    file: Annotated[Path, typer.Argument(help="The capture to make; .gz and .zst compress it.", metavar="FILE")],
    *,
    from_watch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record kubectl's watch events instead; - is standard input.")
    ] = None,
    from_cluster: Annotated[
        bool, typer.Option("--from-cluster", help="Record the cluster instead, without NATS.")
    ] = False,
    log: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A consumer's log, for what it did; may be repeated.")
    ] = None,
    since: Annotated[str, typer.Option("--from", metavar="SEQ|TIME", help="Begin there; unset: all there is.")] = "",
    until: Annotated[str, typer.Option(metavar="SEQ|TIME", help="End there.")] = "",
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", metavar="NAME", help="May be repeated; unset: all.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NS/NAME", help="Of this object; may be repeated.")] = None,
    kind: Annotated[Literal["isvc", "llmisvc"] | None, typer.Option(help="Of this kind; unset: both.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, from now on or from --from.")] = (
        False
    ),
    for_: Annotated[str, typer.Option("--for", metavar="30s|5m|1h", help="Follow for so long.")] = "",
    no_registry: Annotated[bool, typer.Option("--no-registry", help="Ask no registry for facts.")] = False,
    anonymous: Anonymous = False,
    salt: Salt = "",
    cluster: Annotated[str, typer.Option(metavar="NAME", help="With --from-watch: name of the cluster.")] = "",
    cluster_id: Annotated[str, typer.Option(metavar="ID", help="With --from-watch: id of the cluster.")] = "",
    force: Force = False,
    output: Output = "table",
) -> None:
    """Record what happened to objects into a capture file, for replay, explain, timeline or a bug report.

    From the event stream: its history, or with --follow what comes, together with
    what the registries hold, and with --log what the consumers did. Objects are
    reduced, nothing secret gets into the file; --anonymous replaces names, too.
    docs/replay-record.md says more.

    Reads the consumer's variables: CLUSTER_NAME, NATS_*, REGISTRY_*, KUBECONFIG;
    with --no-registry no REGISTRY_*; with --from-watch none.

    Exit code 0: recorded. 1: recorded, but something was left out. 2: wrong
    settings or options, or no watch file. 3: something was not read; what was is
    in the file, if there was anything. 130: interrupted. What fails leaves the
    file as it was.
    """
    from cli.capture.record import run
    from cli.capture.recording import Options

    given: dict[str, Any] = {"since": since, "until": until, "follow": follow, "for_": for_, "force": force}
    given |= {"watch": from_watch, "cluster": from_cluster, "logs": tuple(log or ()), "registry": not no_registry}
    given |= {"namespaces": tuple(namespace or ()), "only": tuple(only or ()), "kinds": (kind,) if kind else ()}
    given |= {"anonymous": anonymous, "salt": salt, "output": output}
    given |= {"cluster_name": cluster, "cluster_id": cluster_id}
    raise typer.Exit(run(Options(file=file, **given)))


def redact(  # noqa: PLR0913 - one parameter for each option
    file: Annotated[Path, typer.Argument(help="A capture; - is standard input.", metavar="FILE")],
    into: Annotated[Path, typer.Argument(help="The capture to make; .gz and .zst compress it.", metavar="OUT")],
    *,
    anonymous: Anonymous = False,
    salt: Salt = "",
    force: Force = False,
    output: Output = "table",
) -> None:
    """Write a capture again without secrets, and with --anonymous without names.

    What `record` writes holds no secrets. This is for a file from elsewhere, and
    for one that is to leave the house: namespaces, names, hosts and URIs become
    tokens, the same for the same name.

    Exit code 0: written. 1: written, but lines were left out. 2: not a capture,
    or wrong options. 3: the file was cut; so is the new one. 130: interrupted.
    """
    from cli.capture.files import Redacting
    from cli.capture.files import redact as run

    options = Redacting(file=file, into=into, anonymous=anonymous, salt=salt, force=force, output=output)
    raise typer.Exit(run(options))


def validate(
    file: Annotated[Path, typer.Argument(help="A capture; - is standard input.", metavar="FILE")],
    *,
    output: Output = "table",
) -> None:
    """Check whether a file is a whole capture whose lines agree with each other.

    Exit code 0: it is. 1: it is not, and why. 2: it cannot be read. 3: it was
    cut, and is right up to there. 130: interrupted.
    """
    from cli.capture.files import validate as run

    raise typer.Exit(run(file, output))


def stats(
    file: Annotated[Path, typer.Argument(help="A capture; - is standard input.", metavar="FILE")],
    *,
    output: Output = "table",
) -> None:
    """Show what is in a capture: events, objects, span, gaps, duplicates, rates.

    Exit code 0: shown. 2: not a capture. 3: the file was cut. 130: interrupted.
    """
    from cli.capture.files import stats as run

    raise typer.Exit(run(file, output))
