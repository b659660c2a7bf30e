"""The situations that an object can be in, each with what is decided in it: the decision table of docs/reconcile.md.

`test_decision_table.py` asks `plan` about each, and holds the page to the answers.
"""

import msgspec
from msgspec.structs import replace

from consumer.actions import Action, CreateRecord, UpdateRecord
from consumer.observation import Observation
from consumer.plan import PlanSettings, plan
from consumer.records import Record, string_property
from consumer.writeback import WriteBack
from shared.objects import Component, Model, ModelStatus, Spec, Status
from tests.unit.consumer.worlds import (
    FACTS,
    ID,
    MODEL,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)

STOP = {"serving.kserve.io/stop": "true"}
LINKED = carrying(an_object(), "7")
RECORD = record_of(seen(LINKED))
CLOSED = replace(RECORD, deployed=False)
PREDECESSORS = Record("7", f"iris/{UID}", "", "3", "1", "11", "sk", True, {"url": string_property("http://old")})
SECOND = replace(record_of(seen(an_object({MODEL: "2", VERSION: "21"}))), id="8", name=f"iris/{UID}/2")
FOREIGN = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
OFF = replace(SETTINGS, write_back=WriteBack.OFF)


class Situation(msgspec.Struct, frozen=True):
    """What is seen, what the registry holds of this uid, and the actions in words, such as `CreateRecord DEPLOYED`."""

    words: str
    seen: Observation
    records: tuple[Record, ...] = ()
    actions: tuple[str, ...] = ()
    settings: PlanSettings = SETTINGS


CREATE, CREATE_CLOSED = "CreateRecord DEPLOYED", "CreateRecord UNDEPLOYED"
UPDATE, CLOSE = "UpdateRecord DEPLOYED", "UpdateRecord UNDEPLOYED"
PATCH, DEFER, WARN, REJECT = "PatchObject", "DeferPatch", "Warn", "Reject"


def later(labels: dict[str, str] | None = None, **changes: object) -> Observation:
    """Return a later state of the linked object."""
    return seen(carrying(an_object(labels, version="20", **changes), "7"))


