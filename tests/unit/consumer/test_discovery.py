"""Which registry is an object's: the table. And what may never be reached, whoever labels what."""

import re

import pytest
from msgspec.structs import replace

from consumer.addresses import normal, origin
from consumer.discovery import (
    Asked,
    DiscoverySettings,
    Located,
    Refused,
    Rule,
    Service,
    Unsettled,
    address_of,
    asked_of,
    known_registries,
    registry_named,
    resolve,
)
from tests.unit.consumer.worlds import PREFIX, an_object

REGISTRY = {"component": "model-registry"}
KUBEFLOW = "routing.kubeflow.org/external-address-rest"
OPENDATAHUB = "routing.opendatahub.io/external-address-rest"


def service(name, namespace="kubeflow", *, labels=REGISTRY, ports=None, **annotations):
    return Service(namespace, name, labels, annotations, {"http-api": 8080} if ports is None else ports)


A, B = service("mr-a"), service("mr-b")
FAR = service("mr-a", "ml")
SECURE = service("mr-s", ports={"https-api": 8443})
OUTSIDE = replace(service("mr-x"), annotations={KUBEFLOW: "gw.example:8443/model-registry/x"})
IN_CLEAR = replace(service("mr-c"), annotations={KUBEFLOW: "http://gw.example/mr"})
PLAIN = service("other", labels={})
DATABASE = service("db", ports={"mysql": 3306})

URL = "http://mr.example:8080"
ONLY_URL = DiscoverySettings(prefix=PREFIX, url=URL)
ONE = DiscoverySettings(prefix=PREFIX, namespaces=("kubeflow",))
TWO = replace(ONE, namespaces=("kubeflow", "ml"))
BOTH = replace(ONE, url=URL)
AT_A = Located("kubeflow/mr-a", "http://mr-a.kubeflow.svc.cluster.local:8080")
AT_B = Located("kubeflow/mr-b", "http://mr-b.kubeflow.svc.cluster.local:8080")
AT_FAR = Located("ml/mr-a", "http://mr-a.ml.svc.cluster.local:8080")
AT_SECURE = Located("kubeflow/mr-s", "https://mr-s.kubeflow.svc.cluster.local:8443")
AT_OUTSIDE = Located("kubeflow/mr-x", "https://gw.example:8443/model-registry/x")
AT_URL = Located(URL, URL)


