"""One property of `plan` over a whole small space: every object against every set of records, with deaths between."""

import itertools
import random

import pytest
from msgspec.structs import replace

from consumer.actions import DeferPatch, Reject, Warn
from consumer.observation import want
from consumer.plan import Facts, plan, questions
from tests.unit.consumer.worlds import (
    FACTS,
    ID,
    MODEL,
    PREDECESSORS,
    PREFIX,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    performed,
    record_of,
    seen,
)

MODELS = (None, "1", "2", "404", "abc")
VERSIONS = (None, "11", "21", "404")
STATES = tuple(itertools.product((False, True), (False, True), (False, True), (None, "7", "99")))


def every_observation():
    for model, version, (ready, stopped, gone, id_value) in itertools.product(MODELS, VERSIONS, STATES):
        labels = {MODEL: model, VERSION: version, ID: id_value}
        obj = an_object(
            {key: value for key, value in labels.items() if value is not None},
            annotations={"serving.kserve.io/stop": "true"} if stopped else None,
            status=READY if ready else None,
            version="50",
        )
        yield seen(obj, models=("1", "2") if model in {"2", "abc"} else ("1",), gone=gone)


def every_set_of_records():
    old = seen(an_object(version="10"))
    ours = record_of(old)
    second = replace(
        record_of(seen(an_object({MODEL: "2", VERSION: "21"}, version="20"))), id="8", name=f"iris/{UID}/2"
    )
    firsts = (None, ours, replace(ours, deployed=False), replace(ours, properties={}), PREDECESSORS)
    for first, other in itertools.product(firsts, (None, second, replace(second, deployed=False))):
        yield {record.model_id: record for record in (first, other) if record}


def agree(observation, obj, records) -> list[str]:
    """Say what is wrong between object and records; the goal, told independently of `plan`."""
    wanted = want(observation, PREFIX)
    wrong = [
        f"record {record.id} of model {model} is deployed"
        for model, record in records.items()
        if record.deployed and not (model == wanted.model and wanted.lives and not wanted.stopped)
    ]
    if wanted.model not in {"1", "2"}:
        return wrong
    record = records.get(wanted.model)
    if record is None:
        return [*wrong, "no record"]
    if record.deployed is not (wanted.lives and not wanted.stopped):
        wrong.append("state")
    if record.external_id != f"kserve:{UID}/{wanted.model}":
        wrong.append("externalId")
    if record.url != wanted.url:
        wrong.append("url")
    followed = FACTS.versions.get(wanted.version) == wanted.model
    if record.stamp.model_version != (wanted.version if followed else ""):
        wrong.append("version in the property")
    if followed and record.version_id != wanted.version:
        wrong.append("version")
    if wanted.lives and not wanted.ready and obj.metadata.labels.get(ID) != record.id:
        wrong.append("id on the object")
    return wrong


@pytest.mark.parametrize("chance_of_death", [0.0, 0.4])
def test_every_situation_converges_though_the_consumer_dies_between_actions(chance_of_death):
    chance = random.Random(7)
    deaths = situations = 0
    for observation, start in itertools.product(every_observation(), tuple(every_set_of_records())):
        situations += 1
        records, obj = dict(start), observation.obj
        for _ in range(40):
            now = replace(observation, obj=obj)
            actions = plan(now, records, FACTS, SETTINGS)
            died = False
            for action in actions:
                obj, records = performed(action, obj, records, 9)
                if chance.random() < chance_of_death:
                    deaths += 1
                    died = True
                    break
            if not died:
                break
        settled = replace(observation, obj=obj)
        rest = [a for a in plan(settled, records, FACTS, SETTINGS) if not isinstance(a, Warn | Reject | DeferPatch)]
        assert rest == [], (observation, start)
        assert agree(settled, obj, records) == [], (observation, start)
    assert situations == 7_200
    assert (deaths > 100) is (chance_of_death > 0)


def test_facts_that_were_not_asked_for_are_not_needed():
    for observation, records in itertools.product(every_observation(), tuple(every_set_of_records())):
        asked = questions(observation, records, SETTINGS)
        answers = Facts(
            models={model: FACTS.models[model] for model in asked.models},
            versions={version: FACTS.versions[version] for version in asked.versions},
        )
        assert plan(observation, records, answers, SETTINGS) == plan(observation, records, FACTS, SETTINGS)
