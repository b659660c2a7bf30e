"""At most so many of something for each key within so many seconds. Pure: time is an argument."""

from collections import OrderedDict, deque


class RateLimit:
    """A window that slides: `most` in any `per_s` seconds. Keys that were quiet for that long are forgotten."""

    def __init__(self, most: int, per_s: float) -> None:
        self._most = most
        self._per_s = per_s
        self._spent: OrderedDict[str, deque[float]] = OrderedDict()  # the key that spent last stands last

    def wait_s(self, key: str, now: float) -> float:
        """Return the seconds until one more is allowed; 0.0: now."""
        times = self._spent.get(key)
        if times is None or len(times) < self._most:
            return 0.0
        return max(0.0, times[0] + self._per_s - now)

    def spend(self, key: str, now: float) -> None:
        """Note that one was made."""
        times = self._spent.setdefault(key, deque(maxlen=self._most))
        times.append(now)
        self._spent.move_to_end(key)
        while next(iter(self._spent.values()))[-1] + self._per_s <= now:  # ends at this key at the latest
            self._spent.popitem(last=False)

    def __len__(self) -> int:
        return len(self._spent)
