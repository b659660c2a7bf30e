"""Machines on one virtual clock: each process has an event loop of its own, which stands still while it is paused.

That is the point of it. In one loop for all, the timers of a paused process would fire; in a real one they do not, and
what it finds when it wakes up are answers from before, and a clock that has jumped.
"""

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any


class _NoSelector:
    def select(self, _timeout):
        return []


class _Loop(asyncio.BaseEventLoop):
    """An event loop that is stepped from outside."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._clock = clock

    def time(self) -> float:
        return self._clock()

    def _process_events(self, event_list):
        pass

    @property
    def due(self) -> float | None:
        """When it has something to do; None: when somebody calls."""
        if self._ready:
            return self._clock()
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
        return self._scheduled[0].when() if self._scheduled else None

    def step(self) -> None:
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            self._run_once()
        finally:
            events._set_running_loop(before)


class Host:
    """A process on a machine. Messages to a paused one wait; to a dead one they are lost."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.loop = _Loop(lambda: world.now)
        self.alive = True
        self.paused_until = 0.0
        self.errors: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.errors.append(str(context)))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(work)

    def pause(self, for_s: float) -> None:
        self.paused_until = max(self.paused_until, self.world.now + for_s)

    def kill(self) -> None:
        self.alive = False

    def deliver(self, action: Callable[[], None]) -> None:
        """Let the process do something when it runs: before its own timers, as a loop reads its sockets first."""
        if self.alive:
            self.loop.call_soon(action)

    @property
    def due(self) -> float | None:
        if not self.alive or self.loop.due is None:
            return None
        return max(self.loop.due, self.paused_until)

    def close(self) -> None:
        """Take everything down; of no meaning for the simulation."""
        while tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.step()
        self.loop.close()


class World:
    """The clock, and what happens by it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.hosts: list[Host] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = count()

    def host(self) -> Host:
        host = Host(self)
        self.hosts.append(host)
        return host

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._ticket), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def run(self, until: float) -> None:
        while True:
            dues = [(due, number) for number, host in enumerate(self.hosts) if (due := host.due) is not None]
            process = min(dues, default=(float("inf"), -1))
            event = self._events[0][0] if self._events else float("inf")
            if min(process[0], event) > until:
                self.now = until
                return
            if event <= process[0]:
                self.now, _, action = heapq.heappop(self._events)
                action()
            else:
                self.now = max(self.now, process[0])
                self.hosts[process[1]].loop.step()

    def close(self) -> None:
        for host in self.hosts:
            host.close()
