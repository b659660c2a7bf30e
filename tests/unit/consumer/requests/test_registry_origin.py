"""The registry's address: what may be one, and that nothing is sent to any other."""

import httpx
import pytest

from consumer.requests.registry_client import RegistryAccess, registry_http
from shared.errors import PermanentError, TransientError
from tests.unit.consumer.requests.registry_script import ASK, BASE, FOUND, Script, ok, plenty


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example:8080/x",
        "https://registry.example:8080/x",
        "http://registry.example/x",
        "http://registry.example:8080@evil.example/x",
    ],
)
async def test_request_to_another_origin_never_leaves_and_shows_no_token(tmp_path, target):
    token = tmp_path / "token"
    token.write_text("s3cr3t")
    script = Script()
    http = registry_http(RegistryAccess(base_url=BASE, token_file=token))
    http._transport = httpx.MockTransport(script)
    with pytest.raises(PermanentError) as raised:
        await http.get(target)
    assert script.seen == []
    assert "s3cr3t" not in str(raised.value)


async def test_redirect_is_not_followed():
    script = Script(httpx.Response(307, headers={"Location": "/elsewhere"}))
    with pytest.raises(TransientError, match="redirects are not followed"):
        await script.client().call(ASK, plenty)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://mr.ns.svc:8080", "http://mr.ns.svc:8080/api/model_registry/v1/inference_service"),
        ("http://mr.ns.svc/", "http://mr.ns.svc/api/model_registry/v1/inference_service"),
        (
            "https://gw.example/model-registry/a",
            "https://gw.example/model-registry/a/api/model_registry/v1/inference_service",
        ),
        ("https://gw.example:8443/a/", "https://gw.example:8443/a/api/model_registry/v1/inference_service"),
        ("http://[::1]:80", "http://[::1]/api/model_registry/v1/inference_service"),
    ],
)
async def test_base_may_have_a_port_and_a_path(base, url):
    script = Script(ok(FOUND))
    await script.client(RegistryAccess(base_url=base, api_version="v1")).call(ASK, plenty)
    assert str(script.seen[0].url.copy_with(query=None)) == url


@pytest.mark.parametrize(
    "base",
    [
        "",
        "registry:8080",
        "ftp://registry",
        "http://",
        "http://user:s3cr3t@registry",
        "http://registry?x=s3cr3t",
        "http://registry#a",
        "http://user:s3cr3t/x@registry",
    ],
)
def test_address_that_is_none_is_refused_without_showing_secrets(base):
    with pytest.raises(ValueError, match="registry's address") as raised:
        RegistryAccess(base_url=base)
    assert "s3cr3t" not in str(raised.value)