@pytest.mark.parametrize(
    ("asked", "services", "settings", "found"),
    [
        # nothing is asked for
        pytest.param(Asked(), [], ONLY_URL, AT_URL, id="REGISTRY_URL"),
        pytest.param(Asked(), [A], BOTH, AT_URL, id="REGISTRY_URL before discovery"),
        pytest.param(Asked(), [A, PLAIN], ONE, AT_A, id="the only labelled Service"),
        pytest.param(Asked(), [SECURE], ONE, AT_SECURE, id="D20: a Service with https-api only"),
        pytest.param(Asked(), [OUTSIDE], ONE, AT_OUTSIDE, id="an external address with port and path"),
        pytest.param(Asked(), [FAR], TWO, AT_FAR, id="the only one in several namespaces"),
        # labels
        pytest.param(Asked(name="mr-b"), [A, B], ONE, AT_B, id="by name"),
        pytest.param(Asked(name="mr-b"), [A, B], BOTH, AT_B, id="a name before REGISTRY_URL"),
        pytest.param(
            Asked(name="other"), [A, PLAIN], ONE,
            Located("kubeflow/other", "http://other.kubeflow.svc.cluster.local:8080"), id="by name, without the label",
        ),
        pytest.param(Asked(namespace="ml"), [A, B, FAR], TWO, AT_FAR, id="the only one in the namespace"),
        pytest.param(Asked(namespace="ml", name="mr-a"), [A, FAR], TWO, AT_FAR, id="by namespace and name"),
        pytest.param(Asked(namespace="x", name="y"), [], ONLY_URL, AT_URL, id="labels without discovery"),
        # the annotation
        pytest.param(Asked(url=URL + "/", name="mr-a"), [A], BOTH, AT_URL, id="annotation before labels"),
        pytest.param(Asked(url=URL + "/a/b"), [], ONLY_URL, Located(URL + "/a/b", URL + "/a/b"), id="another path"),
        pytest.param(Asked(url=AT_A.address), [A, B], ONE, AT_A, id="an address of a Service has the Service's name"),
        pytest.param(Asked(url="HTTPS://GW.example:8443/model-registry/x/"), [OUTSIDE], ONE, AT_OUTSIDE, id="any form"),
        pytest.param(
            Asked(url="https://far.example/x"), [], replace(ONLY_URL, allowed_hosts=("far.example",)),
            Located("https://far.example/x", "https://far.example/x"), id="a further host",
        ),
        pytest.param(
            Asked(url="https://far.example:444"), [], replace(ONLY_URL, allowed_hosts=("far.example:444",)),
            Located("https://far.example:444", "https://far.example:444"), id="a further host with its port",
        ),
        pytest.param(
            Asked(url="https://[fd00::1]:8443"), [], replace(ONLY_URL, allowed_hosts=("[fd00::1]:8443",)),
            Located("https://[fd00::1]:8443", "https://[fd00::1]:8443"), id="an IPv6 address with its port",
        ),
        pytest.param(
            Asked(url="https://[fd00:0::1]"), [], replace(ONLY_URL, allowed_hosts=("[fd00::1]",)),
            Located("https://[fd00:0::1]", "https://[fd00:0::1]"), id="an IPv6 address, however it is written",
        ),
        pytest.param(
            Asked(url="https://[fd00::1]"), [], replace(ONLY_URL, allowed_hosts=("fd00::1",)),
            Located("https://[fd00::1]", "https://[fd00::1]"), id="an IPv6 address that can only be read in one way",
        ),
        # labelled, and without an address
        pytest.param(Asked(), [A, DATABASE], ONE, AT_A, id="a labelled Service without a usable port does not count"),
        pytest.param(Asked(), [IN_CLEAR, A], ONE, AT_A, id="nor one whose external address is unusable"),
        # rules
        pytest.param(
            Asked(), [A, B], replace(ONE, rules=(Rule("team-*", ("kubeflow/mr-b",)),)), AT_B, id="a rule leaves one",
        ),
        pytest.param(
            Asked(), [A, B], replace(ONE, rules=(Rule("team-*", (AT_B.address,)),)), AT_B, id="a rule by address",
        ),
        pytest.param(
            Asked(name="mr-a"), [A, B], replace(ONE, rules=(Rule("other", ("kubeflow/mr-b",)),)), AT_A,
            id="a rule for others",
        ),
        pytest.param(
            Asked(name="mr-a"), [A, B],
            replace(ONE, rules=(Rule("team-a", ("kubeflow/mr-a",)), Rule("*", ("kubeflow/mr-b",)))), AT_A,
            id="the first rule counts",
        ),
        pytest.param(
            Asked(), [A], replace(BOTH, url=AT_A.address, rules=(Rule("*", ("kubeflow/mr-a",)),)), AT_A,
            id="REGISTRY_URL is a Service's",
        ),
    ],
)  # fmt: skip
def test_found(asked, services, settings, found):
    assert resolve("team-a", asked, services, settings) == found


