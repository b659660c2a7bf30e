"""One chaos run from its beginning to its verdict."""

import asyncio
import time
from pathlib import Path

import nats.errors
from msgspec import Struct

from tests.chaos import judge, watching
from tests.chaos.traffic import NAMESPACES, Traffic
from tests.chaos.weather import Strike, planned, weather
from tests.chaos.world import World, chaos_world
from tests.cluster.processes import Guard

SETTLED_S_MAX = 10.0
_GIVE_UP_S = 60.0
_LOOK_EVERY_S = 0.2
_STILL_FOR_LOOKS = 3


class Plan(Struct, frozen=True):
    """What to run. `nodes`: servers of the broker, 1 or 3."""

    seed: int = 1
    duration_s: float = 40.0
    nodes: int = 1
    rate: float = 200.0


class Outcome(Struct, frozen=True):
    """What became of it. `findings`: what is wrong in the end. `settled_s`: from the last fault until all was right."""

    plan: Plan
    findings: tuple[str, ...]
    settled_s: float
    figures: str

    @property
    def is_right(self) -> bool:
        return not self.findings and self.settled_s < SETTLED_S_MAX

    def __str__(self) -> str:
        plan = self.plan
        what = f"seed {plan.seed}, {plan.duration_s:g} s, {plan.nodes} broker{'s' * (plan.nodes > 1)}"
        verdict = "RIGHT" if self.is_right else f"WRONG ({len(self.findings)} findings)"
        return f"{verdict}: {what}; settled in {self.settled_s:.1f} s; {self.figures}"


class Aftermath(Struct, frozen=True):
    """What the streams and the consumers' own notes say in the end."""

    told: tuple[judge.Told, ...]
    leases: judge.Leases
    effects: tuple[judge.Effect, ...]
    dead_letters: tuple[str, ...]
    looks: int


async def run(plan: Plan, directory: Path, guard: Guard) -> Outcome:
    """Run it; everything that was started has ended afterwards, however that goes."""
    strikes = weather(plan.seed, plan.duration_s, plan.nodes)
    async with chaos_world(directory, plan.nodes, guard) as world:
        traffic = Traffic(world.sandbox.cluster, plan.seed, plan.rate)
        traffic.populate()
        world.disturb_registry(seed=plan.seed)
        await _live_through(world, traffic, strikes, plan.duration_s)
        world.sandbox.registry.faults.clear()
        settled_s, findings = await _settle(world)
        seen = await _read(world)
        findings += _look_back(world, seen, strikes)
        return Outcome(plan, tuple(findings), settled_s, _figures(world, traffic, seen))


async def _live_through(world: World, traffic: Traffic, strikes: tuple[Strike, ...], duration_s: float) -> None:
    """Change objects and let everything strike in its time; return when the last fault is over."""

    async def later(strike: Strike) -> None:
        await asyncio.sleep(strike.at_s)
        await world.strike(strike)

    async with asyncio.TaskGroup() as group:
        changing = group.create_task(traffic.run(), name="traffic")
        striking = [group.create_task(later(each), name=f"{each.what} at {each.at_s:.1f} s") for each in strikes]
        await asyncio.sleep(duration_s)
        await asyncio.wait(striking)
        changing.cancel()


async def _settle(world: World) -> tuple[float, list[str]]:
    """Wait until nothing is wrong, and for some looks in a row; return when that began, and what is wrong still."""
    began_at, right_since, looks = time.monotonic(), 0.0, 0
    findings = ["nobody has looked yet"]
    while time.monotonic() - began_at < _GIVE_UP_S:
        looked_at = time.monotonic()
        findings = await _look(world)
        looks = looks + 1 if not findings else 0
        if looks == 1:
            right_since = looked_at
        if looks == _STILL_FOR_LOOKS:
            return right_since - began_at, []
        await asyncio.sleep(_LOOK_EVERY_S)
    return time.monotonic() - began_at, findings


async def _look(world: World) -> list[str]:
    """What is wrong at this moment, as far as that can be seen without the streams."""
    sandbox = world.sandbox
    registry, living = sandbox.registry, sandbox.cluster.list("InferenceService")
    try:
        waiting = await world.waiting()
    except (nats.errors.Error, OSError) as error:
        return [f"the broker does not answer: {error!r}"]
    return [
        *judge.waiting_findings(waiting),
        *judge.record_findings(living, registry.records("inference_services")),
        *judge.environment_findings(registry.records("serving_environments"), NAMESPACES),
    ]


async def _read(world: World) -> Aftermath:
    url = world.broker.url
    told, leases, dead, looks = await asyncio.gather(
        watching.told(url), watching.stored_leases(url), watching.dead_letters(url), watching.looks(url)
    )
    return Aftermath(tuple(told), leases, tuple(watching.effects(world.effects)), tuple(dead), looks)


def _look_back(world: World, seen: Aftermath, strikes: tuple[Strike, ...]) -> list[str]:
    """What was wrong on the way, and what has not happened at all."""
    return [
        *seen.dead_letters,
        *judge.history_findings(seen.told, world.sandbox.registry.records("inference_services"), world.buried()),
        *judge.fence_findings(seen.effects, seen.leases),
        *world.faults_of_our_own(),
        *judge.absent_faults(planned(strikes), world.struck, world.sandbox.registry.faults.injected),
    ]


def _figures(world: World, traffic: Traffic, seen: Aftermath) -> str:
    injected, writes = world.sandbox.registry.faults.injected, world.writes.seen
    faults = ", ".join(f"{count} x {what}" for what, count in sorted(world.struck.items()))
    pods = {effect.pod for effect in seen.effects}
    return (
        f"{traffic.made.total()} changes ({traffic.rate:.0f}/s), {len(seen.told)} events kept; "
        f"{writes['create']} records, {writes['update']} updates, {writes['older']} older over newer, "
        f"{writes['idle']} idle; {len(seen.effects)} effects by {len(pods)} consumers, "
        f"{judge.caught(seen.effects, seen.leases)} caught by a pause; "
        f"{len(world.buried())} buried after three deaths; {seen.looks} looks of the sweep; {faults}; "
        f"registry: {injected['error']} errors, {injected['lost_reply']} lost replies, {injected['outage']} refused"
    )
