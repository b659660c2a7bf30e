"""Known limits, shown: for each, a history that fails as soon as the limit is not left out of the claims."""

import pytest

from tests.simulation.consumer import limits
from tests.simulation.consumer.history import SIMULATION

TRIES = 2000
LIMITS = [
    # name, the first seed that shows it
    pytest.param("passed_over", 16, id="passed_over"),
    pytest.param("overtaken", 77, id="overtaken"),
    pytest.param("undone_unseen", 518, id="undone_unseen"),
    pytest.param("out_of_reach", 767, id="out_of_reach"),
    pytest.param("dead_letter_unsure", 2669, id="dead_letter_unsure"),
    pytest.param("due_forgotten", 6010, id="due_forgotten"),
]


@pytest.mark.parametrize(("limit", "first"), LIMITS)
def test_a_known_limit_is_met_and_is_all_that_is_left_out(limit, first, monkeypatch):
    monkeypatch.setattr(limits, limit, lambda *_: False)
    shown = SIMULATION.first_failing(first, TRIES)
    assert shown is not None, "nothing needs this limit any more: take it out"
    monkeypatch.undo()
    assert SIMULATION.failure(SIMULATION.of(shown)) == ""