@pytest.mark.parametrize(
    ("asked", "services", "settings", "why"),
    [
        pytest.param(Asked(url="http://collector.example"), [A], BOTH,
                     "collector.example:80.*REGISTRY_URL.*REGISTRY_NAMESPACES.*REGISTRY_ALLOWED_HOSTS", id="D16: url"),
        pytest.param(Asked(url="https://mr.example:8080"), [], ONLY_URL, "not allowed", id="another scheme"),
        pytest.param(Asked(url="http://mr.example"), [], ONLY_URL, "not allowed", id="another port"),
        pytest.param(Asked(url="http://mr.example:8080.evil.example"), [], ONLY_URL, "port that is none", id="long"),
        pytest.param(Asked(url="http://mr.example@evil.example:8080"), [], ONLY_URL, "no credentials", id="a user"),
        pytest.param(Asked(url="http://evil.example\\@mr.example:8080"), [], ONLY_URL, "backslash", id="a backslash"),
        pytest.param(Asked(url="http://mr.example:8080?x"), [], ONLY_URL, "no credentials, query", id="a query"),
        pytest.param(Asked(url="ftp://mr.example:8080"), [], ONLY_URL, "http:// or https://", id="ftp"),
        pytest.param(Asked(url="mr.example:8080"), [], ONLY_URL, "http:// or https://", id="no scheme"),
        pytest.param(Asked(url="http://far.example:81"), [], replace(ONLY_URL, allowed_hosts=("far.example:80",)),
                     "not allowed", id="a further host, another port"),
        pytest.param(Asked(url="https://[fd00::1]:8444"), [], replace(ONLY_URL, allowed_hosts=("[fd00::1]:8443",)),
                     "not allowed", id="an IPv6 address, another port"),
        pytest.param(Asked(url="https://[fd00::1]"), [], replace(ONLY_URL, allowed_hosts=("fd00::1:8443",)),
                     "not allowed", id="an IPv6 address that can be read in two ways"),
        pytest.param(Asked(url="https://[fd00::2]"), [], replace(ONLY_URL, allowed_hosts=("[fd00::1]",)),
                     "not allowed", id="another IPv6 address"),
        pytest.param(Asked(url="http://xfar.example"), [], replace(ONLY_URL, allowed_hosts=("far.example",)),
                     "not allowed", id="a host that ends alike"),
        pytest.param(Asked(url="http://other-mr.kubeflow.svc.cluster.local:8080"), [A], ONE, "not allowed", id="none"),
        pytest.param(Asked(url="http://db.kubeflow.svc.cluster.local:3306"), [DATABASE], ONE, "not allowed",
                     id="a Service that is no registry"),
        pytest.param(Asked(namespace="mine"), [A], ONE, "namespace=mine is none of REGISTRY_NAMESPACES",
                     id="D16: a namespace of the user's own"),
        pytest.param(Asked(namespace="mine", name="mr-a"), [A], BOTH, "REGISTRY_NAMESPACES", id="and a name there"),
        pytest.param(Asked(name="mr-a"), [A, B], replace(ONE, rules=(Rule("team-*", ("kubeflow/mr-b",)),)),
                     "registry kubeflow/mr-a .* namespace team-a by REGISTRY_RULES", id="a rule against a name"),
        pytest.param(Asked(), [A], replace(ONE, rules=(Rule("*", ("kubeflow/mr-b",)),)), "REGISTRY_RULES",
                     id="a rule against the only one"),
        pytest.param(Asked(), [DATABASE, A], replace(ONE, rules=(Rule("*", ("kubeflow/mr-b",)),)), "REGISTRY_RULES",
                     id="a rule against the only one with an address"),
        pytest.param(Asked(), [], replace(ONLY_URL, rules=(Rule("*", ("kubeflow/mr-b",)),)), "REGISTRY_RULES",
                     id="a rule against REGISTRY_URL"),
        pytest.param(Asked(url=URL), [], replace(ONLY_URL, rules=(Rule("*", ("kubeflow/mr-b",)),)), "REGISTRY_RULES",
                     id="a rule against the annotation"),
    ],
)  # fmt: skip
def test_refused_and_the_setting_is_named(asked, services, settings, why):
    found = resolve("team-a", asked, services, settings)
    assert isinstance(found, Refused)
    assert re.search(why, found.reason), found.reason