SECTIONS: dict[str, tuple[Situation, ...]] = {
    "No record yet": (
        Situation("no label of ours, and none before", seen(an_object({}), models=())),
        Situation("a version label alone", seen(an_object({VERSION: "11"}), models=())),
        Situation("an id label alone", seen(an_object({ID: "9"}), models=()), (), (WARN,)),
        Situation("a model label", seen(an_object({MODEL: "1"})), (), (CREATE, PATCH)),
        Situation("a model label and a version label", seen(), (), (CREATE, PATCH)),
        Situation("the same, on an object that serves", seen(an_object(status=READY)), (), (CREATE, DEFER)),
        Situation("the same, with `WRITE_BACK=off`", seen(), (), (CREATE,), OFF),
        Situation(
            "a predictor of containers only",
            seen(an_object(spec=Spec(predictor=Component()))),
            (),
            (CREATE, PATCH),
        ),
        Situation("stopped from the beginning", seen(an_object(annotations=STOP)), (), (CREATE_CLOSED, PATCH)),
        Situation("gone before anybody looked", seen(gone=True), (), (CREATE_CLOSED,)),
        Situation(
            "the id of another record on it (a copy, an export)", seen(carrying(an_object(), "99")), (), (CREATE, PATCH)
        ),
        Situation("its own id on it, but the registry was reset", seen(LINKED), (), (CREATE, PATCH)),
    ),
    "Labels that cannot be followed": (
        Situation("a model label that is no id", seen(an_object({MODEL: "abc"}), models=("abc",)), (), (REJECT,)),
        Situation("an empty model label", seen(an_object({MODEL: ""}), models=()), (), (REJECT,)),
        Situation("a model that does not exist", seen(an_object({MODEL: "404"}), models=("404",)), (), (REJECT,)),
        Situation(
            "a version label that is no id", seen(an_object({MODEL: "1", VERSION: "x"})), (), (CREATE, PATCH, REJECT)
        ),
        Situation(
            "a version that does not exist", seen(an_object({MODEL: "1", VERSION: "404"})), (), (CREATE, PATCH, REJECT)
        ),
        Situation(
            "a version of another model", seen(an_object({MODEL: "1", VERSION: "21"})), (), (CREATE, PATCH, WARN)
        ),
        Situation(
            "two prefixes that say different models",
            seen(an_object({MODEL: "1", "modelregistry.opendatahub.io/registered-model-id": "2"})),
            (),
            (WARN, CREATE, PATCH),
        ),
        Situation("a bad model label on an object with a record", later({MODEL: "abc"}), (RECORD,), (CLOSE, REJECT)),
    ),
    "A record, and the object lives": (
        Situation("everything agrees", seen(LINKED), (RECORD,)),
        Situation("the version label changed", later({MODEL: "1", VERSION: "12"}), (RECORD,), (UPDATE,)),
        Situation("the version label was removed", later({MODEL: "1"}), (RECORD,), (UPDATE,)),
        Situation(
            "the model label changed",
            seen(carrying(an_object({MODEL: "2", VERSION: "21"}, version="20"), "7"), models=("1", "2")),
            (RECORD,),
            (CLOSE, CREATE, PATCH),
        ),
        Situation(
            "the model label came back",
            seen(carrying(an_object(version="20"), "8"), models=("1", "2")),
            (CLOSED, SECOND),
            (CLOSE, UPDATE, PATCH),
        ),
        Situation("the model label was removed", later({}), (RECORD,), (CLOSE,)),
        Situation("the id label was removed", seen(an_object()), (RECORD,), (PATCH,)),
        Situation("the id label is another record's", seen(carrying(an_object(), "99")), (RECORD,), (PATCH,)),
        Situation("stopped", later(annotations=STOP), (RECORD,), (CLOSE,)),
        Situation("started again", later(), (CLOSED,), (UPDATE,)),
        Situation(
            "the runtime changed",
            later(spec=Spec(predictor=Component(model=Model(runtime="triton")))),
            (RECORD,),
            (UPDATE,),
        ),
        Situation("it became Ready, and has a url", later(status=READY), (RECORD,), (UPDATE,)),
        Situation(
            "the url is gone",
            seen(LINKED),
            (replace(RECORD, properties=RECORD.properties | {"url": string_property("http://old")}),),
            (UPDATE,),
        ),
        Situation(
            "the labelled version cannot be loaded",
            later(status=Status(deployment_mode="Standard", model_status=ModelStatus("BlockedByFailedLoad"))),
            (RECORD,),
            (UPDATE,),
        ),
        Situation("the state was edited by hand", seen(LINKED), (CLOSED,), (UPDATE,)),
        Situation("the registry holds no state", seen(LINKED), (replace(RECORD, deployed=None),), (UPDATE,)),
        Situation("an earlier controller's record", seen(LINKED), (PREDECESSORS,), (UPDATE,)),
        Situation("another cluster's record", seen(LINKED), (RECORD,), (REJECT,), FOREIGN),
        Situation("an older state than the record's", seen(an_object(version="9")), (RECORD,)),
    ),
    "A record, and the object goes": (
        Situation("a deletionTimestamp", seen(carrying(an_object(going=True, version="20"), "7")), (RECORD,), (CLOSE,)),
        Situation("deleted", seen(LINKED, gone=True), (RECORD,), (CLOSE,)),
        Situation("deleted before its id was written", seen(gone=True), (RECORD,), (CLOSE,)),
        Situation("deleted after its labels were removed", seen(an_object({}), gone=True), (RECORD,), (CLOSE,)),
        Situation("deleted, an earlier controller's record", seen(LINKED, gone=True), (PREDECESSORS,), (CLOSE,)),
        Situation("a late event of a deleted object", seen(LINKED), (record_of(seen(LINKED, gone=True)),)),
    ),
}


def in_words(action: Action) -> str:
    """Return an action as the table shows it."""
    name = type(action).__name__
    if isinstance(action, CreateRecord | UpdateRecord):
        return f"{name} {'DEPLOYED' if action.deployed else 'UNDEPLOYED'}"
    return name


def decided(situation: Situation) -> tuple[Action, ...]:
    records = {record.model_id: record for record in situation.records}
    return plan(situation.seen, records, FACTS, situation.settings)


def table() -> str:
    """Return the table as the page has it."""
    lines: list[str] = []
    for title, situations in SECTIONS.items():
        lines += [f"### {title}", "", "| the object | what is done | because |", "| --- | --- | --- |"]
        for situation in situations:
            actions = decided(situation)
            done = ", ".join(f"`{in_words(action)}`" for action in actions) or "nothing"
            lines.append(f"| {situation.words} | {done} | {'; '.join(action.reason for action in actions)} |")
        lines.append("")
    return "\n".join(lines).strip()


if __name__ == "__main__":
    print(table())  # noqa: T201 - for the page
