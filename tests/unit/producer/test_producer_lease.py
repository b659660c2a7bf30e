"""R37: what is done about a Lease, what is written into it, and who takes part in an election."""

from typing import Any

import httpx
import pytest

from producer.leader import Alone, Elector, leadership
from producer.lease import Create, Record, Renew, Sighting, Take, Wait, claimed, decide, released, sighted
from producer.settings import LeaseSettings, ProducerSettings
from shared.cluster import ClusterSettings
from shared.errors import SettingsError
from shared.naming import NamingSettings

TIME = "2026-11-30T17:32:15.820049Z"


def record(holder="other", duration_s=15, renewed="t", transitions=3):
    return Record(holder, duration_s, renewed, transitions)


# --- decisions ---


@pytest.mark.parametrize(
    ("seen", "now", "wanted"),
    [
        (None, 0, Create()),
        (Sighting(record("me"), 0), 99, Renew()),
        (Sighting(record(""), 0), 0, Take()),
        (Sighting(record(), 10), 10, Wait("other", 25)),
        (Sighting(record(), 10), 24.9, Wait("other", 25)),
        (Sighting(record(), 10), 25, Take()),
        (Sighting(record(duration_s=60), 10), 69, Wait("other", 70)),
        (Sighting(record(duration_s=0), 10), 29, Wait("other", 30)),
    ],
)
def test_R37_what_is_done_about_a_lease(seen, now, wanted):
    assert decide(seen, "me", now, 20) == wanted


def test_R37_only_a_change_counts_as_a_sign_of_life():
    first = sighted(None, record(), 10)
    assert sighted(first, record(), 12) == first
    assert sighted(first, record(renewed="u"), 12).at == 12


def test_R37_a_new_lease_has_all_its_times():
    lease = claimed({"metadata": {"name": "l"}}, Create(), "me", 15, TIME)
    assert lease == {
        "metadata": {"name": "l"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "renewTime": TIME,
            "acquireTime": TIME,
            "leaseTransitions": 0,
        },
    }


def test_R37_a_lease_that_is_taken_counts_the_transition_and_keeps_what_others_wrote():
    before = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"holderIdentity": "x", "leaseTransitions": 3, "strategy": "s"},
    }
    after = claimed(before, Take(), "me", 15, TIME)
    assert after["metadata"] == before["metadata"]
    assert (after["spec"]["strategy"], after["spec"]["leaseTransitions"]) == ("s", 4)
    assert (after["spec"]["holderIdentity"], after["spec"]["acquireTime"]) == ("me", TIME)


def test_R37_a_renewal_keeps_transitions_and_acquire_time():
    spec = {"holderIdentity": "me", "leaseTransitions": 3, "acquireTime": "then", "renewTime": "then"}
    after = claimed({"spec": spec}, Renew(), "me", 15, TIME)["spec"]
    assert after == spec | {"renewTime": TIME, "leaseDurationSeconds": 15}


def test_R37_a_released_lease_has_no_holder_and_keeps_its_transitions():
    after = released({"spec": {"holderIdentity": "me", "leaseTransitions": 3}}, TIME)
    assert Record.of(after) == Record("", 1, TIME, 3)


@pytest.mark.parametrize("lease", [{}, {"spec": None}, {"spec": {"holderIdentity": None, "leaseTransitions": None}}])
def test_a_lease_that_says_nothing_is_held_by_nobody(lease):
    assert Record.of(lease) == Record("", 0, "", 0)


# --- settings ---


def settings(**lease: Any) -> ProducerSettings:
    cluster = lease.pop("cluster", ClusterSettings())
    return ProducerSettings(naming=NamingSettings(cluster_name="c"), cluster=cluster, lease=LeaseSettings(**lease))


@pytest.mark.parametrize(
    ("given", "environ", "elected"),
    [
        ({}, {}, False),
        ({"lease_namespace": "ns"}, {}, True),
        ({"lease_namespace": "ns"}, {"KUBERNETES_SERVICE_HOST": "x"}, True),
        ({"leader_election": False, "lease_namespace": "ns"}, {"KUBERNETES_SERVICE_HOST": "x"}, False),
        ({"cluster": ClusterSettings(kubeconfig="k")}, {"KUBERNETES_SERVICE_HOST": "x"}, False),
    ],
)
async def test_a_leader_is_elected_in_pods_and_where_it_is_wanted(given, environ, elected):
    async with httpx.AsyncClient() as http:
        assert isinstance(leadership(settings(**given), http, environ), Elector if elected else Alone)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({}, "this is no pod: set LEASE_NAMESPACE"),
        ({"KUBERNETES_SERVICE_HOST": "x"}, "cannot be read .*LEASE_NAMESPACE"),
    ],
)
async def test_without_a_namespace_for_the_lease_the_setting_is_named(environ, sentence, tmp_path, monkeypatch):
    monkeypatch.setattr("producer.leader.SERVICE_ACCOUNT", tmp_path)
    async with httpx.AsyncClient() as http:
        with pytest.raises(SettingsError, match=sentence):
            leadership(settings(leader_election=True), http, environ)


async def test_in_a_pod_the_lease_is_in_its_own_namespace_under_the_pods_name(tmp_path, monkeypatch):
    (tmp_path / "namespace").write_text("mine\n")
    monkeypatch.setattr("producer.leader.SERVICE_ACCOUNT", tmp_path)
    async with httpx.AsyncClient() as http:
        elector = leadership(settings(pod_name="producer-0"), http, {"KUBERNETES_SERVICE_HOST": "x"})
    assert isinstance(elector, Elector)
    assert elector.readiness() == "the Lease mine/isvc-sync-producer cannot be observed yet"
    assert elector.identity == "producer-0"


async def test_without_a_pods_name_two_processes_have_two_identities():
    async with httpx.AsyncClient() as http:
        first, second = (leadership(settings(lease_namespace="ns"), http, {}) for _ in range(2))
    assert isinstance(first, Elector)
    assert isinstance(second, Elector)
    assert first.identity != second.identity


@pytest.mark.parametrize(
    "wrong", [{"lease_renew_deadline_s": 15.0}, {"lease_retry_period_s": 5.1}, {"lease_duration_s": 10}]
)
async def test_durations_that_contradict_each_other_are_refused(wrong):
    async with httpx.AsyncClient() as http:
        with pytest.raises(SettingsError, match="LEASE_RENEW_DEADLINE_S must be"):
            leadership(settings(lease_namespace="ns", **wrong), http, {})
