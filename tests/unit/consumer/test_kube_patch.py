"""The JSON patch that writes an id, and what the API server's answers to it mean."""

import json

import httpx
import pytest
from opentelemetry.trace import NoOpTracer

from consumer.kube import KubernetesApi
from consumer.requests.exchange import Exchanger, Instruments
from consumer.writeback import KServeLists, Target, WriteBackForm, patch_operations
from shared.errors import ConflictError, PermanentError, TransientError, UnauthorizedError, UnreachableError
from shared.naming import NamingSettings
from shared.objects import Kind, Metadata, ObjectKey, ReducedObject

NAMING = NamingSettings(cluster_name="c")
KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
ID_KEY = "modelregistry.kubeflow.org/inference-service-id"
OBJECT = ReducedObject(
    "InferenceService", Metadata("iris", "team-a", "5a1e", "41", labels={"a": "b"}, has_annotations=True)
)
BARE = ReducedObject("InferenceService", Metadata("iris", "team-a", "5a1e", "41", labels={"a": "b"}))
UID = {"op": "test", "path": "/metadata/uid", "value": "5a1e"}
LABEL = Target(ID_KEY, WriteBackForm.LABEL)
ANNOTATION = Target(ID_KEY, WriteBackForm.ANNOTATION)


def test_free_write_tests_the_uid_only():
    assert patch_operations(OBJECT, LABEL, "17", test_resource_version=None) == [
        UID,
        {"op": "add", "path": "/metadata/labels/modelregistry.kubeflow.org~1inference-service-id", "value": "17"},
    ]


def test_other_writes_hold_for_one_resource_version_only():
    assert patch_operations(OBJECT, ANNOTATION, "17", test_resource_version="40") == [
        UID,
        {"op": "test", "path": "/metadata/resourceVersion", "value": "40"},
        {"op": "add", "path": "/metadata/annotations/modelregistry.kubeflow.org~1inference-service-id", "value": "17"},
    ]


@pytest.mark.parametrize(("tested", "version"), [(None, "41"), ("40", "40")])
def test_absent_map_is_added_whole_and_never_over_one_that_appeared(tested, version):
    assert patch_operations(BARE, ANNOTATION, "17", test_resource_version=tested) == [
        UID,
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/annotations", "value": {ID_KEY: "17"}},
    ]


def test_key_is_escaped_for_the_pointer():
    (_, add) = patch_operations(OBJECT, Target("a~b/c", WriteBackForm.LABEL), "17", test_resource_version=None)
    assert add["path"] == "/metadata/labels/a~0b~1c"


class Server:
    """Answers every request alike."""

    def __init__(self, response: httpx.Response | Exception, naming: NamingSettings = NAMING) -> None:
        self.response = response
        self.seen: list[httpx.Request] = []
        self.left_s = 60.0
        http = httpx.AsyncClient(base_url="https://kube.example:6443", transport=httpx.MockTransport(self))
        self.api = KubernetesApi(
            Exchanger(http, Instruments(NoOpTracer(), lambda *_: None)), lambda: self.left_s, naming.api_version
        )

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


def status(code: int, reason: str, message: str = "x", **headers: str) -> httpx.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return httpx.Response(code, headers={"Content-Type": "application/json", **headers}, content=json.dumps(body))


DENIED = 'admission webhook "inferenceservice.kserve-webhook-server.validator" denied the request: no'
FORBIDDEN = (
    'inferenceservices.serving.kserve.io "iris" is forbidden: User "system:serviceaccount:x:y" cannot patch resource '
    '"inferenceservices" in API group "serving.kserve.io" in the namespace "team-a"'
)


async def test_patch_is_sent_as_json_patch_to_the_object():
    server = Server(httpx.Response(200, json={}))
    await server.api.patch(KEY, [UID])
    (request,) = server.seen
    assert request.method == "PATCH"
    assert request.url.path == "/apis/serving.kserve.io/v1beta1/namespaces/team-a/inferenceservices/iris"
    assert request.headers["Content-Type"] == "application/json-patch+json"
    assert json.loads(request.content) == [UID]


