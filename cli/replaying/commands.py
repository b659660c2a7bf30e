"""The options of `isvc-sync replay`, `diff`, `explain`, `timeline`, `explore` and `shrink`; `app.py` registers them."""

# ruff: noqa: PLC0415 - `isvc-sync version` must not wait for a Kubernetes client

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

File = Annotated[Path, typer.Argument(help="A capture; - is standard input.", metavar="FILE")]
Only = Annotated[list[str] | None, typer.Option(metavar="NS/NAME", help="Of this object; may be repeated.")]
Shown = Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to show it.")]


def replay(  # noqa: PLR0913 - one parameter for each option
    file: File,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Decide everything again and show it: the default.")] = False,
    to: Annotated[
        str,
        typer.Option(metavar="TARGET", help="Play it to real parts: sandbox, nats://HOST, http://HOST, kube:CONTEXT."),
    ] = "",
    yes_to: Annotated[
        str, typer.Option(metavar="TARGET", help="With --to: the target once more, where it is not on loopback.")
    ] = "",
    only: Only = None,
    since: Annotated[str, typer.Option("--from", metavar="SEQ|TIME", help="What came before is not shown.")] = "",
    until: Annotated[str, typer.Option(metavar="SEQ|TIME", help="End there.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Only models and versions that facts name exist.")] = False,
    speed: Annotated[str, typer.Option(metavar="1x|10x|max", help="With --to: how fast.")] = "max",
    step: Annotated[bool, typer.Option("--step", help="With --to: ask before each event.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="With --to: leave everything as it is afterwards.")] = False,
    name: Annotated[str, typer.Option(help="With --to: of this replay, on a server that others use, too.")] = "",
    cluster_id: Annotated[str, typer.Option(metavar="ID", help="With --to: the events come from this cluster.")] = "",
    wait_s: Annotated[float, typer.Option(min=0.0, help="With --to: seconds to wait at the end.")] = 60.0,
    output: Shown = "table",
) -> None:
    """Decide a capture again, with the consumer's own code, and show every decision with its reason.

    Opens no connection: registry and cluster are in memory, seeded with the facts
    of the capture. With --to the events go to real parts instead, marked as
    replayed, on a stream of their own. -o json writes a step a line.

    Exit code 0: shown. 1: with --to, a registry or cluster ends otherwise than
    the capture says. 2: not a capture, wrong options, or no event of what --only
    names. 3: the file was cut, or a target does not answer. 130: interrupted.
    """
    chosen: dict[str, Any] = {"file": file, "since": since, "until": until, "only": tuple(only or ()), "output": output}
    if not to:
        given = {"yes-to": yes_to, "speed": speed != "max", "step": step, "keep": keep, "name": name}
        if named := [f"--{option}" for option, value in {**given, "cluster-id": cluster_id}.items() if value]:
            raise typer.BadParameter(f"{', '.join(named)}: these go with --to, and a plan is no playing")
        from cli.replaying import plan as planned

        raise typer.Exit(planned.run(planned.Options(**chosen, strict=strict)))
    if plan or strict:
        raise typer.BadParameter("--plan and --strict do not go with --to")
    from cli.replaying import to as played

    where: dict[str, Any] = {"to": to, "yes_to": yes_to, "name": name, "cluster_id": cluster_id}
    how: dict[str, Any] = {"speed": speed, "step": step, "keep": keep, "wait_s": wait_s}
    raise typer.Exit(played.run(played.Options(**chosen, **where, **how)))


def diff(
    files: Annotated[list[Path], typer.Argument(help="Two captures, or one and --against.", metavar="A [B]")],
    *,
    against: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Decide the one capture also by this checkout, or venv.")
    ] = None,
    only: Only = None,
    output: Shown = "table",
) -> None:
    """Show where two plans part: of two captures, or of one under two versions of isvc-sync.

    Two captures are compared by what was decided, whatever their times, uids and
    ids; one capture under two versions, in every word but the ids of records.

    Exit code 0: the same. 1: they differ. 2: not a capture, or wrong options. 3:
    a file was cut; up to there nothing differs. 130: interrupted.
    """
    from cli.replaying.diff import Options, run

    raise typer.Exit(run(Options(files=tuple(files), against=against, only=tuple(only or ()), output=output)))


def explain(
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The object.")],
    *,
    file: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="A capture; - is standard input.")] = None,
    kind: Annotated[
        Literal["isvc", "llmisvc"] | None, typer.Option(help="Unset: whichever there is of that name.")
    ] = None,
    output: Shown = "table",
) -> None:
    """Show the life of one object, and why it is not in the registry, if it is not.

    Its events, what is decided about each, its records, and what is pending.
    Asks cluster, broker and registries, and writes nothing; --from asks a
    capture instead.

    Reads the consumer's variables: CLUSTER_NAME, REGISTRY_*, NATS_*, KUBECONFIG.

    Exit code 0: registry and object agree. 1: something is pending or wrong. 2:
    wrong settings or options, or not a capture. 3: something cannot be read, the
    file was cut, or it does not tell what the registry held. 130: interrupted.
    """
    from cli.replaying.explain import Options, run

    raise typer.Exit(run(Options(name=name, file=file, kind=kind or "", output=output)))


