"""No secret of an object enters the broker, the registry or a log, wherever in the object it stands."""

import copy
import json
import re
from typing import Any

import pytest

from tests.e2e.pipeline import STREAMS, Pipeline
from tests.e2e.planted import (
    NEEDLE,
    planted,
    planted_llm,
    secret,
    secret_uri,
)
from tests.eventually import eventually


@pytest.fixture
async def talkative(tmp_path, guard):
    async with Pipeline(tmp_path, guard, environ={"LOG_LEVEL": "DEBUG"}) as pipeline:
        yield pipeline


async def test_no_secret_of_an_object_leaves_the_cluster(talkative):
    """Recorded, buried, changed and deleted ones: all forms in which an object travels."""
    objects = [
        planted("vault/recorded", "1"),
        planted("vault/buried", "999"),
        planted("vault/undecided", "latest"),
        planted_llm("vault/chat"),
    ]
    registry = talkative.registry.url.removeprefix("http://")
    for obj in objects:
        # Without its secrets the address of the registry, so that it is allowed.
        asked = f"http://user:{secret()}@{registry}/?signature={secret()}#{secret()}"
        obj["metadata"]["annotations"]["modelregistry.kubeflow.org/url"] = asked
        put(talkative, obj)
    await eventually(lambda: len(talkative.records()) == 2, "what names a model is recorded")
    put(talkative, changed(objects[0]))
    await talkative.settled()
    take_away(talkative, objects[0])
    await talkative.settled()

    found = await everything_said(talkative)
    assert len(found["messages"]) > 10
    silent = [place for place, said in found.items() if b"vault" not in b"".join(said)]
    assert silent == ["producer's log", "metrics"], "all others speak of the objects"
    leaks = {place: re.findall(rb".{60}hush\d+x", b"\n".join(said)) for place, said in found.items()}
    assert leaks == {place: [] for place in found}


def put(pipeline: Pipeline, obj: dict[str, Any]) -> None:
    """Store an object as it is: no webhook of a sandbox tidies it up, and its managedFields are seen."""
    kind = pipeline.cluster.kind(obj["kind"])
    pipeline.cluster.create_namespace(obj["metadata"]["namespace"])
    old = pipeline.cluster.get(obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])
    system = {"uid": f"uid-{obj['metadata']['name']}", "generation": 1, "creationTimestamp": "2026-11-30T00:00:00Z"}
    assert old is None or old["metadata"]["uid"] == system["uid"]
    obj["metadata"] |= system
    pipeline.cluster.cluster.restore(kind, obj, 1)
    stored = json.dumps(pipeline.cluster.get(obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]))
    assert stored.count(NEEDLE) > 20, "the secrets are in the cluster"


def changed(obj: dict[str, Any]) -> dict[str, Any]:
    other = copy.deepcopy(obj)
    other["spec"]["predictor"]["model"]["storageUri"] = secret_uri("gs")
    other["status"]["url"] = secret_uri("https") + "2"
    return other


def take_away(pipeline: Pipeline, obj: dict[str, Any]) -> None:
    kind = pipeline.cluster.kind(obj["kind"])
    pipeline.cluster.cluster.vanish(kind, f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", 1)


async def everything_said(pipeline: Pipeline) -> dict[str, list[bytes]]:
    """Return the bytes of all that left the cluster, by where it went."""
    records = pipeline.registry.registry.dump()
    return {
        "messages": [message.raw for message in await pipeline.messages(STREAMS.events)],
        "dead letters": [message.raw for message in await pipeline.messages(STREAMS.dlq)],
        "records": [json.dumps(record).encode() for records in records.values() for record in records],
        "consumer's log": pipeline.consumer.log().splitlines(),
        "producer's log": pipeline.producer.log().splitlines(),
        "metrics": [(await role.scrape()).encode() for role in (pipeline.producer, pipeline.consumer)],
    }
