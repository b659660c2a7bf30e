"""What all simulations rest on: a seed is one history, and a failing one is shortened to what fails."""

import random
from collections import Counter

import pytest

from tests.simulation.consumer.history import SIMULATION as CONSUMER
from tests.simulation.histories import History, Recipe, Simulation, Step
from tests.simulation.producer.history import SIMULATION as PRODUCER


@pytest.mark.parametrize("simulation", [CONSUMER, PRODUCER], ids=["consumer", "producer"])
def test_a_seed_is_one_history_and_lives_it_the_same_way_each_time(simulation):
    assert simulation.of(7) == simulation.of(7) != simulation.of(8)
    random.seed(1)
    once = simulation.live(simulation.of(7))
    random.seed(2)
    assert simulation.live(simulation.of(7)) == once


def one(world):
    """Harm nobody."""


def two(world):
    raise AssertionError("two: too many")


class Chance:
    def begin(self, seed):
        """Need no choices."""

    def met(self, name):
        """Count nothing."""


RECIPE = Recipe({one: 1, two: 1}, {}, ("cold", "wet"), (0.5,), steps=(5, 9))


def lived(history):
    RECIPE.happen(history, None, Chance())
    return Counter()


def test_a_failing_history_is_shortened_to_what_fails():
    steps = [Step("one", seed) for seed in range(20)]
    history = History(frozenset(("cold", "wet")), (*steps, Step("two", 1)))
    assert Simulation(RECIPE, lived).shortened(history) == History(frozenset(), (Step("two", 1),))


def test_a_failure_is_reported_with_its_seed_and_what_is_left_of_it():
    simulation = Simulation(RECIPE, lived)
    seed = simulation.first_failing(0, 100)
    with pytest.raises(AssertionError, match=rf"seed {seed} fails: two: too many\nshortened from \d+ to 1 steps"):
        simulation.all_of(0, 100)
