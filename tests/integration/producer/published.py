"""Labels that are changed, and what the stream says by now: conditions that are waited for."""

import msgspec

from shared.events import decode

PATIENT_S = 20.0
VERSION = "modelregistry.kubeflow.org/model-version-id"


def relabel(world, name, value, namespace="ns"):
    world.cluster.patch("InferenceService", (namespace, name), {"metadata": {"labels": {VERSION: value}}})


async def len_is(world, name, count):
    return len(await world.events(name)) == count


async def last_is(world, name, what):
    message = await world.last(name)
    return message is not None and decode(message.headers).type == what


async def label_is(world, name, value):
    message = await world.last(name)
    return message is not None and msgspec.json.decode(message.data)["metadata"]["labels"].get(VERSION) == value


async def count_is(world, what, count):
    return (await world.said()).count(what) == count
