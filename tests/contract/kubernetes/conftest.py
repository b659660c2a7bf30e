"""Two servers, one suite: the sandbox always, a real kube-apiserver where tests marked `cluster` run."""

import itertools
import os
from collections.abc import AsyncIterator

import httpx
import pytest

from sandbox.cluster import Settings, serve
from sandbox.cluster.auth import ADMIN, Rule, User
from sandbox.cluster.watch import WatchSettings
from tests.contract.kubernetes.kube_target import Place, Target, until

_ISVC = "inferenceservices.serving.kserve.io"
_LIMITED = User("limited", (Rule(("get", "list", "watch", "patch"), (_ISVC,)),))
_BOOKMARK_INTERVAL_S = 1.0
_numbers = itertools.count()


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.cluster)])
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    if request.param == "real":
        yield await _real(request.getfixturevalue("control_plane"))
        return
    tokens = {"admin-token": ADMIN, "limited-token": _LIMITED}
    settings = Settings(tokens=tokens, watching=WatchSettings(bookmark_interval_s=_BOOKMARK_INTERVAL_S))
    async with serve(settings) as cluster:
        yield Target(
            cluster.url,
            "admin-token",
            "limited-token",
            is_real=False,
            bookmark_interval_s=_BOOKMARK_INTERVAL_S,
            restart=cluster.restart,
            expire_history=cluster.expire_history,
        )


async def _real(plane) -> Target:
    target = Target(
        plane.url,
        plane.admin_token,
        "",
        is_real=True,
        bookmark_interval_s=60.0,
        restart=plane.restart_api_server,
        ca_file=str(plane.ca_file),
    )
    async with target.client() as client:
        target.limited_token = await _limited_account(client)
    return target


async def _limited_account(client: httpx.AsyncClient) -> str:
    """A ServiceAccount with the same rights as `_LIMITED`; its token."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {
        "apiGroups": ["serving.kserve.io"],
        "resources": ["inferenceservices"],
        "verbs": list(_LIMITED.rules[0].verbs),
    }
    subject = {"kind": "ServiceAccount", "name": "limited", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    for path, body in (
        (accounts, {"metadata": {"name": "limited"}}),
        (f"{rbac}/clusterroles", {"metadata": {"name": "limited"}, "rules": [rule]}),
        (
            f"{rbac}/clusterrolebindings",
            {"metadata": {"name": "limited"}, "roleRef": reference, "subjects": [subject]},
        ),
    ):
        response = await client.post(path, json=body)
        assert response.status_code in {201, 409}, response.text
    response = await client.post(f"{accounts}/limited/token", json={"spec": {"expirationSeconds": 3600}})
    token = str(response.json()["status"]["token"])

    async def allowed() -> bool:
        # RBAC is read from a cache: a new binding takes a moment.
        answer = await client.get(
            "/apis/serving.kserve.io/v1beta1/inferenceservices?limit=1", headers={"Authorization": f"Bearer {token}"}
        )
        return answer.status_code == 200

    await until(allowed, "the limited account may list")
    return token


@pytest.fixture
async def client(target: Target) -> AsyncIterator[httpx.AsyncClient]:
    async with target.client() as client:
        yield client


@pytest.fixture
async def place(client: httpx.AsyncClient) -> Place:
    """A namespace of the test's own: nothing is ever shared between tests."""
    name = f"t{os.getpid()}-{next(_numbers)}"
    response = await client.post("/api/v1/namespaces", json={"metadata": {"name": name}})
    assert response.status_code == 201, response.text
    return Place(client, name)
