"""What people see of an object's life: the verdict; then, for each uid, events, records, and what is pending. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from replay.capture import Action
from replay.life.conclusion import Held, Life, Moment, Section
from replay.life.pending import Cause
from replay.steps import Taken

FIRST, LAST = 3, 12  # events of one uid that are shown of many: how it began, and what happened lately
_TO_THE_SECOND: Final = len("2026-11-30T10:00:00")
_PATIENT: Final = frozenset({Cause.DEFERRED, Cause.NOT_HANDLED, Cause.NOT_INDEXED})
_NOTHING: Final = {
    "noop": "nothing to do",
    "duplicate": "nothing to do: it was known",
    "stale": "older than its record",
}


def listing(found: Life) -> RenderableType:
    """Return everything."""
    parts: list[RenderableType] = [Text(f"{found.verdict}.", _colour(found))]
    for position, section in enumerate(found.sections):
        parts += [Text(), *_section(section, found, is_earlier=position > 0)]
    if found.unread:
        parts += [Text(), *(Text(f"Not read: {each}.", "red") for each in found.unread)]
    return Group(*parts)


def _colour(found: Life) -> str:
    if found.agrees:
        return "bold green"
    return "bold yellow" if found.cause in _PATIENT else "bold red"


def _section(section: Section, found: Life, *, is_earlier: bool) -> Iterator[RenderableType]:
    before = "Before that: " if is_earlier else ""
    yield Text.assemble(before, (str(found.key), "cyan"), f", uid {section.uid}, {section.state}")
    yield from (Padding(each, (0, 0, 0, 2), expand=False) for each in _events(section.moments))
    for record in section.records:
        yield _hanging("  Planned " if record.planned else "  Record  ", _record(record))
    for each in section.pending:
        yield _hanging("  Pending ", Text(f"{each.what}."), "yellow" if each.cause in _PATIENT else "red")


def _hanging(word: str, text: Text, style: str = "bold") -> Table:
    drawn = Table.grid(padding=(0, 1, 0, 0))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    drawn.add_row(Text(word, style), text)
    return drawn


def _events(moments: tuple[Moment, ...]) -> Iterator[RenderableType]:
    left_out = len(moments) - FIRST - LAST
    shown = moments if left_out <= 1 else (*moments[:FIRST], *moments[-LAST:])
    for position, moment in enumerate(shown):
        if left_out > 1 and position == FIRST:
            yield Text(f"... {left_out} events more, which -o json shows ...", "bright_black")
        yield Text.assemble(second(moment.time), "  ", _head(moment))
        yield from (Padding(line, (0, 0, 0, 4), expand=False) for line in _below(moment))


def _head(moment: Moment) -> Text:
    if moment.look:
        return Text("a look at it, because its id was due", "italic")
    kind = "was there" if moment.initial else str(moment.type)
    found = ", found by comparison" if moment.synthetic else ""
    place = f", event {moment.seq}" if moment.seq else ""
    idle = f": {_NOTHING[moment.result]}" if not moment.decided and moment.result in _NOTHING else ""
    where = f"{place}, resourceVersion {moment.resource_version}{found}{idle}"
    return Text.assemble((kind, "bold"), (where, "bright_black"))


def _below(moment: Moment) -> Iterator[RenderableType]:
    if moment.changes:
        yield Text("; ".join(moment.changes))
    for taken in moment.decided:
        yield _arrow(_decision(taken), taken.reason, "red" if taken.kind == "Reject" else "green")
    if moment.result == "dead" and not any(taken.kind == "Reject" for taken in moment.decided):
        yield _arrow("dead letter", moment.reason, "red")
    elif moment.result == "retry":
        yield _arrow("tried again", moment.reason, "yellow")
    for action in moment.done:
        yield _arrow(_done(action), action.reason, "blue")


def _arrow(what: str, why: str, style: str) -> Table:
    drawn = Table.grid(padding=(0, 1, 0, 0))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    drawn.add_row(Text("=>", style), Text.assemble((what, style), f": {why}" if why else ""))
    return drawn


def _decision(taken: Taken) -> str:
    """Return what an action does, in words."""
    fields, of_record = taken.fields, f" {taken.record}" if taken.record else ""
    state = "DEPLOYED" if fields.get("deployed") else "UNDEPLOYED"
    match taken.kind:
        case "CreateRecord":
            version = f", version {fields['version_id']}" if fields.get("version_id") else ""
            return f"create record{of_record} ({state}{version})"
        case "UpdateRecord":
            return f"change record{of_record} ({state})"
        case "PatchObject":
            return f"write id{of_record} to the object (cost: {fields.get('cost', 'not known')})"
        case "DeferPatch":
            return f"defer writing id{of_record}"
        case "Warn":
            return "warning"
        case _:
            return "dead letter"


def _done(action: Action) -> str:
    told: Iterable[str] = (
        f"done: {action.kind}",
        f"status {action.status}" if action.status else "",
        f"{action.ms:.0f} ms" if action.ms else "",
        f"by {action.member}" if action.member else "",
    )
    return ", ".join(each for each in told if each)


def _record(record: Held) -> Text:
    state = {True: "DEPLOYED", False: "UNDEPLOYED", None: "no state"}[record.deployed]
    told = (
        f"{record.id} in {record.registry}: {state}",
        f"model {record.model}",
        f"version {record.version}" if record.version else "no version",
        ("Ready" if record.ready else "not Ready") if record.deployed else "",
        f"url {record.url}" if record.url else "",
        f"since {second(record.deployed_at)}" if record.deployed_at else "",
        f"until {second(record.undeployed_at)}" if record.undeployed_at else "",
        f"written from resourceVersion {record.written_from}" if record.written_from else "not written by isvc-sync",
    )
    return Text(", ".join(each for each in told if each))


def second(time: str) -> str:
    """Return a moment in UTC, to the second."""
    return f"{time[:_TO_THE_SECOND]}Z" if time else ""