def timeline(
    file: File,
    *,
    page: Annotated[Path, typer.Option("--output", "-o", metavar="PAGE", help="The page to write.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAMESPACE/NAME", help="Show this object only; repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a page that is there.")] = False,
) -> None:
    """Draw a capture as one page for a browser: a lane for each object, events, decisions, latency.

    The page needs no network and no server: it can be attached to a ticket,
    opened from disk and printed. Press ? in it for its keys.
    docs/replay-timeline.md says more.

    Exit code 0: written. 2: not a capture, or wrong options. 3: the file was cut;
    the page shows what is there, and says so. 130: interrupted.
    """
    from cli.replaying.timeline import Options, run

    raise typer.Exit(run(Options(file=file, output=page, only=tuple(only or ()), force=force)))


def explore(
    file: File,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many explorations.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first one.")] = 0,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Consumers, each the owner of a shard.")] = 4,
    output: Shown = "table",
) -> None:
    """Let everything go wrong with a capture, and check that the registry ends as planned all the same.

    The events are given to the consumer's own parts, in memory, on a clock that
    jumps: in another order between objects, late, twice, with workers that die at
    any await and registries that fail. A seed is one such exploration; the same
    one each time. docs/replay-explore.md says what may happen, and what is
    compared.

    Exit code 0: it ended as planned every time. 1: it did not; the command that
    repeats it is shown. 2: not a capture, or wrong options. 3: the file was cut;
    up to there it ended as planned. 130: interrupted.
    """
    from cli.replaying.explore import Options, run

    raise typer.Exit(run(Options(file=file, seed=seed, seeds=seeds, workers=workers, output=output)))


def shrink(  # noqa: PLR0913 - one parameter for each option
    file: Annotated[Path, typer.Argument(help="A capture.", metavar="FILE")],
    into: Annotated[Path, typer.Argument(help="The capture to make; .gz and .zst compress it.", metavar="OUT")],
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds are tried until one fails.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The first one.")] = 0,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Consumers, each the owner of a shard.")] = 4,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    output: Shown = "table",
) -> None:
    """Make a capture that fails in `explore` as small as can be: objects first, then events.

    Exit code 0: written; the command that fails with it is shown. 1: no seed
    fails. 2: not a capture, or wrong options. 3: the file was cut, and up to
    there no seed fails. 130: interrupted.
    """
    from cli.replaying.shrink import Options, run

    options = Options(file=file, into=into, seed=seed, seeds=seeds, workers=workers, force=force, output=output)
    raise typer.Exit(run(options))
