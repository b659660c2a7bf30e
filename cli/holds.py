"""What people see of holds: all answers as one, a table with an explanation of each hold, or JSON. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from shared.holds import PARTS, Answer, Hold, Outcome, Part

_KEEPS_BACK: Final[dict[Part, str]] = {"producer": "deletes", "sweep": "undeployments"}
_MEANINGS: Final = {
    Outcome.RELEASED: "released: what is still so at the next look is carried out.",
    Outcome.CHANGED: "not released, nobody holds it any more: what is held has changed, or was released before.",
    Outcome.UNKNOWN: (
        "not known whether it is held or released, its holder gave no answer: has it ended, does it hang, or may you "
        "not publish there?"
    ),
}


class Shown(Struct, frozen=True):
    """All answers as one: each hold once, the oldest first. `cluster` is the name that was asked for."""

    cluster: str
    answers: tuple[Answer, ...]

    @property
    def holds(self) -> tuple[Hold, ...]:
        every = {hold.id: hold for answer in self.answers for hold in answer.holds}
        return tuple(sorted(every.values(), key=lambda hold: (hold.since, hold.id)))

    @property
    def silent(self) -> tuple[Part, ...]:
        """The parts of isvc-sync that have not answered."""
        return tuple(part for part in PARTS if not any(part in answer.parts for answer in self.answers))

    def holders_of(self, hold_id: str) -> tuple[str, ...]:
        """Return who has this hold: two, while the leaders change."""
        return tuple(answer.holder for answer in self.answers if any(hold.id == hold_id for hold in answer.holds))


def listing(shown: Shown) -> RenderableType:
    """Return everything that was answered, for people."""
    holds = shown.holds
    lines = [Text(_summary(shown))]
    if holds:
        ids = " ".join(hold.id for hold in holds)
        lines.append(Text(f"If this is true, and only then: isvc-sync release {ids}"))
    return Group(details(shown, holds), *lines) if holds else Group(*lines)


def details(shown: Shown, holds: Sequence[Hold]) -> RenderableType:
    """Return some of the holds: a table, then what each is about."""
    ids = ", ".join(sorted({answer.cluster_id for answer in shown.answers}))
    return Group(
        Text(f"Cluster {shown.cluster}, id {ids}\n"), _table(holds), Text(), *(_explained(hold) for hold in holds)
    )


def question(holds: Sequence[Hold]) -> str:
    """Return what a person has to say yes to."""
    what = " and ".join(f"{hold.count} {_KEEPS_BACK[hold.by]} of {hold.kind.kubernetes_kind}" for hold in holds)
    return f"Release {what}?"


def results(outcomes: Mapping[str, Outcome], silent: Sequence[Part]) -> RenderableType:
    """Return what became of each id, and which parts were silent."""
    lines = [Text(f"{each}: {_MEANINGS[outcome]}") for each, outcome in outcomes.items()]
    if any(outcome is not Outcome.RELEASED for outcome in outcomes.values()):
        lines.append(Text(f"{_silence(silent)}Look again: isvc-sync release"))
    elif silent:
        lines.append(Text(_silence(silent).rstrip()))
    return Group(*lines)


def listing_as_data(shown: Shown) -> dict[str, Any]:
    """Return everything that was answered, for programs."""
    answered = [{"holder": each.holder, "clusterId": each.cluster_id, "parts": each.parts} for each in shown.answers]
    return {"cluster": shown.cluster, "holds": shown.holds, "answered": answered, "silent": shown.silent}


def results_as_data(outcomes: Mapping[str, Outcome], silent: Sequence[Part]) -> dict[str, Any]:
    return {"results": [{"id": each, "outcome": outcome} for each, outcome in outcomes.items()], "silent": silent}


def _summary(shown: Shown) -> str:
    asked = ", ".join(f"{' and '.join(answer.parts)} ({answer.holder})" for answer in shown.answers)
    nothing = "" if shown.holds else "Nothing is shown as held. " if shown.silent else "Nothing is held. "
    return f"{nothing}Answered: {asked}. {_silence(shown.silent)}".rstrip()


def _silence(silent: Sequence[Part]) -> str:
    """Return the sentence about the parts that gave no answer, "" where there are none."""
    return f"No answer from the {' and '.join(silent)}: what is held back there is not known. " if silent else ""


def _table(holds: Sequence[Hold]) -> Table:
    """Return the facts that fit on any terminal; the rest is in the explanations."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("Id", "By", "Kind", "Held", "Since"):
        drawn.add_column(heading, no_wrap=True)
    for hold in holds:
        facts = (hold.by, hold.kind, f"{hold.count} of {hold.known}", hold.since)
        drawn.add_row(Text(hold.id, "cyan"), *map(Text, facts))
    return drawn


def _explained(hold: Hold) -> RenderableType:
    more = hold.count - len(hold.sample)
    names = ", ".join(hold.sample) + (f" and {more} more" if more else "")
    why = Text.assemble((hold.id, "cyan"), f": {hold.why} ({hold.scope})")
    return Group(why, Padding(Text(names, "bright_black"), (0, 0, 0, 4), expand=False), Text())
