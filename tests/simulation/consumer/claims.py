"""What must hold: of each write when it lands, and of registry, objects and dead letters when all has come to rest.

What the product does not promise is left out here by name (`limits.py`), and nowhere else.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

from consumer.records import Stamp, external_id
from consumer.writeback import cost_of
from tests.simulation.consumer import limits
from tests.simulation.consumer.cluster import VERSIONS_OF
from tests.simulation.consumer.process import CLUSTER_ID
from tests.simulation.consumer.registry import Said
from tests.simulation.consumer.truth import Truth, complaint, recorded_version, truths

if TYPE_CHECKING:
    from shared.objects import ObjectKey
    from tests.simulation.consumer.world import World


class Judge:
    """Checks the world at rest. Before the sweep, what only that can put right may still be wrong."""

    def __init__(self, world: "World", *, swept: bool) -> None:
        self.world = world
        self.swept = swept
        self.truths = truths(world.broker.told)
        self.records: dict[str, list[Said]] = {}
        for said in world.registry.rows():
            self.records.setdefault(said.row.public_name.split("/")[1], []).append(said)

    def leaves_something(self) -> bool:
        """Check everything; return whether something is left to the sweep. Raises AssertionError."""
        self._left = False
        assert not self.world.violations, self.world.violations[0]
        for record_id, row in self.world.foreign.items():
            now = self.world.registry.row(str(record_id))
            assert (now and now.row) == row, f"record {row.name}: another cluster's was touched"
        names = self.world.registry.environments()
        assert len(names) == len(set(names)), f"environments {names}: one of them twice"
        for truth in self.truths.values():
            if limits.out_of_reach(self.world, truth) or limits.unrecorded_end(self.world, truth):
                continue
            if not self.swept and limits.overtaken(self.world, truth):
                self._left = True
                continue
            self._records_are_right(truth)
            self._id_is_written(truth)
        self._objects_are_followed()
        self._dead_letters_are_right()
        return self._left

    def _objects_are_followed(self) -> None:
        for key, living in self.world.cluster.objects.items():
            truth = self.truths.get(living.uid)
            assert truth is not None, f"{key}: was never published"
            assert truth.lives is not living.content.going, f"{key}: the stream says otherwise about its end"
            assert truth.content == living.content, f"{key}: the stream is behind"

    def is_foreign(self, uid: str, model: str) -> bool:
        return any(row.external_id == external_id(uid, model) for row in self.world.foreign.values())

    def _records_are_right(self, truth: Truth) -> None:
        uid, content = truth.uid, truth.content
        records = [said for said in self.records.get(uid, []) if said.row.id not in self.world.foreign]
        models = [said.field("registeredModelId") for said in records]
        assert len(models) == len(set(models)), f"{uid}: two records of one model"
        assert truth.carried or not records, f"{uid}: never indexed, and has a record"
        current = None
        for said, model in zip(records, models, strict=True):
            assert said.row.external_id == external_id(uid, model), f"{uid}: its record of {model} is not adopted"
            if model == content.model:
                current = said
            else:
                assert not said.deployed, f"{uid}: model {model} is DEPLOYED, the label is {content.model!r}"
                stamp = said.stamp
                assert (stamp and stamp.undeployed_at) not in {None, ""}, f"{uid}: a closed record without its end"
        if content.model in VERSIONS_OF and not self.is_foreign(uid, content.model):
            assert current is not None, f"{uid}: no record of model {content.model}"
            self._record_says(truth, current)
        for model in truth.carried:
            if model in VERSIONS_OF and model not in models and not self.is_foreign(uid, model):
                assert limits.passed_over(self.world, truth), f"{uid}: nothing says that it ever deployed model {model}"

    def _record_says(self, truth: Truth, said: Said) -> None:
        uid, content, stamp = truth.uid, truth.content, said.stamp
        assert stamp is not None, f"{uid}: a record without our property"
        deployed = truth.lives and not content.stopped
        assert said.deployed is deployed, f"{uid}: DEPLOYED is {said.deployed}, and should be {deployed}"
        version = recorded_version(content)
        expected = {
            "url": content.url,
            "modelVersionId": version or said.field("modelVersionId"),  # the registry cannot clear it
            "runtime": content.runtime or said.field("runtime"),
            "ready": truth.lives and content.ready,
            "loadFailure": content.load_failure,
            "modelVersion": version,
            "uid": uid,
            "name": truth.key.name,
            "clusterId": CLUSTER_ID,
            "undeployedAt": not deployed,
        }
        found = {
            "url": said.url,
            "modelVersionId": said.field("modelVersionId"),
            "runtime": said.field("runtime"),
            "ready": stamp.ready,
            "loadFailure": stamp.load_failure,
            "modelVersion": stamp.model_version,
            "uid": stamp.uid,
            "name": stamp.name,
            "clusterId": stamp.cluster_id,
            "undeployedAt": bool(stamp.undeployed_at),
        }
        for name, value in expected.items():
            assert found[name] == value, f"{uid}: {name} is {found[name]!r}, and should be {value!r}: field {name}"
        self._history_is_right(truth, stamp)

    def _history_is_right(self, truth: Truth, stamp: Stamp) -> None:
        uid = truth.uid
        told = [recorded_version(content) for content in truth.states if content.model == truth.content.model]
        whole = [version for at, version in enumerate(told) if version != (told[at - 1] if at else "")]
        history = list(stamp.versions)
        assert all(a != b for a, b in pairwise(history)), f"{uid}: {history}: the same twice"
        assert (history or [""])[-1] == told[-1], f"{uid}: {history} does not end with {told[-1]!r}: history's end"
        rest = iter(told)
        assert all(version in rest for version in history), f"{uid}: {history} is no part of {told}: history's order"
        if not limits.passed_over(self.world, truth):
            assert history == whole, f"{uid}: {history} instead of {whole}: history is not whole"

    def _id_is_written(self, truth: Truth) -> None:
        living = self.world.cluster.objects.get(truth.key)
        if living is None or living.uid != truth.uid or not truth.lives or truth.content.model not in VERSIONS_OF:
            return
        if self.is_foreign(truth.uid, truth.content.model):
            return
        settings = self.world.settings
        if not settings.write_back.allows(cost_of(living.decoded(truth.key), settings.target)):
            return
        if not self.swept and (limits.undone_unseen(self.world, truth) or limits.due_forgotten(self.world, truth)):
            self._left = True
            return
        record = next(
            said for said in self.records[truth.uid] if said.field("registeredModelId") == truth.content.model
        )
        assert living.content.id_label == str(record.row.id), (
            f"{truth.key} carries {living.content.id_label!r} instead of {record.row.id}: the id is not written"
        )

    def _dead_letters_are_right(self) -> None:
        last: dict[ObjectKey, Truth] = {}
        for one in self.world.broker.told:
            if one.event is not None:
                last[one.key] = self.truths[one.event.uid]
        for key, truth in last.items():
            if key in self.world.poisoned or limits.dead_letter_unsure(self.world, truth):
                continue
            foreign = self.is_foreign(truth.uid, truth.content.model)
            bad = (truth.lives and complaint(truth.content)) or foreign
            reason = self.world.broker.dead.get(key)
            assert bad or reason is None, f"{key} is among the dead letters ({reason}): dead for nothing"
            assert reason is not None or not bad, f"{key}: its complaint is not among the dead letters"
