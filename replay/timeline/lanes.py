"""A capture as the timeline page shows it. Pure.

    timeline = Timeline(capture.header)
    timeline.event(line, step)             once for each event, with what was decided about it
    timeline.look(step)                    what a look found that the consumer asked of itself
    timeline.action(action)                once for each line that tells what a consumer did
    timeline.page(cut=capture.cut)      -> what `html.py` puts into the page

What a consumer did is told by action lines only; without them there are the decisions, and no latency.
"""

from replay.capture import Action, Captured, Header, key_of
from replay.moments import micros
from replay.steps import Step
from replay.timeline.columns import Columns, Seen
from replay.timeline.data import About, Page
from shared.objects import ObjectKey


class Timeline:
    """Collects a capture. `only`: namespace and name of each object that is wanted, None for all."""

    def __init__(self, header: Header, only: frozenset[tuple[str, str]] | None = None) -> None:
        self._header = header
        self._only = only
        self._seen: list[Seen] = []
        self._actions: list[tuple[int, Action, ObjectKey]] = []
        self._last = micros(header.created) or 0

    def event(self, line: Captured, step: Step) -> None:
        """Take an event in, unless it is about another object. One without a time stands where the one before stood."""
        self._see(step, line)

    def look(self, step: Step) -> None:
        """Take in what a look found."""
        self._see(step, None)

    def _see(self, step: Step, line: Captured | None) -> None:
        if not self._wants(step.key):
            return
        at = micros(step.time)
        self._last = self._last if at is None else at
        self._seen.append(Seen.of(self._last, len(self._seen), step, line))

    def action(self, action: Action) -> None:
        """Take in what a consumer did. Raises CaptureError when it names no object."""
        key = key_of(action.object)
        if self._wants(key):
            at = micros(action.time)
            self._actions.append((self._last if at is None else at, action, key))

    def page(self, cut: str | None = None) -> Page:
        """Return what was collected; `cut` says where the file stops, None for a whole one."""
        seen = sorted(self._seen, key=lambda each: (each.at, each.number))
        start = min((*(each.at for each in seen[:1]), *(at for at, _, _ in self._actions)), default=self._last)
        columns = Columns(start)
        for each in seen:
            columns.event(each)
        for at, action, key in sorted(self._actions, key=lambda each: each[0]):
            columns.action(at, action, key)
        return Page(self._about(cut), start, columns.objects, columns.texts.all, columns.events, columns.actions)

    def _wants(self, key: ObjectKey) -> bool:
        return self._only is None or (key.namespace, key.name) in self._only

    def _about(self, cut: str | None) -> About:
        header = self._header
        return About(
            created=header.created,
            tool=header.tool,
            cluster=header.cluster,
            cluster_id=header.cluster_id,
            source=header.source,
            stream=header.stream,
            redaction=header.redaction.profile,
            only=", ".join(sorted("/".join(each) for each in self._only or ())),
            cut=cut or "",
        )
