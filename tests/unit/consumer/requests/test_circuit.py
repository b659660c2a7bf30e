"""The circuit: when nothing is sent, who probes, and how long it stays open, as a table; and a model-based property."""

import random

import pytest

from consumer.requests.circuit import (
    CIRCUIT_STATES,
    FAILURES_MAX,
    OPEN_S_MAX,
    OPEN_S_MIN,
    PROBE_WAIT_S,
    Admission,
    Bearing,
    Closed,
    HalfOpen,
    Open,
    admit,
    name_of,
    settle,
)

WELL, ILL, DEAD, NOTHING = Bearing.WELL, Bearing.ILL, Bearing.DEAD, Bearing.NOTHING
ALMOST = Closed(FAILURES_MAX - 1)
OPEN = Open(since=100.0, until=101.0)


@pytest.mark.parametrize(
    ("circuit", "now", "admission"),
    [
        pytest.param(Closed(), 100.0, Admission(Closed()), id="closed"),
        pytest.param(ALMOST, 100.0, Admission(ALMOST), id="closed, some failures"),
        pytest.param(OPEN, 100.25, Admission(OPEN, wait_s=0.75), id="open: the rest of its time"),
        pytest.param(OPEN, 101.0, Admission(HalfOpen(100.0), is_probe=True), id="its time has come: the probe"),
        pytest.param(HalfOpen(100.0), 101.1, Admission(HalfOpen(100.0), wait_s=PROBE_WAIT_S), id="one probe only"),
    ],
)
def test_who_may_leave(circuit, now, admission):
    assert admit(circuit, now) == admission


@pytest.mark.parametrize(
    ("circuit", "bearing", "is_probe", "after"),
    [
        pytest.param(Closed(), ILL, False, Closed(1), id="a failure is counted"),
        pytest.param(ALMOST, ILL, False, Open(200.0, 200.0 + OPEN_S_MIN), id="the last one opens"),
        pytest.param(Closed(), DEAD, False, Open(200.0, 200.0 + OPEN_S_MIN), id="one without any life opens at once"),
        pytest.param(ALMOST, WELL, False, Closed(), id="a success clears the count"),
        pytest.param(ALMOST, NOTHING, False, ALMOST, id="what says nothing leaves the count"),
        pytest.param(OPEN, ILL, False, OPEN, id="late failures prolong nothing"),
        pytest.param(OPEN, WELL, False, Closed(), id="a late success closes"),
        pytest.param(OPEN, NOTHING, False, OPEN, id="a late nothing"),
        pytest.param(HalfOpen(100.0), WELL, True, Closed(), id="the probe is well"),
        pytest.param(HalfOpen(100.0), WELL, False, Closed(), id="a late success while it probes"),
        pytest.param(HalfOpen(100.0), ILL, False, HalfOpen(100.0), id="a late failure while it probes"),
        pytest.param(HalfOpen(100.0), NOTHING, False, HalfOpen(100.0), id="a late nothing while it probes"),
        pytest.param(HalfOpen(199.0), ILL, True, Open(199.0, 200.0 + OPEN_S_MIN), id="probe ill, soon: the least"),
        pytest.param(HalfOpen(180.0), ILL, True, Open(180.0, 205.0), id="probe ill after 20 s: a quarter more"),
        pytest.param(HalfOpen(-900.0), ILL, True, Open(-900.0, 200.0 + OPEN_S_MAX), id="probe ill, late: the most"),
        pytest.param(HalfOpen(180.0), DEAD, True, Open(180.0, 205.0), id="probe dead"),
        pytest.param(HalfOpen(100.0), DEAD, False, HalfOpen(100.0), id="a late death while it probes"),
        pytest.param(HalfOpen(100.0), NOTHING, True, Open(100.0, 200.0), id="a lost probe makes room at once"),
    ],
)
def test_what_the_end_of_a_request_changes(circuit, bearing, is_probe, after):
    assert settle(circuit, bearing, 200.0, is_probe=is_probe) == after


def test_each_state_has_the_name_that_the_gauge_shows():
    assert {name_of(circuit) for circuit in (Closed(), OPEN, HalfOpen(0.0))} == set(CIRCUIT_STATES)


@pytest.mark.parametrize("away_s", [3.0, 20.0, 600.0])
def test_a_return_is_noticed_within_a_quarter_of_the_outage(away_s):
    circuit, now, probes = Closed(), 0.0, 0
    while now < away_s or circuit != Closed():
        admission = admit(circuit, now)
        circuit = admission.circuit
        if admission.wait_s:
            now += admission.wait_s
            continue
        probes += admission.is_probe
        circuit = settle(circuit, ILL if now < away_s else WELL, now, is_probe=admission.is_probe)
    assert now - away_s <= min(OPEN_S_MAX, max(OPEN_S_MIN, 0.25 * away_s)) + 1e-9
    assert probes < 40


@pytest.mark.parametrize("seed", range(50))
def test_however_requests_end_there_is_one_probe_at_a_time_and_never_a_dead_end(seed):
    chance = random.Random(seed)
    circuit, now, under_way, probes = Closed(), 0.0, [], 0
    for _ in range(300):
        now += chance.random()
        if under_way and chance.random() < 0.5:
            is_probe = under_way.pop(chance.randrange(len(under_way)))
            circuit = settle(circuit, chance.choice([WELL, ILL, ILL, ILL, DEAD, NOTHING]), now, is_probe=is_probe)
        admission = admit(circuit, now)
        circuit = admission.circuit
        if not admission.wait_s:
            under_way.append(admission.is_probe)
            probes += admission.is_probe
        if isinstance(circuit, HalfOpen):
            assert any(under_way), "it waits for a probe that does not exist"
    assert probes
