"""The official Python client works against the sandbox's registry, in an environment of its own."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox.registry import serve

STORY = Path(__file__).with_name("official_client_story.py")
PYTHON = Path(sys.prefix) / "official-client" / "bin" / "python"
TOKEN = "the-token-of-a-user"


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    """What the client saw, told once. In a thread, so that no test's event loop is touched."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, tell()).result()


async def tell() -> dict[str, Any]:
    async with serve() as server:
        server.switch(require_token=TOKEN)
        process = await asyncio.create_subprocess_exec(
            PYTHON, STORY, server.url, TOKEN, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        told: dict[str, Any] = json.loads(output.splitlines()[-1])
        return told


def test_it_registers_a_model_once_and_finds_it(story):
    first, found = story["model"]
    assert first == found
    assert story["unknown"] is None


def test_it_refuses_to_register_a_version_twice(story):
    assert story["again"] == "Version 1 already exists"


def test_it_reads_back_typed_metadata_and_the_artifact(story):
    assert story["metadata"] == {"accuracy": 0.9, "epochs": 3, "gpu": True, "note": "x"}
    assert story["artifact"] == ["fraud", "s3://bucket/fraud", "onnx"]


def test_it_pages_through_lists_to_their_end(story):
    assert story["models"] == ["fraud", "more-0", "more-1", "more-2"]
    assert story["newest first"] == ["2", "1"]


def test_it_updates_model_version_and_artifact(story):
    assert story["updated"] == ["m", "v", "a"]


@pytest.mark.parametrize("kind", ["environment", "service"])
def test_its_generated_layer_finds_the_serving_side_in_every_way(story, kind):
    assert len(set(story[kind])) == 1


def test_its_update_redeploys_an_undeployed_service_unasked(story):
    assert story["states"] == ["DEPLOYED", "UNDEPLOYED", "DEPLOYED"]


def test_it_reads_model_version_and_serve_models_of_a_service(story):
    assert story["of the service"] == [True, True, True]
