"""The control plane that other tests lean on: what it promises them, shown on the real servers."""

import ssl
from pathlib import Path

import httpx
import pytest

from tests.cluster.control_plane import ControlPlane, KubectlError, MissingBinariesError, assets_directory
from tests.cluster.processes import ProcessError

LISTEN = "0A"
LOOPBACK = "0100007F"


def isvc(name: str) -> str:
    return f"""
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {{name: {name}, namespace: default}}
spec: {{predictor: {{model: {{modelFormat: {{name: sklearn}}, storageUri: "s3://models/iris"}}}}}}
"""


def listening_addresses(pid: int) -> list[str]:
    """Local addresses, in the hexadecimal form of /proc/net, that the process `pid` listens on."""
    sockets = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and f"socket:[{fields[9]}]" in sockets:
                addresses.append(fields[1].split(":")[0])
    return addresses


def test_missing_binaries_are_reported_with_the_way_out(tmp_path):
    with pytest.raises(MissingBinariesError, match="has no kube-apiserver, etcd, kubectl: run `make test-cluster`"):
        assets_directory({"KUBEBUILDER_ASSETS": str(tmp_path)})


@pytest.mark.cluster
def test_both_kinds_are_served_in_their_versions(control_plane):
    served = control_plane.kubectl("api-resources", "--api-group=serving.kserve.io", "--no-headers")
    assert [line.split()[:3] for line in served.splitlines()] == [
        ["inferenceservices", "isvc", "serving.kserve.io/v1beta1"],
        ["llminferenceservices", "llmisvc", "serving.kserve.io/v1alpha2"],
    ]
    assert control_plane.kubectl("get", "llminferenceservices.v1alpha1.serving.kserve.io", "-o", "name") == ""


@pytest.mark.cluster
def test_isvcs_show_the_columns_of_kserve(control_plane):
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=isvc("columns"))
    status = '{"status":{"url":"http://columns.example","conditions":[{"type":"Ready","status":"True"}]}}'
    control_plane.kubectl("patch", "isvc", "columns", "--subresource=status", "--type=merge", "-p", status)
    header, row = control_plane.kubectl("get", "isvc", "columns").splitlines()
    assert header.split() == [
        "NAME",
        "URL",
        "READY",
        "PREV",
        "LATEST",
        "PREVROLLEDOUTREVISION",
        "LATESTREADYREVISION",
        "AGE",
    ]
    assert row.split()[:3] == ["columns", "http://columns.example", "True"]


@pytest.mark.cluster
def test_the_certificate_holds_under_strict_verification(control_plane):
    strict = control_plane.ssl_context()
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    assert httpx.get(f"{control_plane.url}/version", verify=strict).json()["gitVersion"].startswith("v1.")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{control_plane.url}/version", verify=ssl.create_default_context())


@pytest.mark.cluster
def test_a_service_account_is_known_and_has_no_rights_of_its_own(control_plane, tmp_path):
    control_plane.kubectl("create", "serviceaccount", "nobody")
    token = control_plane.service_account_token("default", "nobody")
    kubeconfig = control_plane.write_kubeconfig(tmp_path / "nobody", token)
    who = control_plane.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", kubeconfig=kubeconfig)
    assert who == "system:serviceaccount:default:nobody"
    with pytest.raises(KubectlError, match="Forbidden"):
        control_plane.kubectl("get", "isvc", kubeconfig=kubeconfig)


@pytest.mark.cluster
def test_a_request_without_a_known_token_is_unauthorized(control_plane):
    with control_plane.client("not-the-token") as client:
        assert client.get("/apis/serving.kserve.io/v1beta1/inferenceservices").status_code == 401


@pytest.mark.cluster
def test_a_restart_keeps_address_objects_and_tokens(control_plane):
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=isvc("restarted"))
    control_plane.kubectl("create", "serviceaccount", "lasting")
    token = control_plane.service_account_token("default", "lasting")
    url, (api_server, etcd) = control_plane.url, control_plane.pids
    control_plane.restart_api_server()
    assert control_plane.url == url
    assert control_plane.pids[0] != api_server
    assert control_plane.pids[1] == etcd
    assert (
        control_plane.kubectl("get", "isvc", "restarted", "-o", "name")
        == "inferenceservice.serving.kserve.io/restarted\n"
    )
    with control_plane.client(token) as client:
        assert client.get("/apis/serving.kserve.io/v1beta1/inferenceservices").status_code == 403


@pytest.mark.cluster
def test_a_killed_api_server_refuses_connections_until_it_is_restarted(control_plane):
    control_plane.kill_api_server()
    with control_plane.client() as client, pytest.raises(httpx.ConnectError, match="refused"):
        client.get("/readyz")
    control_plane.restart_api_server()
    with control_plane.client() as client:
        assert client.get("/readyz").status_code == 200


@pytest.mark.cluster
def test_a_paused_api_server_accepts_and_does_not_answer(control_plane):
    with control_plane.client() as client:
        client.get("/readyz").raise_for_status()
        control_plane.pause()
        try:
            with pytest.raises(httpx.ReadTimeout):
                client.get("/readyz", timeout=0.3)
        finally:
            control_plane.resume()
        assert client.get("/readyz").status_code == 200


@pytest.mark.cluster
def test_everything_listens_on_loopback_only(control_plane):
    found = [listening_addresses(pid) for pid in control_plane.pids]
    assert all(found), "both processes listen somewhere"
    assert {address for addresses in found for address in addresses} == {LOOPBACK}


@pytest.mark.cluster
def test_a_flag_of_the_api_server_has_its_effect_and_stop_leaves_nothing(tmp_path):
    plane = ControlPlane(tmp_path, assets_directory(), api_server_flags=["--feature-gates=WatchList=false"])
    plane.start()
    pids = plane.pids
    try:
        query = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        with plane.client() as client:
            answer = client.get("/apis/serving.kserve.io/v1beta1/inferenceservices", params=query)
        assert answer.status_code == 422
        assert "sendInitialEvents" in answer.json()["message"]
    finally:
        plane.stop()
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.cluster
def test_a_start_that_fails_shows_the_log_and_leaves_nothing(tmp_path):
    plane = ControlPlane(tmp_path, assets_directory(), api_server_flags=["--no-such-flag"])
    with pytest.raises(ProcessError, match=r"(?s)kube-apiserver ended with 1.*unknown flag: --no-such-flag"):
        plane.start()
    assert plane.pids == []
