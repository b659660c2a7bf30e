"""The settings that say which registries there are: what they accept, and one clear sentence for what they do not."""

import pytest

from consumer.connections import discovery_settings
from consumer.discovery import DiscoverySettings, Rule
from consumer.settings import ConsumerSettings, RegistrySettings
from shared.errors import SettingsError
from shared.settings import load

URL = "http://mr.example:8080"


@pytest.mark.parametrize(
    "environ",
    [
        {"REGISTRY_URL": URL},
        {"REGISTRY_URL": "https://gw.example/model-registry/a"},
        {"REGISTRY_NAMESPACES": "kubeflow, ml"},
        {"REGISTRY_URL": URL, "REGISTRY_NAMESPACES": "kubeflow"},
        {"REGISTRY_URL": URL, "REGISTRY_ALLOWED_HOSTS": "gw.example,gw.example:8443,10.0.0.1:80"},
        {"REGISTRY_URL": URL, "REGISTRY_ALLOWED_HOSTS": "[fd00::1],[fd00::1]:8443,fd00::1,::1,fd00::1:a1"},
        {"REGISTRY_URL": URL, "REGISTRY_RULES": f"team-*=kubeflow/mr-a {URL}/, *=kubeflow/mr-b"},
        {"REGISTRY_NAMESPACES": "kubeflow", "CLUSTER_DOMAIN": "corp.internal"},
    ],
)
def test_accepted(environ):
    load(RegistrySettings, environ)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {},
            "REGISTRY_URL is not set, nor is REGISTRY_NAMESPACES: name a registry, or namespaces to find one in.",
        ),
        ({"REGISTRY_URL": "registry:8080"}, "REGISTRY_URL must begin with http:// or https:// and a host."),
        (
            {"REGISTRY_URL": "http://u:s3cr3t@x"},
            "REGISTRY_URL must hold no credentials, query or fragment; a token comes by REGISTRY_TOKEN_FILE.",
        ),
        ({"REGISTRY_URL": "http://x:0"}, "REGISTRY_URL has a host or port that is none."),
        (
            {"REGISTRY_URL": URL, "REGISTRY_ALLOWED_HOSTS": "https://gw.example"},
            "REGISTRY_ALLOWED_HOSTS holds 'https://gw.example', which is no lower-case host[:port].",
        ),
        (
            {"REGISTRY_URL": URL, "REGISTRY_ALLOWED_HOSTS": "*.example"},
            "REGISTRY_ALLOWED_HOSTS holds '*.example', which is no lower-case host[:port].",
        ),
        (
            {"REGISTRY_URL": URL, "REGISTRY_ALLOWED_HOSTS": "::1:80"},
            "REGISTRY_ALLOWED_HOSTS holds '::1:80', which can be read in two ways: write [::1:80] or [::1]:80.",
        ),
        (
            {"REGISTRY_URL": URL, "REGISTRY_RULES": "team-a"},
            "REGISTRY_RULES holds 'team-a', which is not PATTERN=REGISTRY [REGISTRY ...].",
        ),
        (
            {"REGISTRY_URL": URL, "REGISTRY_RULES": "team-a="},
            "REGISTRY_RULES holds 'team-a=', which is not PATTERN=REGISTRY [REGISTRY ...].",
        ),
        (
            {"REGISTRY_URL": URL, "REGISTRY_RULES": "team-a=mr-a"},
            "REGISTRY_RULES holds 'mr-a', which is neither a Service's namespace/name nor an address.",
        ),
        (
            {"REGISTRY_URL": URL, "REGISTRY_RULES": "team-a=ftp://x"},
            "REGISTRY_RULES holds an address that must begin with http:// or https:// and a host.",
        ),
    ],
)
def test_refused_with_one_sentence(environ, sentence):
    with pytest.raises(SettingsError) as raised:
        load(RegistrySettings, environ)
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    "host",
    ["GW.example", "gw.example/x", "gw.example:", "gw.example:0", "gw.example:https", "gw.example:99999", "u@x.example",
     "gw.example?x", "gw.example#x", "gw .example", "gw\\example", "[gw.example]", "[fd00::1", "fd00::1]", "[fd00::1]x",
     "fd00::g", ":80", "*"],
)  # fmt: skip
def test_an_allowed_host_that_could_never_match_is_refused(host):
    with pytest.raises(
        SettingsError, match=r"^REGISTRY_ALLOWED_HOSTS holds .*, which is no lower-case host\[:port\]\.$"
    ):
        load(RegistrySettings, {"REGISTRY_URL": URL, "REGISTRY_ALLOWED_HOSTS": host})


def test_what_is_missing_is_named_together_with_everything_else():
    with pytest.raises(SettingsError) as raised:
        load(ConsumerSettings, {})
    named = [line.split()[0] for line in str(raised.value).splitlines()]
    assert {"CLUSTER_NAME", "REGISTRY_URL"} <= set(named)


def test_what_discovery_is_told_is_in_normal_form():
    environ = {
        "CLUSTER_NAME": "prod-a",
        "NATS_URL": "nats://nats:4222",
        "REGISTRY_URL": "HTTP://MR.example:80/a/",
        "REGISTRY_NAMESPACES": "kubeflow,ml",
        "REGISTRY_ALLOWED_HOSTS": "gw.example",
        "REGISTRY_RULES": "team-*=https://GW.example:443/a/ kubeflow/mr-a",
        "CLUSTER_DOMAIN": "corp.internal",
    }
    assert discovery_settings(load(ConsumerSettings, environ)) == DiscoverySettings(
        prefix="modelregistry.kubeflow.org/",
        url="http://mr.example/a",
        namespaces=("kubeflow", "ml"),
        allowed_hosts=("gw.example",),
        rules=(Rule("team-*", ("https://gw.example/a", "kubeflow/mr-a")),),
        cluster_domain="corp.internal",
    )
