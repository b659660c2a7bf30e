"""An anonymous capture holds none of the names, and everything in it still belongs together."""

import json
import re

import pytest
from msgspec.structs import replace

from consumer.discovery import DiscoverySettings, Located, Rule, Service, asked_of, resolve
from consumer.records import Record, Stamp, encode_stamp, string_property
from replay.capture import Action, Captured, Deciding, Facts, Position, RecordFact, decode, encode
from replay.upkeep.anonymity import Anonymizer
from replay.upkeep.redaction import Redactor
from shared.reduce import digest_of
from shared.subjects import Subjects
from tests.unit.replay.captures import CLUSTER_ID, HEADER, first_event, story
from tests.unit.shared.captured import stories

SALT = b"a salt"
UID = "669d90af-1f47-43ab-8f22-911896667a8b"
TEMPLATE = "acme-{namespace}.{cluster}"


def redactor(header=HEADER, salt=SALT, namespaces=frozenset()):
    return Redactor(header, Anonymizer(salt, header, namespaces))


def anonymous(line, **others):
    return decode(redactor(**others).line(line))


def words(value, key=""):
    """Yield every text in an object, with the name of its field."""
    match value:
        case str():
            yield key, value
        case dict():
            for name, each in value.items():
                yield from words(each, name)
        case list():
            for each in value:
                yield from words(each, key)


def names_in(obj):
    """Return what nobody is to read: names, hosts, URIs, images, runtimes."""
    metadata = obj["metadata"]
    yield from (metadata["name"], metadata["namespace"])
    for key, text in words(obj):
        if "://" in text:
            yield from (part for part in re.split(r"[/:]+", text)[1:] if len(part) > 2 and not part.isdigit())
        elif key in {"image", "runtime", "servingRuntimeName", "clusterServingRuntimeName", "mountPath"}:
            yield text


@pytest.mark.parametrize("name", stories())
def test_no_name_of_any_story_stands_in_its_anonymous_form(name):
    """Compared as whole words of values: a model format may be called like somebody's folder."""
    events = [line for line in story(name) if isinstance(line, Captured)]
    names = {each for line in events for each in names_in(json.loads(line.data))}
    assert len(names) > 2
    one = redactor()
    documents = map(json.loads, [one.header_text(), *map(one.line, events)])
    found = {word for document in documents for _, text in words(document) for word in re.split(r"[/:.@,; ]+", text)}
    kept = {"sklearn", "huggingface", "s3", "hf", "http", "https", "ftp", "gs", "pvc"}
    assert names & found - kept == set()


@pytest.mark.parametrize("name", stories())
def test_what_decides_stays_in_every_story(name):
    one = redactor()
    for line in story(name):
        if isinstance(line, Facts):
            assert decode(one.line(line)) == line
            continue
        found = decode(one.line(line))
        before, after = line.event, found.event
        kept = ("type", "uid", "epoch", "resource_version", "models", "time", "corrects", "truncated", "cluster_id")
        assert [getattr(before, each) for each in kept] == [getattr(after, each) for each in kept]
        old, new = line.obj, found.obj
        assert [(each.type, each.status) for each in old.status.conditions] == [
            (each.type, each.status) for each in new.status.conditions
        ]
        assert old.status.condition("PredictorReady").reason == new.status.condition("PredictorReady").reason
        ids = {key: text for key, text in old.metadata.labels.items() if key.endswith("-id") and text.isdigit()}
        assert ids.items() <= new.metadata.labels.items()
        assert (new.status.model_status, new.status.deployment_mode) == (
            old.status.model_status,
            old.status.deployment_mode,
        )


def test_everything_that_names_an_object_names_it_by_the_same_tokens():
    line = json.loads(redactor().line(first_event()))
    namespace, name = line["namespace"], line["name"]
    assert re.fullmatch(r"ns-[0-9a-f]{12}", namespace)
    assert re.fullmatch(r"name-[0-9a-f]{12}", name)
    assert line["subject"] == f"{namespace}/{name}"
    assert line["partitionkey"] == f"isvc/{namespace}/{name}"
    assert (line["data"]["metadata"]["namespace"], line["data"]["metadata"]["name"]) == (namespace, name)
    assert line["nats"]["subject"].endswith(f".isvc.{namespace}.{name}")


