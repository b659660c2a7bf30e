"""How far the watch may be trusted to be in the broker. Pure; kept by `producer/relay.py`, one per watch."""


class Checkpoint:
    """The position from which a watch may resume: everything before it has been acknowledged by the broker.

    Lives in memory only, since a start always lists.
    """

    def __init__(self) -> None:
        self._position = ""
        self._open: dict[str, tuple[int, str]] = {}  # sent at -> (how many, the position before it), in stream order

    @property
    def position(self) -> str:
        return next(iter(self._open.values()))[1] if self._open else self._position

    @property
    def seen(self) -> str:
        """How far the watch has come, acknowledged or not; empty before the first list is complete."""
        return self._position

    def reset(self, position: str) -> None:
        """Begin anew behind a complete pass, all of whose events are newer or repeated by the next one."""
        self._position = position
        self._open.clear()

    def passed(self, position: str) -> None:
        """Note that the stream has reached `position`."""
        self._position = position

    def sent(self, position: str) -> None:
        """Note that a message about the event at `position` is on its way; call it before `passed`."""
        count, before = self._open.get(position, (0, self._position))
        self._open[position] = (count + 1, before)

    def acknowledged(self, position: str) -> None:
        """Note that a message about `position` is stored. Those of an earlier pass are unknown, and ignored."""
        count, before = self._open.get(position, (0, ""))
        if count > 1:
            self._open[position] = (count - 1, before)
        else:
            self._open.pop(position, None)
