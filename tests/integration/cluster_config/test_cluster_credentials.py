"""Tokens, passwords and exec plugins: from a kubeconfig, or a pod's service account, to an authenticated request."""

import asyncio
import base64
import os
import shutil
import sys
from pathlib import Path

import pytest

from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import SettingsError, UnauthorizedError
from tests.integration.cluster_config.api_servers import get

# --- tokens ---------------------------------------------------------------------------------------------------------


async def test_the_token_and_our_name_are_sent(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Bearer abc"]
    assert api.requests[0]["User-Agent"].startswith("isvc-sync/")
    assert api.requests[0]["User-Agent"].endswith(" (test)")


async def test_user_and_password_are_sent(api, kubeconfig):
    kubeconfig.write(api.url, {"username": "me", "password": "pw"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Basic " + base64.b64encode(b"me:pw").decode()]


async def test_the_context_can_be_chosen(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client(kube_context="nobody") as http:
        await get(http)
    assert api.tokens() == [None]


async def test_a_rotated_token_file_is_used_by_the_next_request(api, kubeconfig, tmp_path):
    (tmp_path / "token").write_text("first")
    kubeconfig.write(api.url, {"tokenFile": "token"})  # relative to the kubeconfig
    async with kubeconfig.client() as http:
        await get(http)
        (tmp_path / "token").write_text("second, longer")
        await get(http)
    assert api.tokens() == ["Bearer first", "Bearer second, longer"]


async def test_a_token_file_wins_over_a_token_as_it_does_for_kubectl(api, kubeconfig, tmp_path):
    (tmp_path / "token").write_text("file")
    kubeconfig.write(api.url, {"tokenFile": "token", "token": "inline"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Bearer file"]


async def test_after_a_401_the_token_is_read_again_and_the_request_repeated_once(api, kubeconfig, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    os.utime(token, ns=(1, 1))
    kubeconfig.write(api.url, {"tokenFile": "token"})
    async with kubeconfig.client() as http:
        await get(http)
        token.write_text("new")
        os.utime(token, ns=(1, 1))  # a rotation that time and size do not show
        api.accepted = {"Bearer new"}
        await get(http)
    assert api.tokens() == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_401_for_a_token_that_did_not_change_is_not_repeated(api, kubeconfig):
    kubeconfig.write(api.url, {"token": "abc"})
    api.accepted = set()
    async with kubeconfig.client() as http:
        with pytest.raises(UnauthorizedError):
            await get(http)
    assert api.tokens() == ["Bearer abc"]


async def test_a_pod_uses_its_service_account_and_follows_its_rotation(start, tmp_path, authority):
    api = start(authority.server_context())
    (tmp_path / "token").write_text("pod-1")
    shutil.copy(authority.ca, tmp_path / "ca.crt")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    config = load_cluster(ClusterSettings(), environ, service_account=tmp_path)
    async with client(config, use="watch", role="test") as http:
        await get(http)
        (tmp_path / "token").write_text("pod-22")
        await get(http)
    assert api.tokens() == ["Bearer pod-1", "Bearer pod-22"]


def test_a_pod_without_a_service_account_is_told(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(SettingsError, match="no usable service account"):
        load_cluster(ClusterSettings(), environ, service_account=tmp_path)


# --- exec plugins ---------------------------------------------------------------------------------------------------


class Plugin:
    """An exec plugin: prints token-1, token-2, ... and counts its runs in a file."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        self.script = folder / "plugin.py"
        self.expires("2999-01-01T00:00:00Z")

    def expires(self, when: str) -> None:
        self.script.write_text(
            "import json, pathlib\n"
            f"runs = pathlib.Path({str(self._runs)!r})\n"
            "count = int(runs.read_text()) + 1 if runs.exists() else 1\n"
            "runs.write_text(str(count))\n"
            "status = {'token': f'token-{count}', 'expirationTimestamp': " + repr(when) + "}\n"
            "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
            " 'status': status}))\n"
        )

    def breaks(self) -> None:
        self.script.write_text("import sys; sys.exit('the vault is sealed')\n")

    @property
    def runs(self) -> int:
        return int(self._runs.read_text())

    @property
    def user(self) -> dict[str, object]:
        return {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [str(self.script)],
                "interactiveMode": "Never",
            }
        }


@pytest.fixture
def plugin(tmp_path):
    return Plugin(tmp_path)


async def test_an_exec_plugin_gives_the_token_and_is_run_once_while_it_is_valid(api, kubeconfig, plugin):
    kubeconfig.write(api.url, plugin.user)
    before = kubeconfig.path.read_bytes()
    async with kubeconfig.client() as http:
        await get(http)
        await get(http)
    assert api.tokens() == ["Bearer token-1"] * 2
    assert plugin.runs == 1
    assert kubeconfig.path.read_bytes() == before


async def test_an_exec_plugin_is_run_again_when_its_token_has_expired(api, kubeconfig, plugin):
    plugin.expires("2020-01-01T00:00:00Z")
    kubeconfig.write(api.url, plugin.user)
    async with kubeconfig.client() as http:
        plugin.expires("2999-01-01T00:00:00Z")
        await get(http)
        await get(http)
    first, second = api.tokens()
    assert first == second == f"Bearer token-{plugin.runs}"
    assert plugin.runs > 1


async def test_a_refused_token_of_an_exec_plugin_is_replaced_once_for_all_who_wait(api, kubeconfig, plugin):
    kubeconfig.write(api.url, plugin.user)
    async with kubeconfig.client() as http:
        api.accepted = {"Bearer token-2"}
        await asyncio.gather(*(get(http) for _ in range(8)))
    assert plugin.runs == 2
    assert api.tokens().count("Bearer token-2") >= 8


async def test_an_exec_plugin_that_fails_later_is_an_unauthorized_error_that_names_it(api, kubeconfig, plugin):
    kubeconfig.write(api.url, plugin.user)
    async with kubeconfig.client() as http:
        plugin.breaks()
        api.accepted = set()
        with pytest.raises(UnauthorizedError, match=r"the plugin .* gave no credentials"):
            await get(http)


def test_an_exec_plugin_that_fails_at_start_is_told(api, kubeconfig, plugin):
    plugin.breaks()
    kubeconfig.write(api.url, plugin.user)
    with pytest.raises(SettingsError, match=r"KUBECONFIG .* the plugin .* gave no credentials"):
        load_cluster(kubeconfig.settings(), {})