@pytest.mark.parametrize(
    ("asked", "services", "settings", "why"),
    [
        pytest.param(Asked(), [], ONE, "kubeflow.*no Service there is labelled component=model-registry", id="none"),
        pytest.param(Asked(), [PLAIN], ONE, "no Service there is labelled", id="none that is labelled"),
        pytest.param(Asked(), [A, B], ONE, r"several .* \(kubeflow/mr-a, kubeflow/mr-b\); label .*name", id="two"),
        pytest.param(Asked(), [A, FAR], TWO, "several registries", id="one in each of two namespaces"),
        pytest.param(Asked(), [A, B, DATABASE], ONE, r"\(kubeflow/mr-a, kubeflow/mr-b\)", id="two that have addresses"),
        pytest.param(Asked(name="mr-c"), [A], ONE, "name=mr-c: there is no such Service", id="no such name"),
        pytest.param(Asked(name="mr-a"), [A, FAR], TWO, "several Services: label .*namespace", id="a name twice"),
        pytest.param(Asked(namespace="ml"), [A], TWO, "namespace=ml: no Service there", id="an empty namespace"),
        pytest.param(Asked(), [DATABASE], ONE, "Service kubeflow/db has no .*http-api or https-api", id="no port"),
        pytest.param(Asked(name="db"), [DATABASE], ONE, "Service kubeflow/db has no", id="no port, by name"),
        pytest.param(Asked(), [replace(A, annotations={KUBEFLOW: "a b"})], ONE, "no usable external", id="bad"),
    ],
)  # fmt: skip
def test_unsettled_and_the_way_out_is_said(asked, services, settings, why):
    found = resolve("team-a", asked, services, settings)
    assert isinstance(found, Unsettled)
    assert re.search(why, found.reason), found.reason


@pytest.mark.parametrize("services", [[A], [A, B], [SECURE, OUTSIDE], []])
@pytest.mark.parametrize("settings", [ONLY_URL, ONE, TWO, BOTH, replace(BOTH, allowed_hosts=("far.example",))])
def test_whatever_an_object_says_no_other_server_is_reached(services, settings):
    allowed = {origin(each) for each in (settings.url, *(address_of(s, settings) for s in services)) if each}
    urls = [
        "",
        URL,
        URL + "/p",
        "http://evil.example",
        "http://far.example",
        AT_A.address,
        "https://gw.example:8443/y",
        "x",
    ]
    for url in urls:
        for namespace in ("", "kubeflow", "ml", "mine"):
            for name in ("", "mr-a", "evil"):
                found = resolve("team-a", Asked(url, namespace, name), services, settings)
                if isinstance(found, Located):
                    host = origin(found.address)
                    assert host in allowed or host[1] in settings.allowed_hosts


def test_a_refusal_repeats_no_password():
    found = resolve("team-a", Asked(url="http://user:s3cr3t@evil.example"), [], ONLY_URL)
    assert isinstance(found, Refused)
    assert "s3cr3t" not in found.reason


# --- what a Service's address is ---


@pytest.mark.parametrize(
    ("service", "address"),
    [
        (A, "http://mr-a.kubeflow.svc.cluster.local:8080"),
        (service("m", ports={"http-api": 80}), "http://m.kubeflow.svc.cluster.local"),
        (service("m", ports={"https-api": 8443, "http-api": 8080}), "http://m.kubeflow.svc.cluster.local:8080"),
        (service("m", **{OPENDATAHUB: "m-rest.apps.example:443"}), "https://m-rest.apps.example"),
        (service("m", **{KUBEFLOW: "a.example/x/", OPENDATAHUB: "b.example"}), "https://a.example/x"),
        (service("m", **{KUBEFLOW: "https://a.example/x"}), "https://a.example/x"),
        (service("m", **{KUBEFLOW: "HTTPS://a.example:8443"}), "https://a.example:8443"),
        (service("m", **{KUBEFLOW: "http://a.example/x"}), None),
        (service("m", **{KUBEFLOW: "a.example/x://y"}), None),
        (service("m", **{KUBEFLOW: ""}), "http://m.kubeflow.svc.cluster.local:8080"),
        (service("m", **{KUBEFLOW: "u:p@a.example"}), None),
        (DATABASE, None),
    ],
)
def test_the_address_of_a_service(service, address):
    assert address_of(service, ONE) == address


