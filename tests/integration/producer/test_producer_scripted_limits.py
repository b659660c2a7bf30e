"""Memory, connections, proxies and readiness of a producer that follows a script."""

import asyncio
import gc
import tracemalloc

import httpx
import msgspec

from producer import reflector
from shared.cluster import ClusterSettings, client, load_cluster
from tests.eventually import eventually
from tests.integration.producer.scripted import (
    CHATTER,
    EXPIRED,
    NO_WATCH_LIST,
    initial,
    listing,
    watch,
)


async def test_R05_an_initial_state_far_larger_than_memory_may_be_passes_line_by_line(stage, cluster):
    for number in range(30):
        cluster.create(f"m{number:02}", managedFields=["x" * 500_000])
    lines = [cluster.state(name) for name in sorted(cluster.objects)]
    script = initial(cluster.version, *lines, cluster.initial().splitlines(keepends=True)[-1], end=CHATTER)
    stage.server.script.append(script)
    for found in cluster.objects.values():
        found["metadata"].pop("managedFields", None)
    tracemalloc.start()
    try:
        async with stage.producing():
            await stage.settled(34)
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, lines)) > 15_000_000
    assert peak < 6_000_000
    await stage.check()


async def test_R23_watch_and_list_never_share_a_connection(stage, cluster):
    pages = [listing(13, cluster.page("a", "b", token="t")), listing(13, cluster.page("c"), "t")]
    watches = [watch(13, cluster.delete("a")), watch(14, cluster.create("a"))]
    last = watch(15, cluster.modify("b", model="6"), end=CHATTER)
    await stage.perform(NO_WATCH_LIST, *pages, *watches, last)
    kinds = [{"list" if asked.startswith("list") else "watch" for asked in one} for one in stage.server.connections]
    assert all(len(one) <= 1 for one in kinds)
    assert {"list"} in kinds


async def test_R23_a_connection_is_made_within_5_s(stage):
    config = load_cluster(stage.world.settings.cluster, {})
    for use in ("watch", "control"):
        async with client(config, use=use, role="producer") as http:
            assert http.timeout.connect == 5.0


async def test_R24_the_proxy_of_the_environment_is_not_used_and_the_configured_one_is(stage, cluster, monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await stage.perform(initial(cluster.version, cluster.initial(), end=CHATTER))
    unreachable = stage.token.with_name("elsewhere")
    unreachable.write_text(
        stage.token.with_name("kubeconfig").read_text().replace(stage.server.url, "http://x.invalid")
    )
    settings = ClusterSettings(kubeconfig=str(unreachable), kubernetes_proxy=stage.server.url)
    stage.world.settings = msgspec.structs.replace(stage.world.settings, cluster=settings)
    cluster.delete("b")
    await stage.perform(initial(cluster.version, cluster.initial(), end=CHATTER))
    assert len(stage.server.asked) == 2


async def test_R35_relists_leave_nothing_behind(stage, cluster):
    def again(count):
        return [
            part
            for _ in range(count)
            for part in [initial(cluster.version, cluster.initial(), cluster.modify("a", model="1")), EXPIRED]
        ]

    gate = asyncio.Event()
    first = initial(cluster.version, cluster.initial(), gate)
    stage.server.script.extend(
        [*again(5), first, EXPIRED, *again(10), initial(cluster.version, cluster.initial(), end=CHATTER)]
    )
    async with stage.producing():
        await eventually(lambda: len(stage.server.asked) == 11)
        gc.collect()
        before = len(gc.get_objects())
        gate.set()
        await eventually(lambda: stage.server.finished or stage.server.wrong)
        await eventually(stage.agrees)
        gc.collect()
        assert len(gc.get_objects()) - before < 500
    await stage.check()


async def test_R42_a_watch_that_says_nothing_for_too_long_is_not_ready_and_alive(stage, cluster, caplog, monkeypatch):
    caplog.set_level("INFO")
    monkeypatch.setattr(reflector, "FRESH_S", 1.0)
    unready = asyncio.Event()
    # The empty lines of the end are no sign of life; the bookmark is one, for so long.
    stage.server.script.append(initial(cluster.version, cluster.initial(), unready, cluster.bookmark(), end=CHATTER))
    async with stage.producing(), httpx.AsyncClient() as http:
        await stage.settled(4)
        port = next(record.health_port for record in caplog.records if hasattr(record, "health_port"))

        async def said():
            return (await http.get(f"http://127.0.0.1:{port}/readyz")).text

        async def silent():
            return "the watch has been silent" in await said()

        await eventually(silent)
        assert (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
        unready.set()

        async def ready():
            return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200

        await eventually(ready)
        await eventually(silent)
    await stage.check()
