"""Two clusters of one name on one broker: the second refuses to start, whichever part of it comes when."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import nats
import pytest

from sandbox import cluster
from sandbox.cluster import ClusterSandbox
from sandbox.world import Options, World, world
from tests.cluster.processes import Guard
from tests.e2e.pipeline import STANDARD, STREAMS, SUBJECTS, isvc
from tests.e2e.role import Role
from tests.eventually import eventually

REFUSED = 2
LEASE_S = "3"


class Broker:
    """A fresh broker with two clusters of one name, `a` and `b`, and the registry of both."""

    def __init__(self, one: World, other: ClusterSandbox, directory: Path, guard: Guard, stack: AsyncExitStack) -> None:
        self.world = one
        self.clusters = {"a": one.cluster, "b": other}
        self._kubeconfigs = {"a": one.kubeconfig, "b": other.write_kubeconfig(directory / "kubeconfig-b")}
        self._directory = directory
        self._guard = guard
        self._stack = stack

    def role(self, module: str, of: str, pod: str = "") -> Role:
        """Return a process of cluster `of`, not started yet."""
        own = {"KUBECONFIG": str(self._kubeconfigs[of]), "POD_NAME": pod or f"{module}-{of}", "SHARD_LEASE_S": LEASE_S}
        role = Role(module, {**self.world.environ, **own}, self._directory / f"{module}-{of}.log", self._guard)
        self._stack.push_async_callback(role.close)
        return role

    def records(self, state: str) -> int:
        return sum(each["desiredState"] == state for each in self.world.registry.records("inference_services"))

    async def dead_letters(self) -> int:
        assert self.world.broker is not None
        client = await nats.connect(self.world.broker.url)
        try:
            return int((await client.jetstream().stream_info(STREAMS.dlq)).state.messages)
        finally:
            await client.close()


@pytest.fixture
async def broker(tmp_path, guard) -> AsyncIterator[Broker]:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(world(tmp_path, Options(kserve=False)))
        other = await stack.enter_async_context(cluster.serve(cluster.Settings(kserve=False)))
        one.registry.seed(registered_models=[{"id": "1", "name": "model-1"}])
        yield Broker(one, other, tmp_path, guard, stack)


async def has_refused(role: Role, *ids: str) -> None:
    """Assert that a process ends by itself, with the code of a refusal and one sentence that names both ids."""
    await eventually(lambda: role.has_died, "it refuses", 20)
    assert await role.stop() == REFUSED
    [line] = role.entries("ERROR")
    said = str(line)
    assert all(each in said for each in (*ids, "choose another CLUSTER_NAME")), said


def id_of(sandbox: ClusterSandbox) -> str:
    found = sandbox.get("Namespace", "", "kube-system")
    assert found is not None
    return str(found["metadata"]["uid"])


async def test_the_consumer_that_comes_second_to_a_fresh_broker_refuses_and_the_first_goes_on(broker):
    first, second = broker.role("consumer", "b"), broker.role("consumer", "a")
    await first.start()
    await second.launch()
    await has_refused(second, *(id_of(each) for each in broker.clusters.values()))
    assert await first.metric("isvc_sync_shards_owned") == SUBJECTS.shards
    assert await first.metric("isvc_sync_fences_lost_total") == 0


async def test_a_second_consumer_by_the_same_pod_name_refuses_too(broker):
    first, second = broker.role("consumer", "b", "consumer-0"), broker.role("consumer", "a", "consumer-0")
    await first.start()
    await second.launch()
    await has_refused(second)
    assert await first.metric("isvc_sync_shards_owned") == SUBJECTS.shards


async def test_a_consumer_at_whose_stream_another_cluster_turns_out_to_publish_ends_and_buries_nothing(broker):
    """The stranger's finding: consumer B, producer A; then A's objects come and go, and A's consumer records each."""
    theirs = broker.role("consumer", "b")
    await theirs.start()
    names = [f"team-a/iris-{number:02}" for number in range(32)]
    for name in names:
        broker.clusters["a"].create(isvc(name, model="1", annotations=STANDARD))
    await broker.role("producer", "a").start()
    await has_refused(theirs, *(id_of(each) for each in broker.clusters.values()))
    assert await broker.dead_letters() == 0
    ours = broker.role("consumer", "a")
    await ours.start()
    await eventually(lambda: broker.records("DEPLOYED") == len(names), "each is recorded", 30)
    for name in names[:20]:
        broker.clusters["a"].delete("InferenceService", *name.split("/"))
    await eventually(lambda: broker.records("UNDEPLOYED") == 20, "each end is recorded", 30)
    assert await broker.dead_letters() == 0


async def test_a_consumer_that_ends_because_the_stream_is_anothers_leaves_its_shards_free(broker):
    theirs = broker.role("consumer", "b")
    await theirs.start()
    broker.clusters["a"].create(isvc("team-a/iris", model="1", annotations=STANDARD))
    await broker.role("producer", "a").start()
    await has_refused(theirs)
    ours = broker.role("consumer", "a")
    await ours.start()
    assert await ours.metric("isvc_sync_shards_owned") == SUBJECTS.shards
    assert await ours.metric("isvc_sync_shard_takeovers_total", how="unclean") == 0
