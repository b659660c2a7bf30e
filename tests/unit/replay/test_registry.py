"""The registry in memory does what the sandbox's does, for all that the consumer asks of one.

Both get the same calls, in histories made of few names, so that they collide. The sandbox's is reached through the real
adapter, and is itself held together with the real registry by tests/contract.
"""

import math
from random import Random
from typing import Any

import pytest

from consumer.actions import CreateRecord, UpdateRecord
from consumer.records import Record
from consumer.registry import ModelRegistry
from consumer.requests.registry_errors import Request, classify
from replay.capture import Facts, RecordFact
from replay.registry import MemoryRegistry
from sandbox.registry.records import Registry as Content
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError
from tests.simulation.consumer.registry import Registry as SandboxRegistry
from tests.simulation.consumer.registry import text

NAMES = ("iris", "i%", "i_is", "iris/2")
EXTERNAL_IDS = ("kserve:a/1", "kserve:a/2", "kserve:b/1")
ENVIRONMENTS = ("team-a", "team-b")
MODELS, VERSIONS = ("1", "2"), {"11": "1", "12": "1", "21": "2"}
MISSING = "987"
CLASSES = (ConflictError, NotFoundError, PermanentError, TransientError)


class Client:
    """The part of `RegistryClient` that the adapter calls."""

    def __init__(self, served: SandboxRegistry) -> None:
        self._served = served

    async def call(self, request: Request, _budget: Any) -> bytes:
        answer = self._served.serve(request, late=False)
        error = classify(request, answer)
        if error is not None:
            raise error
        return answer.body


class Side:
    """One registry, its ids called by the order in which they were met."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry
        self.ids: list[str] = []

    def number(self, made: str) -> int:
        if made not in self.ids:
            self.ids.append(made)
        return self.ids.index(made)

    def id(self, number: int) -> str:
        return self.ids[number] if number < len(self.ids) else MISSING

    async def does(self, call: str, *arguments: Any) -> Any:
        try:
            answer = await getattr(self.registry, call)(*arguments)
            is_id = call.endswith("environment") and answer is not None
            return self.number(answer) if is_id else self.said(answer)
        except CLASSES as error:
            return next(each.__name__ for each in CLASSES if isinstance(error, each))

    def said(self, answer: Any) -> Any:
        if not isinstance(answer, Record):
            return answer
        return (
            self.number(answer.id),
            self.number(answer.environment_id),
            *(answer.name, answer.external_id, answer.model_id, answer.version_id, answer.runtime),
            *(answer.deployed, answer.properties),
        )

    async def all(self) -> list[Any]:
        return [self.said(record) async for record in self.registry.all_records()]


def both() -> tuple[Side, Side]:
    facts = Facts(models=MODELS, versions=VERSIONS)
    memory = MemoryRegistry()
    memory.seed(facts)
    served = SandboxRegistry(lambda: 0, lambda *_: None)
    served.store.clear()
    Content(served.store).seed(
        0,
        {
            "registered_models": [{"id": each, "name": f"model {each}"} for each in MODELS],
            "model_versions": [{"id": v, "name": v, "registeredModelId": model} for v, model in VERSIONS.items()],
        },
    )
    return Side(memory), Side(ModelRegistry(Client(served), lambda: math.inf))


def call_of(chance: Random) -> tuple[str, Any]:
    """Return a call's name, and what makes its arguments from the ids of one side."""
    environment, record = chance.randrange(4), chance.randrange(8)
    name, external_id = chance.choice(NAMES), chance.choice(EXTERNAL_IDS)
    version, runtime = chance.choice(("", "11", "21")), chance.choice(("", "triton"))
    properties = {chance.choice("xyz"): text(str(chance.randrange(3)))}
    place, deployed = chance.choice(ENVIRONMENTS), chance.random() < 0.5
    adopts = chance.choice(("", external_id))
    made = CreateRecord("", name, external_id, chance.choice(MODELS), version, runtime, deployed, properties, "")
    return chance.choice(
        [
            ("create_environment", lambda _: (place,)),
            ("find_environment", lambda _: (place,)),
            ("create_record", lambda side: (made, side.id(environment))),
            ("create_record", lambda side: (made, side.id(environment))),
            (
                "update_record",
                lambda side: (UpdateRecord(side.id(record), deployed, properties, "", adopts, version, runtime),),
            ),
            ("find_record", lambda _: (external_id,)),
            ("find_record_by_name", lambda side: (name, side.id(environment))),
            ("model_exists", lambda _: (chance.choice(("1", "2", MISSING, "01", "x")),)),
            ("model_of_version", lambda _: (version or MISSING,)),
        ]
    )


