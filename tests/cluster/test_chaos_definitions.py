"""What an administrator does to the kinds and to the producer's account, under a stream of changes: a CRD is changed, a
CRD is deleted and created again, a token is good no more."""

import asyncio
import json

import pytest
import yaml

from shared.events import EventType
from shared.objects import Kind
from tests.cluster.chaos_world import chaos, installed, producer_token, wait_until_authorised
from tests.cluster.control_plane import CRDS
from tests.cluster.installation import NAMESPACE, service_account
from tests.cluster.remote_kserve import API_VERSIONS
from tests.eventually import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with installed(tmp_path_factory.mktemp("chaos-definitions")) as plane:
        yield plane


@pytest.fixture
async def world(plane, tmp_path):
    async with chaos(plane, tmp_path) as world:
        yield world


async def kubectl(world, *args: str, stdin: str | None = None) -> str:
    return await asyncio.to_thread(world.plane.kubectl, *args, stdin=stdin)


def definition(kind: Kind) -> str:
    return f"{kind.plural}.serving.kserve.io"


async def add_a_column(world, kind: Kind) -> None:
    """Change the definition of a kind as an upgrade does: the server ends its watches and forgets its history."""
    column = {"name": "More", "type": "string", "jsonPath": ".metadata.uid"}
    crd = json.loads(await kubectl(world, "get", "crd", definition(kind), "--output", "json"))
    patch = [
        {"op": "add", "path": f"/spec/versions/{number}/additionalPrinterColumns/-", "value": column}
        for number in range(len(crd["spec"]["versions"]))
    ]
    await kubectl(world, "patch", "crd", definition(kind), "--type=json", "--patch", json.dumps(patch))


async def closed(world) -> bool:
    return all([await world.restarts("closed", kind) for kind in Kind])


async def test_R11_a_changed_crd_ends_the_watches_and_costs_no_event(world, record_property):
    async def fault():
        for kind in Kind:
            await add_a_column(world, kind)
        await eventually(lambda: closed(world), "the server has ended both watches")

    took_s = await world.survive(fault)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")
    assert await world.tombstones_of_the_living() == []


async def test_R14_a_token_that_is_good_no_more_is_replaced_by_the_next_one_in_its_file(world, record_property):
    """A bound token lives for ten minutes at least, so its ServiceAccount is made anew instead of waiting for the end.

    Either is a 401, and an open watch goes on; so watches are ended. Nothing is concluded meanwhile.
    """
    plane, account = world.plane, service_account(world.plane, "producer")
    old = world.token_file.read_text()

    async def fault():
        await kubectl(world, "delete", "serviceaccount", account, "--namespace", NAMESPACE)
        await kubectl(world, "create", "serviceaccount", account, "--namespace", NAMESPACE)
        with plane.client(old) as refused:
            path = f"/apis/{API_VERSIONS[Kind.ISVC]}/{Kind.ISVC.plural}"
            await eventually(lambda: refused.get(path).status_code == 401, "the server refuses the old token", 30.0)
        said = len(world.stream.of(EventType.DELETED))
        for kind in Kind:
            await add_a_column(world, kind)
        await eventually(lambda: unauthorized(world), "the producer was told so", 30.0)
        assert not await world.producer.is_ready()
        deleted = world.stream.of(EventType.DELETED)[said:]
        assert not any(event.synthetic for event in deleted)
        await asyncio.to_thread(wait_until_authorised, plane)
        world.token_file.write_text(await asyncio.to_thread(producer_token, plane))

    took_s = await world.survive(fault)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")
    assert await world.tombstones_of_the_living() == []


async def unauthorized(world) -> bool:
    return all([await world.restarts("unauthorized", kind) for kind in Kind])


async def test_R15_R25_a_crd_that_is_deleted_takes_its_objects_and_one_made_again_brings_new_ones(
    world, record_property
):
    """Each object is seen to go; that the kind is absent then says nothing. The other kind goes on."""
    kind, other = Kind.ISVC, Kind.LLMISVC
    crd = next(
        text
        for path in sorted(CRDS.iterdir())
        if yaml.safe_load(text := path.read_text())["metadata"]["name"] == definition(kind)
    )
    before = {object_.uid for key, object_ in (await world.truth()).items() if key.kind is kind}

    async def fault():
        await kubectl(world, "delete", "crd", definition(kind))
        await eventually(lambda: world.restarts("absent", kind), "the producer was told that the kind is absent", 30.0)
        await eventually(lambda: all_gone(world, kind), "all objects of the kind have their tombstones")
        assert await world.producer.is_ready(), "a kind that is not installed has no objects"
        await world.writer.accepts(5)
        await kubectl(world, "apply", "--server-side", "-f", "-", stdin=crd)

    took_s = await world.survive(fault)
    record_property("figures", f"right again after {took_s:.1f} s; {await world.all_restarts()}")
    assert {world.stream.last_of[uid].type for uid in before} == {EventType.DELETED}
    assert not any(event.synthetic for event in world.stream.of(EventType.DELETED)), "each was seen to go"
    after = {key for key in await world.truth() if key.kind is kind}
    assert after, "objects were made again"
    assert await world.restarts("absent", other) == 0
    assert await world.tombstones_of_the_living() == []


def all_gone(world, kind: Kind) -> bool:
    return {event.type for key, event in world.stream.last.items() if key.kind is kind} == {EventType.DELETED}
