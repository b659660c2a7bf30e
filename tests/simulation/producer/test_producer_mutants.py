"""A simulation that finds nothing proves nothing: without each of these rules of the producer it must fail.

Each mutant takes one rule out; the simulation has 1,000 histories to kill it.
"""

import msgspec
import pytest

from producer import changes, inventory, outbox, watch
from producer.guard import Guard
from producer.inventory import Inventory
from producer.items import Bookmark, Gone, Seen
from producer.passes import Epoch
from producer.states import OpenWatch
from shared.events import MESSAGE_ID, EventType
from tests.simulation.producer.history import SIMULATION

HISTORIES_MAX = 1000


def without_sequence_in_synthetic_ids(patch):
    # Only in the broker's window: `ce-id` is parsed again, and a header that does not decode would be too easy a prey.
    def encode(event):
        headers = real(event)
        plain = msgspec.structs.replace(event, corrects=None)
        return headers | {MESSAGE_ID: real(plain)[MESSAGE_ID]}

    real = outbox.encode
    patch.setattr(outbox, "encode", encode)


def without_epoch(patch):
    def begin(self, now_s):
        self.value = self.value or now_s

    patch.setattr(Epoch, "begin", begin)


def without_scope(patch):
    patch.setattr(inventory, "within", lambda _scope, _key: True)


def without_delete_before_the_next_owner(patch):
    def changes_of(entry, found, *args, **kwargs):
        return real(entry, found, *args, **kwargs)[-1:]

    real = inventory.changes_of
    patch.setattr(inventory, "changes_of", changes_of)


def without_sticky_models(patch):
    patch.setattr(changes, "carried_by", lambda _entry, found, _carried: (found.model,) if found.model else ())


def without_list_after_expiry(patch):
    def relist(memory, trouble):
        return watch._back_off(watch.Watching(memory, "999999"), trouble)

    patch.setattr(watch, "_relist", relist)


def without_deletes_of_a_pass(patch):
    real = Inventory.end_pass

    def end_pass(self, version, **kwargs):
        outcome = real(self, version, **kwargs)
        kept = tuple(change for change in outcome.changes if change.type is not EventType.DELETED)
        return msgspec.structs.replace(outcome, changes=kept)

    patch.setattr(Inventory, "end_pass", end_pass)


def with_deletes_from_a_cut_initial_state(patch):
    def initial(state, item):
        if not isinstance(item, watch.Closed | watch.Lost):
            return real(state, item)
        state, effects = real(state, watch.Bookmark("11", initial_end=True))
        return state, (*effects, OpenWatch("11"))

    real = watch._initial
    patch.setattr(watch, "_initial", initial)


def with_deletes_of_a_kind_that_is_absent(patch):
    patch.setattr(Guard, "kind_absent", lambda _self, _living: frozenset())


def with_forgetting_of_what_is_under_way(patch):
    def tombstones(self):
        return [(key, entry) for key, entry in self.entries.items() if entry.deleted]

    patch.setattr(Inventory, "tombstones", tombstones)


def with_a_watch_that_drops_events(patch):
    def watching(state, item):
        if isinstance(item, Seen | Gone) and int(item.object.resource_version) % 5 == 0:
            item = Bookmark(item.object.resource_version)
        return real(state, item)

    real = watch._watching
    patch.setattr(watch, "_watching", watching)


MUTANTS = [
    without_sequence_in_synthetic_ids,
    without_epoch,
    without_scope,
    without_delete_before_the_next_owner,
    without_sticky_models,
    without_list_after_expiry,
    without_deletes_of_a_pass,
    with_deletes_from_a_cut_initial_state,
    with_deletes_of_a_kind_that_is_absent,
    with_forgetting_of_what_is_under_way,
    with_a_watch_that_drops_events,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_kills_a_producer(mutant, monkeypatch, record_property):
    mutant(monkeypatch)
    killed_by = SIMULATION.first_failing(0, HISTORIES_MAX)
    assert killed_by is not None
    record_property("figures", f"died after {killed_by + 1} histories")


def test_R41_an_audit_finds_out_that_a_watch_drops_events(monkeypatch):
    with_a_watch_that_drops_events(monkeypatch)
    assert any(
        "the audit accuses the watch" in SIMULATION.failure(SIMULATION.of(seed)) for seed in range(HISTORIES_MAX)
    )