def test_the_subject_names_the_cluster_by_the_token_of_the_header():
    one = redactor()
    event = first_event()
    subject = Subjects("isvc", "prod", 16).event(event.event.key)
    line = json.loads(one.line(Captured(event.event, event.data, Position(1, subject))))
    assert line["nats"]["subject"].split(".")[1] == one.header.cluster
    assert one.header.cluster.startswith("cluster-")


def test_the_same_name_has_the_same_token_in_a_file_and_another_with_another_salt():
    first, again, other = anonymous(first_event()), anonymous(first_event()), anonymous(first_event(), salt=b"other")
    assert first == again
    assert first.event.key != other.event.key


def test_no_digest_stays_by_which_a_guess_could_be_confirmed():
    event = first_event()
    line = json.loads(redactor().line(event))
    assert event.event.digest == digest_of(json.loads(event.data))
    assert line["digest"] != event.event.digest
    assert event.event.digest[3:11] not in json.dumps(line)


HEADER_OF_TEMPLATE = replace(HEADER, deciding=Deciding(environment=TEMPLATE))
STAMP = Stamp(
    cluster="prod", cluster_id=CLUSTER_ID, kind="isvc", namespace="credit", name="scorer", uid=UID, epoch=1,
    resource_version="7", digest="v1:" + "ab" * 32, storage_uri="s3://bucket/iris", model_format="sklearn",
)  # fmt: skip
RECORD = RecordFact(
    id="17", name=f"scorer/{UID}", external_id=f"kserve:{UID}/1", environment="acme-credit.prod", model_id="1",
    runtime="acme-runtime",
    properties={
        "url": string_property("http://scorer.credit.svc.cluster.local/v1"),
        "isvc-sync": encode_stamp(STAMP),
        "cost-centre": string_property("acme"),
    },
)  # fmt: skip


def test_a_record_still_belongs_to_its_object():
    facts = Facts(environments={"acme-credit.prod": "3"}, records=(RECORD,))
    one = redactor(HEADER_OF_TEMPLATE)
    found = decode(one.line(facts))
    key = decode(one.line(first_event())).event.key
    record = found.records[0]
    stamp = Record("17", "", "", "3", "1", properties=record.properties).stamp
    assert record.name == f"{key.name}/{UID}"
    assert record.external_id == RECORD.external_id
    assert (stamp.namespace, stamp.name, stamp.cluster) == (key.namespace, key.name, one.header.cluster)
    template = one.header.deciding.environment
    environment = template.replace("{namespace}", key.namespace).replace("{cluster}", one.header.cluster)
    assert found.environments == {environment: "3"}
    assert record.environment == environment
    assert record.properties["url"]["string_value"].startswith(
        f"http://{key.name}.{key.namespace}.svc.cluster.local/path-"
    )
    assert b"acme" not in encode(found) + one.header_text()
    assert b"bucket" not in encode(found)
    assert b"cost-centre" not in encode(found)


def test_an_object_and_its_record_tell_the_same_address_and_uri():
    event = first_event()
    data = json.loads(event.data)
    data["status"] = {"url": "https://scorer.example.com/a"}
    line = Captured(event.event, json.dumps(data).encode(), event.position)
    uri = line.obj.spec.predictor.model.storage_uri
    stamp = encode_stamp(replace(STAMP, storage_uri=uri))
    record = replace(RECORD, properties={"url": string_property("https://scorer.example.com/a"), "isvc-sync": stamp})
    found = anonymous(Facts(records=(record,))).records[0]
    obj = anonymous(line).obj
    assert obj.status.url == found.properties["url"]["string_value"]
    assert obj.spec.predictor.model.storage_uri in found.properties["isvc-sync"]["string_value"]


@pytest.mark.parametrize("name", ["secret-project", "secret-project/by-hand", "secret-project/u/1/2"])
def test_a_name_that_is_not_ours_is_one_token(name):
    record = replace(RECORD, name=name, external_id="acme:secret", environment="elsewhere")
    found = anonymous(Facts(records=(record,)))
    assert not re.search(rb"secret|elsewhere|by-hand", encode(found))


def test_reasons_and_members_of_actions_say_nothing():
    action = Action(
        event=1, object="isvc/credit/scorer", kind="Reject", reason="credit is out", member="acme-0", status=400
    )
    found = anonymous(action)
    key = anonymous(first_event()).event.key
    assert found.object == str(key)
    assert (found.kind, found.status, found.reason) == ("Reject", 400, "")
    assert b"acme" not in encode(found)