@pytest.mark.parametrize("seed", range(150))
async def test_the_same_calls_get_the_same_answers_as_from_the_sandboxs_registry(seed):
    memory, sandbox = both()
    for step in range(30):
        chance = Random(1000 * seed + step)
        name, arguments = call_of(chance)
        state = chance.getstate()
        answers = []
        for side in (memory, sandbox):
            chance.setstate(state)
            answers.append(await side.does(name, *arguments(side)))
        assert answers[0] == answers[1], f"step {step}: {name}"
    assert await memory.all() == await sandbox.all()


async def test_the_histories_meet_every_answer():
    """Without collisions, ids that are not there, and updates that change something, the test above says nothing."""
    met = set()
    for seed in range(150):
        memory, _ = both()
        for step in range(30):
            name, arguments = call_of(Random(1000 * seed + step))
            answer = await memory.does(name, *arguments(memory))
            met.add((name, answer if isinstance(answer, str) and not answer.isdigit() else type(answer).__name__))
    assert met >= {
        ("create_environment", "ConflictError"),
        ("create_record", "ConflictError"),
        ("create_record", "NotFoundError"),
        ("create_record", "tuple"),
        ("update_record", "TransientError"),
        ("update_record", "ConflictError"),
        ("update_record", "tuple"),
        ("find_record", "NoneType"),
        ("find_record", "tuple"),
        ("find_record_by_name", "NoneType"),
        ("find_record_by_name", "tuple"),
        ("model_exists", "PermanentError"),
        ("model_exists", "bool"),
        ("model_of_version", "NoneType"),
    }


async def test_it_holds_what_the_facts_say_and_numbers_on_above_them():
    fact = RecordFact(id="57", name="iris", external_id="kserve:a/1", environment="team-a", model_id="1", deployed=True)
    registry = MemoryRegistry()
    registry.seed(Facts(models=("1",), environments={"team-a": "60"}))
    registry.seed(Facts(records=(fact,)))
    assert (await registry.find_record("kserve:a/1")).environment_id == "60"
    assert await registry.create_environment("team-b") == "61"


async def test_models_and_versions_that_no_facts_name_are_taken_to_exist_unless_it_is_strict():
    registry = MemoryRegistry()
    registry.assume("11", "1")
    registry.assume("11", "2")
    assert registry.assuming
    assert await registry.model_exists("7")
    assert await registry.model_of_version("11") == "1", "a version is one of one model: the first that was told"
    strict = MemoryRegistry(strict=True)
    strict.assume("11", "1")
    assert not await strict.model_exists("7")
    assert await strict.model_of_version("11") is None


@pytest.mark.parametrize(
    "facts",
    [
        Facts(models=("1",)),
        Facts(versions={"11": "1"}),
        Facts(absent_models=("9",)),
        Facts(absent_versions=("19",)),
    ],
)
async def test_facts_about_models_or_versions_are_all_there_is(facts):
    registry = MemoryRegistry()
    registry.seed(facts)
    registry.assume("12", "1")
    assert not registry.assuming
    assert not await registry.model_exists("7")
    assert await registry.model_of_version("12") is None


async def test_what_was_there_and_later_is_absent_does_not_exist():
    registry = MemoryRegistry()
    registry.seed(Facts(models=("1", "2"), versions={"11": "1", "21": "2"}))
    registry.seed(Facts(absent_models=("1",), absent_versions=("11",)))
    assert [await registry.model_exists(each) for each in ("1", "2")] == [False, True]
    assert [await registry.model_of_version(each) for each in ("11", "21")] == [None, "2"]


async def test_what_is_written_is_told_with_the_action_that_asked_for_it():
    told = []
    registry = MemoryRegistry(on_write=lambda action, record: told.append((action, record)))
    environment = await registry.create_environment("team-a")
    action = CreateRecord("team-a", "iris", "kserve:a/1", "1", "", "", True, {}, "")
    record = await registry.create_record(action, environment)
    change = UpdateRecord(record.id, False, {}, "")
    changed = await registry.update_record(change)
    assert told == [(action, record), (change, changed)]
    assert registry.records() == [changed]
