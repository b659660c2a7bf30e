"""What the timeline page is given: columns of numbers and one table of texts. Pure.

Ten thousand events must stay below 5 MB: each text is held once and named by its index, and times are differences.
`lanes.py` makes it, `html.py` puts it into the page, `page/data.js` reads it.
"""

import msgspec

# Bits of the column `flags`.
INITIAL, SYNTHETIC, TRUNCATED, TERMINATING, LOOK = 1, 2, 4, 8, 16


class About(msgspec.Struct, frozen=True, rename="camel"):
    """Where the events come from, for the page's head. `cut` is a sentence when the file had no end."""

    created: str
    tool: str
    cluster: str
    cluster_id: str
    source: str
    stream: str
    redaction: str
    only: str = ""
    cut: str = ""


class Events(msgspec.Struct, frozen=True, rename="camel"):
    """Columns, one entry for each event, in the order of time; a text is its index in `Page.texts`.

    `at`: microseconds after the entry before. `stored`: from the event to its place in the stream, `latency`: to the
    end of the last thing that a consumer did about it, both in microseconds, None where the capture does not tell.
    `retries`: how often the message came again. `taken`: what was decided, [kind, reason, record, registry, fields] for
    each. `state`: what the object said of itself: labels and the condition Ready.
    """

    object: list[int] = []
    at: list[int] = []
    seq: list[int] = []
    type: list[int] = []
    uid: list[int] = []
    resource_version: list[int] = []
    flags: list[int] = []
    result: list[int] = []
    reason: list[int] = []
    model: list[int] = []
    version: list[int] = []
    registry: list[int] = []
    state: list[int] = []
    stored: list[int | None] = []
    latency: list[int | None] = []
    retries: list[int] = []
    taken: list[list[tuple[int, int, int, int, int]]] = []
    notices: list[list[int]] = []


class Actions(msgspec.Struct, frozen=True, rename="camel"):
    """Columns, one entry for each action line: `event` is the place of its event, -1 where that is not in the file.

    `at`: microseconds after the page's start, `us`: how long it took.
    """

    event: list[int] = []
    object: list[int] = []
    at: list[int] = []
    us: list[int] = []
    kind: list[int] = []
    reason: list[int] = []
    status: list[int] = []
    member: list[int] = []


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """All that the page shows. `objects`: kind, namespace and name, each an index. `start`: Unix time in us."""

    about: About
    start: int
    objects: list[tuple[int, int, int]]
    texts: list[str]
    events: Events
    actions: Actions
