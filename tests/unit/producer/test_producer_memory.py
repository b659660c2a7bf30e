"""What the inventory takes for each object: 100,000 of them have to fit (docs/producer.md, Scale)."""

import gc
import hashlib
import tracemalloc
import uuid

import pytest

from producer.entries import Entries
from producer.inventory import Epoch, Inventory
from producer.items import Observed
from shared.objects import Kind, ObjectKey

OBJECTS = 2_000
PER_NAMESPACE = 50
ENTRY_BYTES_MAX = 320  # measured: 276, key and dictionary included
PASS_BYTES_MAX = 96  # measured: 66, at other sizes up to 105, as the table of a set doubles


def found(number: int) -> Observed:
    """An object as the reader makes it: no part of it is shared with another one."""
    return Observed(
        key=ObjectKey(Kind.ISVC, f"data-science-{number // PER_NAMESPACE:04d}", f"fraud-model-{number:06d}"),
        uid=str(uuid.UUID(int=number * 2**90 + number)),
        resource_version=str(500_000_000 + number),
        digest="v1:" + hashlib.sha256(str(number).encode()).hexdigest(),
        model=str(number + 1),
        body={},
    )


@pytest.fixture
def traced():
    """A function that returns the bytes in use; they are counted from here on."""

    def in_use() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    yield in_use
    tracemalloc.stop()


def listed() -> Inventory:
    """An inventory that has seen a whole list, all of which is acknowledged."""
    inventory = Inventory(Epoch(1_764_500_000))
    inventory.begin_pass()
    for number in range(OBJECTS):
        for change in inventory.observe(found(number), live=False, now_s=0):
            inventory.acknowledged(change.key, number + 1)
    inventory.end_pass("600000000", doubtful=0, now_s=0)
    return inventory


def test_R35_an_object_takes_a_few_hundred_bytes_of_the_inventory(traced):
    before = traced()
    inventory = listed()
    assert len(inventory) == OBJECTS
    assert (traced() - before) / OBJECTS < ENTRY_BYTES_MAX


def test_R35_a_pass_takes_little_more_and_gives_it_back(traced):
    inventory = listed()
    before = traced()
    inventory.begin_pass()
    for number in range(OBJECTS):
        inventory.observe(found(number), live=False, now_s=0)
    assert (traced() - before) / OBJECTS < PASS_BYTES_MAX
    inventory.end_pass("600000000", doubtful=0, now_s=0)
    assert (traced() - before) / OBJECTS < 1


def test_R35_the_inventory_does_not_grow_when_it_is_read_again(traced):
    inventory = listed()
    before = traced()
    for _ in range(3):
        inventory.reload(Entries(dict(inventory.entries)))
    assert (traced() - before) / OBJECTS < 1
