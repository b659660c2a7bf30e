"""Each known limit, shown: a history that fails as soon as the limit is not left out of the claims."""

import pytest

from tests.simulation.producer import claims
from tests.simulation.producer.history import SIMULATION

TRIES = 2000
LIMITS = [
    # name, what it is when nothing is left out, the first seed that shows it
    pytest.param("numbering_lost", False, 1172, id="numbering_lost"),
    pytest.param("stale_on_top", False, 1509, id="stale_on_top"),
    pytest.param("epochs_crossed", frozenset(), 3, id="epochs_crossed"),
    pytest.param("overwritten", frozenset(), 65, id="overwritten"),
    pytest.param("came_back", frozenset(), 10257, id="came_back"),
]


@pytest.mark.parametrize(("limit", "nothing", "first"), LIMITS)
def test_a_known_limit_is_met_and_is_all_that_is_left_out(limit, nothing, first, monkeypatch):
    monkeypatch.setattr(claims, limit, lambda *_, **__: nothing)
    shown = SIMULATION.first_failing(first, TRIES)
    assert shown is not None, "nothing needs this limit any more: take it out"
    monkeypatch.undo()
    assert SIMULATION.failure(SIMULATION.of(shown)) == ""
