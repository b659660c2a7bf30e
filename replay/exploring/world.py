"""The world in which a capture is explored: its servers, the owner of each shard, and what befalls an owner. Pure."""

from typing import Final

import msgspec

from replay.exploring.scheduler import Scheduler
from replay.exploring.servers import Servers
from replay.exploring.story import Ending, Plan, Story, Told, ending_of
from replay.exploring.worker import Process, Reports
from shared.subjects import shard_of

ZOMBIE_S: Final = 20.0  # how long an owner that lost its shard goes on
CALM_AFTER_S: Final = 15.0  # the last event
REST_S_MAX: Final = 3_000.0
_STEP_S: Final = 5.0


class RestlessError(AssertionError):
    """The workers do not come to an end, though nothing strikes any more."""


class World(Servers):
    """One exploration. `owners` are the processes by shard, None between two lives."""

    def __init__(self, story: Story, plan: Plan, scheduler: Scheduler, workers: int) -> None:
        super().__init__(story, plan, scheduler, workers)
        self._plan = plan
        self._waits: set[int] = set()  # sequences of what can only be tried again
        self.owners: list[Process | None] = [None] * workers
        with self.loop.running():
            for shard in range(workers):
                self._start(shard)

    # what happens

    def live(self, told: list[Told]) -> Ending:
        """Publish everything, let happen what happens, and return what there is in the end. Raises RestlessError."""
        for message in told:
            due_s = message.at_s * self.scheduler.pace
            if due_s > self.loop.time():
                self.loop.run_for(due_s - self.loop.time())
            with self.loop.running():
                self._publish(message)
        self.loop.run_for(CALM_AFTER_S)
        self.scheduler.calm = True
        self._rest()
        return ending_of(self.registries, self.dead, self._plan.unsaid)

    def delivered(self, process: Process, told: Told) -> None:
        """Let something happen to the owner that has just been given a message."""
        for fault, befall in (
            ("worker killed", self.died),
            ("shard taken over", self._take_over),
            ("worker reconnected", self._reconnect),
        ):
            if self.scheduler.fault(fault, told.name):
                delay_s = self.scheduler.choice(f"how soon {fault}", (0.005, 0.05, 0.5, 3.0))
                self.loop.call_later(self.scheduler.draw(f"when {fault}") * delay_s, befall, process)

    def died(self, process: Process) -> None:
        """End a process at its present await; another one takes over from the ack floor, with nothing in memory."""
        if process.dead:
            return
        process.die()
        if self.owners[process.shard] is process:
            self.owners[process.shard] = None
            process.durable.leave()
            pause_s = self.scheduler.between(0.1, 3.0, f"next owner of {process.shard}")
            self.loop.call_later(pause_s, self._start, process.shard)

    def close(self) -> None:
        """End everything."""
        self.loop.cancel_all()

    def _publish(self, told: Told) -> None:
        copies = [told]
        if self.scheduler.fault("published twice", told.name):
            copies.append(msgspec.structs.replace(told, sequence=told.sequence + 1, name=f"{told.name}, again"))
        shard = shard_of(told.key, self.workers)
        for each in copies:
            self.show(each)
            if each.uid in self._plan.left_out:
                self._waits.add(each.sequence)
            self.durables[shard].add(each)

    def _take_over(self, process: Process) -> None:
        """Give a shard to another process; the old one goes on for a while without it."""
        if process.dead or self.owners[process.shard] is not process:
            return
        process.lose()
        self.owners[process.shard] = None
        self._start(process.shard)
        self.loop.call_later(ZOMBIE_S, process.die)

    def _reconnect(self, process: Process) -> None:
        """Lose the broker for a moment: everything above the ack floor comes anew, memory stays."""
        if not process.dead and self.owners[process.shard] is process:
            process.pull()

    def _start(self, shard: int) -> None:
        if self.owners[shard] is None:
            process = Process(self, shard, Reports(self.died, self.delivered))
            self.owners[shard] = process
            process.pull()

    # the end

    def _rest(self) -> None:
        end_s = self.loop.time() + REST_S_MAX
        while why := self._stirring():
            if self.loop.time() > end_s:
                raise RestlessError(f"it does not come to rest: {why}")
            self.loop.run_for(_STEP_S)

    def _stirring(self) -> str:
        """Return what still goes on, "" when nothing does. Looks that are due write ids, and no record."""
        if None in self.owners:
            return "a shard has no owner"
        for owner, durable in zip(self.owners, self.durables, strict=True):
            if durable.waiting or durable.pending.keys() - self._waits:
                return "messages are not acknowledged"
            if owner is not None and owner.under_way:
                return "requests are under way"
        return ""
