"""`shard_of` against the function that it copies: the subject transform `partition()` of a real nats-server."""

import asyncio
import random

import nats

from sandbox.broker import NatsOptions, NatsServer
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects, escape, shard_of

SHARDS = 16
NAMES = 500
MAPPING = f'mappings: {{ "ask.*.*": "shard.{{{{partition({SHARDS},1,2)}}}}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}" }}'


def random_keys() -> list[ObjectKey]:
    chance = random.Random(16)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-._äß雪"

    def name() -> str:
        return "".join(chance.choices(letters, k=chance.randrange(1, 40)))

    return [ObjectKey(Kind.ISVC, name(), name()) for _ in range(NAMES)]


async def test_shards_are_those_of_the_servers_own_partition_function(tmp_path):
    keys = random_keys()
    async with NatsServer(tmp_path, NatsOptions(jetstream=False, extra=MAPPING)) as server:
        client = await nats.connect(server.url)
        try:
            answers = await client.subscribe("shard.*.*.*")
            for key in keys:
                await client.publish(f"ask.{escape(key.namespace)}.{escape(key.name)}", b"")
            async with asyncio.timeout(10):
                mapped = [(await answers.next_msg()).subject for _ in keys]
        finally:
            await client.close()
    assert mapped == [f"shard.{shard_of(key, SHARDS)}.{escape(key.namespace)}.{escape(key.name)}" for key in keys]
    assert len({subject.split(".")[1] for subject in mapped}) == SHARDS


async def test_the_server_takes_the_subject_of_any_name(tmp_path):
    subjects = Subjects("isvc", "prod.a > *", SHARDS)
    async with NatsServer(tmp_path, NatsOptions(jetstream=False)) as server:
        client = await nats.connect(server.url)
        try:
            everything = await client.subscribe(subjects.everything())
            sent = [subjects.event(key) for key in random_keys()[:50]]
            for subject in sent:
                await client.publish(subject, b"")
            async with asyncio.timeout(10):
                got = [(await everything.next_msg()).subject for _ in sent]
        finally:
            await client.close()
    assert got == sent
