"""Bytes become items: whatever a server or a proxy may send is judged here."""

import random

import msgspec
import pytest

from producer.items import Bookmark, Gone, Malformed, Observed, Page, Refused, Seen, Unidentified
from producer.reading import LineSplitter, Reader
from producer.reading import model_of as model
from shared.objects import Kind, ObjectKey
from tests.unit.producer.observed import MODEL, READER, line, raw

KUBEFLOW, ODH = "modelregistry.kubeflow.org/", "modelregistry.opendatahub.io/"


def without(field):
    given = raw()
    del given["metadata"][field]
    return given


@pytest.mark.parametrize("verb", ["ADDED", "MODIFIED"])
def test_added_and_modified_are_seen(verb):
    match READER.line(line(verb, raw("x", uid="u7", version=12))):
        case Seen(Observed(key, "u7", "12")):
            assert key == ObjectKey(Kind.ISVC, "ns", "x")
        case other:
            pytest.fail(f"{other!r}")


def test_R25_deleted_carries_the_last_state():
    match READER.line(line("DELETED", raw(labels={MODEL: "3"}))):
        case Gone(found):
            assert found.model == "3"
            assert found.body["metadata"]["labels"] == {MODEL: "3"}
        case other:
            pytest.fail(f"{other!r}")


def test_R09_a_bookmark_is_only_a_position():
    assert READER.line(line("BOOKMARK", {"metadata": {"resourceVersion": "70"}})) == Bookmark("70")


def test_the_end_of_the_initial_state_is_a_bookmark_with_its_annotation():
    metadata = {"resourceVersion": "70", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert READER.line(line("BOOKMARK", {"metadata": metadata})) == Bookmark("70", initial_end=True)


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"resourceVersion": "x"}}])
def test_R17_a_bookmark_without_position_is_malformed(body):
    assert isinstance(READER.line(line("BOOKMARK", body)), Malformed)


def test_an_error_event_is_a_refusal_in_the_stream():
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}
    assert READER.line(line("ERROR", status)) == Refused(
        410, "Expired", "too old resource version: 1 (9)", in_stream=True
    )