@pytest.mark.parametrize(
    ("response", "wanted"),
    [
        (status(404, "NotFound"), ConflictError),
        (status(409, "Conflict"), ConflictError),
        (status(422, "Invalid", "the server rejected our request due to an error in our request"), ConflictError),
        (status(403, "Forbidden", DENIED), PermanentError),
        (status(403, "Forbidden", FORBIDDEN), TransientError),
        (httpx.Response(403, text="RBAC: access denied"), UnauthorizedError),
        (status(401, "Unauthorized"), UnauthorizedError),
        (
            status(500, "InternalError", 'Internal error occurred: failed calling webhook "x": connection refused'),
            TransientError,
        ),
        (status(429, "TooManyRequests"), TransientError),
        (status(503, "ServiceUnavailable"), TransientError),
        (httpx.ConnectError("refused"), UnreachableError),
    ],
)
async def test_answer_to_a_patch_has_its_class(response, wanted):
    with pytest.raises(wanted) as raised:
        await Server(response).api.patch(KEY, [UID])
    assert type(raised.value) is wanted


async def test_missing_right_names_verb_and_resource():
    with pytest.raises(TransientError, match="patch inferenceservices"):
        await Server(status(403, "Forbidden", FORBIDDEN)).api.patch(KEY, [UID])


async def test_wish_to_wait_is_kept():
    with pytest.raises(TransientError) as raised:
        await Server(status(429, "TooManyRequests", **{"Retry-After": "3"})).api.patch(KEY, [UID])
    assert raised.value.retry_after_s == 3


async def test_nothing_is_sent_when_ownership_is_about_to_end():
    server = Server(httpx.Response(200, json={}))
    server.left_s = 0.5
    with pytest.raises(TransientError, match="ownership"):
        await server.api.patch(KEY, [UID])
    assert server.seen == []


async def test_object_is_read_as_it_is():
    server = Server(httpx.Response(200, json={"metadata": {"name": "iris"}}))
    assert await server.api.get(KEY) == {"metadata": {"name": "iris"}}
    assert server.seen[0].url.path == "/apis/serving.kserve.io/v1beta1/namespaces/team-a/inferenceservices/iris"


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
async def test_an_llm_object_is_read_and_patched_in_the_version_of_the_setting(version):
    server = Server(httpx.Response(200, json={}), NamingSettings(cluster_name="c", llmisvc_api_version=version))
    key = ObjectKey(Kind.LLMISVC, "team-a", "iris")
    await server.api.get(key)
    await server.api.patch(key, [UID])
    paths = {request.url.path for request in server.seen}
    assert paths == {f"/apis/serving.kserve.io/{version}/namespaces/team-a/llminferenceservices/iris"}


async def test_object_that_does_not_exist_is_none():
    assert await Server(status(404, "NotFound")).api.get(KEY) is None


@pytest.mark.parametrize(
    ("response", "wanted"),
    [
        (httpx.Response(404, text="404 page not found\n"), TransientError),  # the kind is gone, not the object
        (status(403, "Forbidden", FORBIDDEN.replace("patch", "get")), TransientError),
        (status(500, "InternalError"), TransientError),
        (httpx.Response(200, text="<html>log in</html>"), UnreachableError),
        (httpx.Response(200, headers={"Content-Type": "application/json"}, content=b'{"metadata":'), UnreachableError),
        (httpx.Response(302, headers={"Location": "/login"}), TransientError),
    ],
)
async def test_answer_to_a_read_that_proves_nothing_is_no_none(response, wanted):
    with pytest.raises(wanted) as raised:
        await Server(response).api.get(KEY)
    assert type(raised.value) is wanted


def config_map(text: str) -> httpx.Response:
    return httpx.Response(200, json={"kind": "ConfigMap", "data": {"inferenceService": text}})


async def test_lists_of_kserve_are_read():
    text = (
        '{"serviceAnnotationDisallowedList": ["a/b", "c"], "serviceLabelDisallowedList": ["d"], "resource": {"x": 1}}'
    )
    server = Server(config_map(text))
    assert await server.api.kserve_lists("kserve") == KServeLists(frozenset({"a/b", "c"}), frozenset({"d"}))
    assert server.seen[0].url.path == "/api/v1/namespaces/kserve/configmaps/inferenceservice-config"


@pytest.mark.parametrize("response", [config_map("{}"), httpx.Response(200, json={"kind": "ConfigMap"})])
async def test_lists_that_are_not_set_are_empty_without_a_warning(response, caplog):
    assert await Server(response).api.kserve_lists("kserve") == KServeLists()
    assert caplog.records == []


@pytest.mark.parametrize(
    "response",
    [
        status(404, "NotFound"),
        status(403, "Forbidden", "x"),
        httpx.ConnectError("refused"),
        config_map("{"),
        config_map('{"serviceLabelDisallowedList": "a"}'),
        httpx.Response(200, json={"data": 5}),
    ],
)
async def test_lists_that_cannot_be_read_are_empty_with_one_warning(response, caplog):
    assert await Server(response).api.kserve_lists("kserve") == KServeLists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
