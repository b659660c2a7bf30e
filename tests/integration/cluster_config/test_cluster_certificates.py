"""The certificates of a kubeconfig, over real TLS: whom we trust, and as whom we come."""

import base64

import pytest

from shared.cluster import load_cluster
from shared.errors import SettingsError, UnreachableError
from tests.integration.cluster_config.api_servers import get


async def test_the_clusters_ca_is_trusted(start, kubeconfig, authority):
    api = start(authority.server_context())
    kubeconfig.write(api.url, {"token": "abc"}, **{"certificate-authority-data": authority.data("ca.crt")})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.tokens() == ["Bearer abc"]


async def test_a_server_of_another_ca_is_not_talked_to(start, kubeconfig, authority):
    api = start(authority.server_context())
    kubeconfig.write(api.url, {"token": "abc"})
    async with kubeconfig.client() as http:
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await get(http)
    assert api.requests == []


async def test_verification_is_off_only_where_the_kubeconfig_says_so(start, kubeconfig, authority):
    api = start(authority.server_context("name"))
    kubeconfig.write(api.url, {"token": "abc"}, **{"insecure-skip-tls-verify": True})
    async with kubeconfig.client() as http:
        await get(http)


async def test_a_client_certificate_is_shown(start, kubeconfig, authority):
    api = start(authority.server_context(ask_client=True))
    certificate = {
        "client-certificate-data": authority.data("client.crt"),
        "client-key-data": authority.data("client.key"),
    }
    kubeconfig.write(api.url, certificate, **{"certificate-authority-data": authority.data("ca.crt")})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.peers == ["client"]
    assert api.tokens() == [None]


async def test_the_name_in_the_kubeconfig_is_asked_for_and_verified(start, kubeconfig, authority):
    api = start(authority.server_context("name"))
    trust = {"certificate-authority-data": authority.data("ca.crt")}
    kubeconfig.write(api.url, {"token": "abc"}, **trust, **{"tls-server-name": "kube.test"})
    async with kubeconfig.client() as http:
        await get(http)
    assert api.server_names == ["kube.test"]
    kubeconfig.write(api.url, {"token": "abc"}, **trust)
    async with kubeconfig.client() as http:
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await get(http)


def test_a_broken_certificate_is_told(kubeconfig):
    broken = base64.b64encode(b"no certificate").decode()
    kubeconfig.write("https://127.0.0.1:1", {"token": "abc"}, **{"certificate-authority-data": broken})
    with pytest.raises(SettingsError, match="certificates for https://"):
        load_cluster(kubeconfig.settings(), {})
