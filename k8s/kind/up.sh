#!/usr/bin/env bash
# From nothing to a recorded InferenceService on a kind cluster of its own: `k8s/kind/up.sh`. A second run reuses what is
# there and brings the newest code. Needs kind, docker, kubectl (1.31 or later) and python3.
#
# KServe is played: only its CRDs are there, and this script sets the status that KServe would set. Install KServe into
# the cluster and run this again to see the same with real deployments.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly cluster="${CLUSTER:-isvc-sync}"
readonly image=isvc-sync:0.1.0
readonly registry=/api/v1/namespaces/kubeflow/services/model-registry-service:http-api/proxy/api/model_registry/v1alpha3
readonly id_label=modelregistry.kubeflow.org/inference-service-id
readonly url=http://iris.demo.example.com

step() { printf '\n== %s\n' "$*"; }
k() { kubectl --context "kind-$cluster" "$@"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# post PATH BODY: create something in the registry; the API server passes the request on to its Service.
post() { printf '%s' "$2" | k create --raw "$registry/$1" --filename -; }

# id_of QUERY PATH BODY: the id of what QUERY finds, else of what is created.
id_of() { { k get --raw "$registry/$1" 2>/dev/null || post "$2" "$3"; } | field id; }

for tool in kind docker kubectl python3; do
  command -v "$tool" >/dev/null || { echo "$tool is missing: install it and run this again" >&2; exit 2; }
done

step "cluster $cluster"
if ! kind get clusters 2>/dev/null | grep -x "$cluster" >/dev/null; then
  kind create cluster --name "$cluster" --config k8s/kind/cluster.yaml --wait 3m
fi

step "image $image"
docker build --tag "$image" .
kind load docker-image "$image" --name "$cluster"

step "NATS, registry, isvc-sync"
if ! k get crd inferenceservices.serving.kserve.io >/dev/null 2>&1; then
  k apply --server-side --filename tests/cluster/crds
  until k get --raw /apis/serving.kserve.io/v1beta1/inferenceservices >/dev/null 2>&1; do sleep 1; done
fi
k apply --server-side --kustomize k8s/kind
k --namespace isvc-sync rollout restart deployment # the image has the same name as before
k --namespace nats rollout status statefulset/nats --timeout=5m
k --namespace kubeflow rollout status statefulset/model-registry-db --timeout=5m
k --namespace kubeflow rollout status deployment/model-registry --timeout=5m
k --namespace isvc-sync rollout status deployment/isvc-sync-producer --timeout=3m
k --namespace isvc-sync rollout status deployment/isvc-sync-consumer --timeout=3m

step "a model in the registry, and an InferenceService that names it"
model="$(id_of 'registered_model?name=iris' registered_models '{"name": "iris"}')"
version="$(id_of "model_version?name=v1&parentResourceId=$model" "registered_models/$model/versions" \
  "{\"name\": \"v1\", \"registeredModelId\": \"$model\"}")"
k apply --server-side --filename - <<ISVC
apiVersion: v1
kind: Namespace
metadata:
  name: demo
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: iris
  namespace: demo
  labels:
    modelregistry.kubeflow.org/registered-model-id: "$model"
    modelregistry.kubeflow.org/model-version-id: "$version"
  annotations:
    serving.kserve.io/deploymentMode: Standard
spec:
  predictor:
    model:
      modelFormat:
        name: sklearn
      storageUri: gs://kfserving-examples/models/sklearn/1.0/model
ISVC

step "the record's id on the InferenceService"
k --namespace demo wait isvc/iris --for=jsonpath="{.metadata.labels.${id_label//./\\.}}" --timeout=1m
record="$(k --namespace demo get isvc iris --output jsonpath="{.metadata.labels.${id_label//./\\.}}")"

if ! k --namespace kserve get deployment kserve-controller-manager >/dev/null 2>&1; then
  step "KServe, played: the InferenceService becomes ready"
  k --namespace demo patch isvc iris --subresource status --type merge --patch "
    {\"status\": {\"url\": \"$url\", \"conditions\": [{\"type\": \"Ready\", \"status\": \"True\"}]}}"
  for _ in $(seq 30); do
    k get --raw "$registry/inference_services/$record" | grep -F "$url" >/dev/null && break
    sleep 1
  done
  k get --raw "$registry/inference_services/$record" | grep -F "$url" >/dev/null ||
    { echo "the record did not get the url: see kubectl -n isvc-sync logs deployment/isvc-sync-consumer" >&2; exit 1; }
fi

step "record $record"
k --namespace demo get isvc iris --show-labels
k get --raw "$registry/inference_services/$record" | python3 -m json.tool
printf '\nDelete it all: kind delete cluster --name %s\n' "$cluster"
