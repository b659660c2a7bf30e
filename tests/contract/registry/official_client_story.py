"""What a user of the official client does, run by the interpreter of its own environment: story.py URL TOKEN.

Prints what the client made of the answers, as JSON; test_official_client.py says what it must be.
"""

import asyncio
import json
import sys

from model_registry import ModelRegistry
from model_registry.exceptions import StoreError
from mr_openapi import (
    ApiClient,
    Configuration,
    InferenceServiceCreate,
    InferenceServiceUpdate,
    ModelRegistryServiceApi,
    ServeModelCreate,
    ServingEnvironmentCreate,
)


def models(url: str, token: str) -> dict[str, object]:
    registry = ModelRegistry(url, author="ana", user_token=token)
    seen: dict[str, object] = {"unknown": registry.get_registered_model("nobody")}
    for version in ("1", "2"):
        model = registry.register_model(
            "fraud",
            "s3://bucket/fraud",
            version=version,
            model_format_name="onnx",
            model_format_version="1",
            metadata={"accuracy": 0.9, "epochs": 3, "gpu": True, "note": "x"},
        )
    try:
        registry.register_model(
            "fraud", "s3://bucket/fraud", version="1", model_format_name="onnx", model_format_version="1"
        )
    except StoreError as error:
        seen["again"] = str(error)
    version = registry.get_model_version("fraud", "1")
    artifact = registry.get_model_artifact("fraud", "1")
    seen["model"] = [model.id, registry.get_registered_model("fraud").id]
    seen["metadata"] = version.custom_properties
    seen["artifact"] = [artifact.name, artifact.uri, artifact.model_format_name]
    for number in range(3):
        registry.register_model(
            f"more-{number}", "s3://b", version="1", model_format_name="onnx", model_format_version="1"
        )
    seen["models"] = [model.name for model in registry.get_registered_models().page_size(2)]
    seen["newest first"] = [
        version.name for version in registry.get_model_versions("fraud").order_by_creation_time().descending()
    ]
    model.description, version.description, artifact.description = "m", "v", "a"
    seen["updated"] = [registry.update(record).description for record in (model, version, artifact)]
    return seen


async def serving(url: str, token: str) -> dict[str, object]:
    async with ApiClient(Configuration(host=url, access_token=token)) as client:
        api = ModelRegistryServiceApi(client)
        model = await api.find_registered_model(name="fraud")
        version = await api.find_model_version(name="1", parent_resource_id=model.id)
        environment = await api.create_serving_environment(ServingEnvironmentCreate(name="team-a"))
        create = InferenceServiceCreate(
            name="iris/5a1e",
            external_id="kserve:5a1e/1",
            registered_model_id=model.id,
            serving_environment_id=environment.id,
            model_version_id=version.id,
        )
        service = await api.create_inference_service(create)
        found = await api.find_inference_service(external_id="kserve:5a1e/1")
        undeployed = await api.update_inference_service(service.id, InferenceServiceUpdate(desired_state="UNDEPLOYED"))
        redeployed = await api.update_inference_service(service.id, InferenceServiceUpdate(description="x"))
        serve = await api.create_inference_service_serve(
            service.id, ServeModelCreate(name="s1", model_version_id=version.id)
        )
        return {
            "environment": [
                environment.id,
                (await api.find_serving_environment(name="team-a")).id,
                (await api.get_serving_environment(environment.id)).id,
                (await api.get_serving_environments()).items[0].id,
            ],
            "service": [
                service.id,
                found.id,
                (await api.get_inference_service(service.id)).id,
                (await api.get_inference_services()).items[0].id,
                (await api.get_environment_inference_services(environment.id)).items[0].id,
            ],
            "states": [service.desired_state, undeployed.desired_state, redeployed.desired_state],
            "of the service": [
                (await api.get_inference_service_model(service.id)).id == model.id,
                (await api.get_inference_service_version(service.id)).id == version.id,
                (await api.get_inference_service_serves(service.id)).items[0].id == serve.id,
            ],
        }


if __name__ == "__main__":
    address, bearer = sys.argv[1:]
    story = models(address, bearer)
    sys.stdout.write(json.dumps(story | asyncio.run(serving(address, bearer))))
