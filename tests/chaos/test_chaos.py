"""Everything fails at once: `pytest -m chaos`; `make chaos` does the same for any seed and time.

Claims about the end only. How long that takes is asserted with room: on two busy cores a consumer that was just started
again may take some seconds to begin.
"""

import pytest

from tests.chaos.run import SETTLED_S_MAX, Plan, run

SLOWER_IN_TESTS = 3


@pytest.mark.chaos
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(seed=1, duration_s=40.0), id="one-broker"),
        pytest.param(Plan(seed=1, duration_s=25.0, nodes=3, rate=100.0), id="three-brokers"),
    ],
)
async def test_everything_is_right_in_the_end_whatever_dies_meanwhile(plan, tmp_path, guard, record_property):
    outcome = await run(plan, tmp_path, guard)
    record_property("figures", str(outcome))
    assert outcome.findings == ()
    assert outcome.settled_s < SLOWER_IN_TESTS * SETTLED_S_MAX