def test_what_an_action_makes_up_says_nothing_either():
    action = Action(event=1, object="isvc/credit/scorer", kind="CANARY://u:p@host", time="CANARY", tool="CANARY", ms=2)
    found = anonymous(action)
    assert b"CANARY" not in encode(found)
    assert (found.time, found.ms) == ("", 2.0)


SERVICE = Service(
    "models", "central", {"component": "model-registry"},
    {"routing.kubeflow.org/external-address-rest": "registry.acme.com:443/api"}, {"http-api": 8080},
)  # fmt: skip
PLAIN = replace(SERVICE, name="plain", annotations={})
PREFIX = HEADER.deciding.prefix
DISCOVERY = DiscoverySettings(
    prefix=PREFIX,
    url="http://acme-registry.corp:8080/base",
    namespaces=("models",),
    allowed_hosts=("other.acme.com:9000", "any.acme.com"),
    rules=(
        Rule("cred*", ("models/plain", "http://acme-registry.corp:8080/base", "models/central", "http://any.acme.com")),
        Rule("*", ("models/central", "http://other.acme.com:9000")),
    ),
)
ASKED = {
    "nothing": {},
    "a name": {"labels": {f"{PREFIX}name": "plain"}},
    "a name and a namespace": {"labels": {f"{PREFIX}name": "central", f"{PREFIX}namespace": "models"}},
    "a namespace that is none": {"labels": {f"{PREFIX}namespace": "elsewhere"}},
    "the settings' address": {"annotations": {f"{PREFIX}url": "http://ACME-registry.corp:8080/base/"}},
    "a Service's address": {"annotations": {f"{PREFIX}url": "http://plain.models.svc.cluster.local:8080"}},
    "an external address": {"annotations": {f"{PREFIX}url": "https://registry.acme.com/api"}},
    "an allowed host": {"annotations": {f"{PREFIX}url": "http://any.acme.com"}},
    "an allowed host, not by rule": {"annotations": {f"{PREFIX}url": "http://other.acme.com:9000"}},
    "a host that is not allowed": {"annotations": {f"{PREFIX}url": "http://evil.acme.com"}},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_an_object_finds_the_same_registry(asked):
    event = first_event()
    data = json.loads(event.data)
    for name, values in asked.items():
        data["metadata"][name] |= values
    line = Captured(event.event, json.dumps(data).encode(), event.position)
    header = replace(HEADER, deciding=Deciding(discovery=DISCOVERY, services=(SERVICE, PLAIN)))
    one = redactor(header, namespaces=frozenset({"credit", "storm"}))
    found = decode(one.line(line))
    deciding = one.header.deciding

    before = resolve("credit", asked_of(line.obj, PREFIX), (SERVICE, PLAIN), DISCOVERY)
    after = resolve(found.event.key.namespace, asked_of(found.obj, PREFIX), deciding.services, deciding.discovery)
    assert type(after) is type(before)
    if isinstance(before, Located):
        facts = decode(one.line(Facts(registry=before.name)))
        assert after.name == facts.registry
    assert not re.search(rb"acme|corp|plain|credit|central", one.header_text() + one.line(line))


def test_a_prefix_of_our_own_is_a_token_and_its_labels_are_found():
    prefix = "acme.com/"
    event = first_event()
    data = json.loads(event.data)
    data["metadata"]["labels"] = {f"{prefix}registered-model-id": "7"}
    header = replace(
        HEADER, deciding=Deciding(prefix=prefix, denied_labels=(f"{prefix}inference-service-id", "acme/x"))
    )
    one = redactor(header)
    found = decode(one.line(Captured(event.event, json.dumps(data).encode(), event.position)))
    token = one.header.deciding.prefix
    assert found.obj.metadata.labels == {f"{token}registered-model-id": "7"}
    assert one.header.deciding.denied_labels == (f"{token}inference-service-id",)
    assert b"acme" not in one.header_text()


def test_a_cluster_id_that_is_no_uid_is_a_token():
    header = replace(HEADER, cluster_id="acme-prod", stream="ACME_EVENTS")
    one = redactor(header)
    assert b"acme" not in one.header_text().lower()
    assert redactor().header.cluster_id == CLUSTER_ID


def test_what_this_release_does_not_know_is_left_out():
    one = redactor()
    text = encode(first_event())[:-1] + b',"later":"credit"}'
    assert b"credit" not in one.rewritten(decode(text), text)
    assert one.rewritten(None, b'{"weather":"credit"}') is None
    assert b"later" not in one.header_text(encode(HEADER)[:-1] + b',"later":1}')
    assert one.header.redaction.profile == "anonymous"