def test_R16_an_error_event_names_its_causes_and_when_to_come_back():
    details = {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}
    match READER.line(line("ERROR", {"code": 504, "details": details})):
        case Refused(504, causes=causes, retry_after_s=retry_after_s):
            assert (causes, retry_after_s) == (("ResourceVersionTooLarge",), 1)
        case other:
            pytest.fail(f"{other!r}")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b'{"type":"DELETED","object":{"metad', id="half a line"),
        pytest.param(b"<html>sign in</html>", id="a proxy's page"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"type":"ADDED"}', id="no object"),
        pytest.param(b'{"type":"ADDED","object":[]}', id="an object that is none"),
        pytest.param(b'{"kind":"Status","code":401}', id="a Status outside an event"),
        pytest.param(b'{"type":"RENAMED","object":{}}', id="unknown type"),
        pytest.param(b'{"type":"ERROR","object":{"code":"many"}}', id="an ERROR that is no Status"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
def test_R17_R18_what_is_no_watch_event_is_malformed_and_shows_no_content(bad):
    item = READER.line(bad)
    assert isinstance(item, Malformed)
    assert "sign in" not in item.why
    assert "metad" not in item.why


@pytest.mark.parametrize("field", ["uid", "resourceVersion", "name", "namespace"])
def test_R17_an_object_without_identity_is_unidentified_under_what_name_it_has(field):
    match READER.line(line("MODIFIED", without(field))):
        case Unidentified(name, why):
            assert name == {"name": "ns", "namespace": "a"}.get(field, "ns/a")
            assert field in why
        case other:
            pytest.fail(f"{other!r}")


@pytest.mark.parametrize("bad", [None, 7, "text", [], {}, {"metadata": 3}, {"metadata": {"name": {}}}])
def test_R17_nothing_that_stands_for_an_object_is_an_accident(bad):
    assert isinstance(READER.object(bad), Unidentified)


def test_a_page_holds_its_objects_its_version_and_the_token_of_the_next():
    body = {"kind": "InferenceServiceList", "metadata": {"resourceVersion": "9", "continue": "t"}, "items": [raw()]}
    page = READER.page(msgspec.json.encode(body))
    assert isinstance(page, Page)
    assert (page.resource_version, page.token, len(page.items)) == ("9", "t", 1)


def test_R17_an_unidentified_object_in_a_page_leaves_the_others():
    body = {"kind": "InferenceServiceList", "metadata": {"resourceVersion": "9"}, "items": [{}, raw()]}
    page = READER.page(msgspec.json.encode(body))
    assert isinstance(page, Page)
    assert [type(item) for item in page.items] == [Unidentified, Observed]


def test_an_empty_list_may_be_null():
    body = {"kind": "InferenceServiceList", "metadata": {"resourceVersion": "9"}, "items": None}
    assert READER.page(msgspec.json.encode(body)) == Page((), "9", "")


@pytest.mark.parametrize(
    "bad",
    [
        b"<html>",
        b"{}",
        b'{"kind":"InferenceService","metadata":{"resourceVersion":"9"}}',
        b'{"kind":"InferenceServiceList","metadata":{}}',
        b'{"kind":"InferenceServiceList","metadata":{"resourceVersion":"9"},"items":7}',
    ],
)
def test_R04_what_is_no_list_is_malformed(bad):
    assert isinstance(READER.page(bad), Malformed)


def test_R08_list_items_without_kind_get_it_from_the_list():
    given = raw()
    del given["kind"], given["apiVersion"]
    found = READER.object(given)
    assert isinstance(found, Observed)
    assert (found.body["kind"], found.body["apiVersion"]) == ("InferenceService", "serving.kserve.io/v1beta1")


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_R08_the_version_that_was_asked_for_is_filled_in(version):
    given = raw() | {"kind": "LLMInferenceService"}
    del given["apiVersion"]
    found = Reader(Kind.LLMISVC, (KUBEFLOW, ODH), f"serving.kserve.io/{version}").object(given)
    assert isinstance(found, Observed)
    assert found.body["apiVersion"] == f"serving.kserve.io/{version}"


def test_R36_managed_fields_and_foreign_annotations_are_stripped_before_the_digest():
    given = raw()
    given["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    given["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "secret"}
    found, plain = READER.object(given), READER.object(raw())
    assert isinstance(found, Observed)
    assert isinstance(plain, Observed)
    assert b"secret" not in msgspec.json.encode(found.body)
    assert b"managedFields" not in msgspec.json.encode(found.body)
    assert found.digest == plain.digest


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({KUBEFLOW: "5"}, "5", id="configured"),
        pytest.param({ODH: "6"}, "6", id="the other prefix"),
        pytest.param({KUBEFLOW: "5", ODH: "6"}, "5", id="on conflict the configured wins"),
        pytest.param({KUBEFLOW: "five"}, "", id="no id"),
        pytest.param({KUBEFLOW: "05"}, "", id="leading zero"),
        pytest.param({KUBEFLOW: "2147483648"}, "", id="not an int32"),
        pytest.param({KUBEFLOW: "five", ODH: "6"}, "", id="a bad configured label is not replaced by the other"),
    ],
)
def test_the_model_is_a_well_formed_id_of_the_configured_prefix_first(labels, expected):
    named = {prefix + "registered-model-id": value for prefix, value in labels.items()}
    assert model(named, (KUBEFLOW, ODH)) == expected


def test_the_configured_prefix_may_be_one_of_its_own():
    reader = Reader(Kind.ISVC, ("models.example.com/", KUBEFLOW, ODH), "serving.kserve.io/v1beta1")
    found = reader.object(raw(labels={"models.example.com/registered-model-id": "4", MODEL: "5"}))
    assert isinstance(found, Observed)
    assert found.model == "4"