def test_d21_the_cluster_domain_is_a_setting():
    assert address_of(A, replace(ONE, cluster_domain="corp.internal")) == "http://mr-a.kubeflow.svc.corp.internal:8080"


# --- what an object says ---


def test_an_object_is_read_under_both_prefixes_and_the_configured_one_wins():
    other = "modelregistry.opendatahub.io/"
    obj = an_object(
        {other + "name": "old", other + "namespace": "ml", PREFIX + "name": "new"}, annotations={other + "url": "u"}
    )
    assert asked_of(obj, PREFIX) == Asked("u", "ml", "new")
    assert asked_of(obj, other) == Asked("u", "ml", "old")
    assert asked_of(an_object({}), PREFIX) == Asked()


# --- addresses ---


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("HTTP://Mr.Example:80/", "http://mr.example"),
        ("https://mr.example:443/a/", "https://mr.example/a"),
        ("https://mr.example:80/a/B", "https://mr.example:80/a/B"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://10.0.0.1", "http://10.0.0.1"),
    ],
)
def test_an_address_has_one_form(text, same):
    assert normal(text) == same
    assert normal(same) == same


@pytest.mark.parametrize(
    "text",
    ["", "http://", "http:///x", "//mr.example", "http://a b", "http://a\n", "http://a:0", "http://a:99999", "http://a:b",
     "http://a#b", "http://a?", "http://@a", "http://[::1", "http://[::1]x", "http://[::1]x:80", "http://a\\b", "file:///etc"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match=r"must|has"):
        normal(text)


# --- without an object ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("services", "settings", "found"),
    [
        pytest.param([], ONLY_URL, {AT_URL}, id="REGISTRY_URL"),
        pytest.param([A, FAR, PLAIN, DATABASE], TWO, {AT_A, AT_FAR}, id="every labelled Service"),
        pytest.param([A], BOTH, {AT_URL, AT_A}, id="both"),
        pytest.param([A], replace(ONE, url=AT_A.address), {AT_A}, id="REGISTRY_URL is a Service's: one registry"),
        pytest.param(
            [PLAIN],
            replace(ONE, rules=(Rule("*", (str(PLAIN),)),)),
            {Located(str(PLAIN), "http://other.kubeflow.svc.cluster.local:8080")},
            id="a Service that a rule names",
        ),
        pytest.param([], replace(ONLY_URL, rules=(Rule("*", ("http://far.example",)),)), {AT_URL}, id="no such host"),
        pytest.param(
            [],
            replace(ONLY_URL, allowed_hosts=("far.example",), rules=(Rule("*", ("http://far.example",)),)),
            {AT_URL, Located("http://far.example", "http://far.example")},
            id="an allowed address that a rule names",
        ),
    ],
)
def test_the_registries_that_are_known_without_an_object(services, settings, found):
    assert set(known_registries(services, settings)) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (AT_A.name, AT_A),
        (URL, AT_URL),
        ("http://mr.example:8080/b", Located("http://mr.example:8080/b", "http://mr.example:8080/b")),
        ("http://evil.example", None),
        ("kubeflow/none", None),
        (str(DATABASE), None),
        ("", None),
    ],
)
def test_a_registry_is_found_again_by_its_name_if_requests_to_it_are_allowed(name, found):
    assert registry_named(name, [A, DATABASE], BOTH) == found


def test_rules_do_not_count_where_a_registry_is_left():
    assert registry_named(AT_A.name, [A], replace(ONE, rules=(Rule("*", (AT_B.name,)),))) == AT_A
