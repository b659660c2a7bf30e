"""A cluster's InferenceServices, too many to keep: each is made from its number whenever somebody asks for it. Pure.

The shape is that of a real one in Standard mode, managedFields included: 2.7 KB of JSON, of which the producer
publishes less than half.
"""

from array import array
from collections.abc import Iterator
from typing import Final

PER_NAMESPACE: Final = 50
_FIRST_VERSION: Final = 500_000_000  # nine digits, as in a cluster that is some months old
_OWN = """"f:metadata":{"f:labels":{".":{},"f:modelregistry.kubeflow.org/model-version-id":{},\
"f:modelregistry.kubeflow.org/registered-model-id":{}}},"f:spec":{".":{},"f:predictor":{".":{},"f:minReplicas":{},\
"f:model":{".":{},"f:modelFormat":{".":{},"f:name":{}},"f:storageUri":{}}}}"""
_KSERVE = """"f:status":{".":{},"f:address":{".":{},"f:url":{}},"f:clusterServingRuntimeName":{},\
"f:components":{".":{},"f:predictor":{".":{},"f:url":{}}},"f:conditions":{},"f:deploymentMode":{},\
"f:modelStatus":{".":{},"f:copies":{".":{},"f:failedCopies":{},"f:totalCopies":{}},"f:states":{".":{},\
"f:activeModelState":{},"f:targetModelState":{}},"f:transitionStatus":{}},"f:observedGeneration":{},"f:url":{}}"""
_OBJECT: Final = (
    """{"apiVersion":"serving.kserve.io/v1beta1","kind":"InferenceService","metadata":{"annotations":\
{"modelFormat":"sklearn","serving.kserve.io/deploymentMode":"Standard"},"creationTimestamp":"2026-11-30T17:57:31Z",\
"finalizers":["inferenceservice.finalizers"],"generation":1,"labels":{"modelregistry.kubeflow.org/model-version-id":\
"%(version_id)d","modelregistry.kubeflow.org/registered-model-id":"%(model_id)d"},"managedFields":[{"apiVersion":\
"serving.kserve.io/v1beta1","fieldsType":"FieldsV1","fieldsV1":{"""
    + _OWN
    + """},"manager":"kubectl","operation":"Update","time":"2026-11-30T17:57:31Z"},{"apiVersion":\
"serving.kserve.io/v1beta1","fieldsType":"FieldsV1","fieldsV1":{"""
    + _KSERVE
    + """},"manager":"manager","operation":"Update","subresource":"status","time":"2026-11-30T17:57:34Z"}],\
"name":"%(name)s","namespace":"%(namespace)s","resourceVersion":"%(resource_version)d","uid":"%(uid)s"},\
"spec":{"predictor":{"minReplicas":1,"model":{"modelFormat":{"name":"sklearn"},"name":"","resources":{},\
"storageUri":"s3://models/%(namespace)s/%(name)s/1"}}},\
"status":{"address":{"url":"http://%(name)s-predictor.%(namespace)s.svc.cluster.local"},"clusterServingRuntimeName":\
"kserve-sklearnserver","components":{"predictor":{"url":"http://%(name)s-predictor-%(namespace)s.example.com"}},\
"conditions":[{"lastTransitionTime":"2026-11-30T17:57:34Z","status":"True","type":"IngressReady"},\
{"lastTransitionTime":"2026-11-30T17:57:34Z","message":"ReplicaSet \\"%(name)s-predictor-c694db67c\\" has successfully \
progressed.","reason":"NewReplicaSetAvailable","status":"True","type":"PredictorReady"},{"lastTransitionTime":\
"2026-11-30T17:57:34Z","status":"%(ready)s","type":"Ready"},{"lastTransitionTime":"2026-11-30T17:57:31Z","severity":\
"Info","status":"False","type":"Stopped"}],"deploymentMode":"Standard","modelStatus":{"copies":{"failedCopies":0,\
"totalCopies":%(copies)d},"states":{"activeModelState":"Loaded","targetModelState":"Loaded"},"transitionStatus":\
"UpToDate"},"observedGeneration":1,"url":"http://%(name)s-%(namespace)s.example.com"}}"""
)


class Fleet:
    """`size` objects, and what was changed on them. `version` is the cluster's resourceVersion."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.version = _FIRST_VERSION + size
        self._versions = array("Q", range(_FIRST_VERSION, _FIRST_VERSION + size))
        self._ready = bytearray(b"\1" * size)
        self._copies = bytearray(size)

    def change(self, number: int, *, relevant: bool) -> None:
        """Update an object's status: its readiness, which matters, or its number of pods, which does not."""
        self.version += 1
        self._versions[number] = self.version
        if relevant:
            self._ready[number] ^= 1
        else:
            self._copies[number] = (self._copies[number] + 1) % 100

    def object(self, number: int) -> bytes:
        """Return an object as JSON."""
        namespace = number // PER_NAMESPACE
        return (
            _OBJECT
            % {
                "namespace": f"data-science-{namespace:04d}",
                "name": f"fraud-model-{number:06d}",
                "uid": f"{number:08x}-93c4-4bf0-84f3-{number * 7919:012x}",
                "model_id": number + 1,
                "version_id": number + 2,
                "resource_version": self._versions[number],
                "ready": "True" if self._ready[number] else "False",
                "copies": self._copies[number],
            }
        ).encode()

    def objects(self, first: int = 0, limit: int | None = None) -> Iterator[bytes]:
        last = self.size if limit is None else min(self.size, first + limit)
        return map(self.object, range(first, last))