def split(chunks, bytes_max=1000):
    splitter = LineSplitter(bytes_max)
    return [item for chunk in chunks for item in splitter.feed(chunk)]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"a\nb\nc\n"], [b"a", b"b", b"c"], id="several events in one chunk"),
        pytest.param([b"a", b"b", b"c\n"], [b"abc"], id="one event in many chunks"),
        pytest.param([b"a\r\nb\r", b"\n"], [b"a", b"b"], id="carriage returns"),
        pytest.param([b"\n\r\n", b"\n", b"a\n\n"], [b"a"], id="keep-alive lines"),
        pytest.param(["ä".encode()[:1], "ä".encode()[1:] + b"\n"], ["ä".encode()], id="a cut character"),
        pytest.param([b"a\nhalf"], [b"a"], id="what has no line end is no line"),
        pytest.param([b""], [], id="nothing"),
    ],
)
def test_R19_lines_do_not_depend_on_chunks(chunks, lines):
    assert split(chunks) == lines


@pytest.mark.parametrize("seed", range(20))
def test_R19_any_chunking_gives_the_same_lines(seed):
    chance = random.Random(seed)
    whole = "".join(chance.choice(["{}", "ä€𝄞", "\n", "\r\n", "x" * 40]) for _ in range(60)).encode()
    chunks, rest = [], whole
    while rest:
        cut = chance.randint(1, 9)
        chunks.append(rest[:cut])
        rest = rest[cut:]
    assert split(chunks) == split([whole])


@pytest.mark.parametrize("chunks", [[b"x" * 11 + b"\n"], [b"x" * 6, b"x" * 6], [b"ok\n" + b"x" * 11]])
def test_R18_a_line_beyond_the_cap_is_malformed_and_not_collected(chunks):
    assert isinstance(split(chunks, bytes_max=10)[-1], Malformed)


def test_R18_a_line_at_the_cap_passes():
    assert split([b"x" * 10 + b"\n"], bytes_max=10) == [b"x" * 10]


TOO_LONG = [("name", 254), ("name", 5000), ("namespace", 64), ("uid", 2049), ("uid", 300_000)]


@pytest.mark.parametrize(("field", "size"), TOO_LONG)
def test_an_object_whose_identity_is_longer_than_there_can_be_is_unidentified_in_one_sentence(field, size):
    given = raw()
    given["metadata"][field] = "n" * size
    match READER.line(line("ADDED", given)):
        case Unidentified(name, why):
            assert why.startswith(f"its metadata.{field} has {size} bytes, more than the ")
            assert len(f"{name}: {why}") < 200
        case other:
            pytest.fail(f"{other!r}")


def test_the_length_of_a_name_is_counted_in_bytes_since_each_takes_three_in_a_subject():
    given = raw("\u00e9" * 127)
    assert isinstance(READER.object(given), Unidentified)


def test_the_longest_name_that_a_server_allows_is_seen():
    given = raw("n" * 253)
    given["metadata"]["namespace"] = "m" * 63
    assert isinstance(READER.object(given), Observed)


def test_the_other_objects_of_a_page_are_read_beside_one_with_too_long_a_name():
    body = {"kind": "InferenceServiceList", "metadata": {"resourceVersion": "9"}, "items": [raw("n" * 5000), raw("b")]}
    match READER.page(msgspec.json.encode(body)):
        case Page((Unidentified(), Observed(ObjectKey(name="b")))):
            pass
        case other:
            pytest.fail(f"{other!r}")


@pytest.mark.parametrize("version", ["1" * 2049, "1" * 100_000])
def test_a_resource_version_that_would_not_fit_into_a_message_is_none(version):
    assert isinstance(READER.line(line("BOOKMARK", {"metadata": {"resourceVersion": version}})), Malformed)
    assert isinstance(READER.object(raw(version=version)), Unidentified)
