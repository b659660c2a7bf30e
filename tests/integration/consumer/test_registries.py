"""Several registries at once, on real sockets: each object's record in its own, and trouble that stays where it is."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace
from opentelemetry.trace import NoOpTracer

import sandbox.registry
from consumer.act import Actor
from consumer.delivery.workqueue import WorkQueue
from consumer.discovery import DiscoverySettings, Located, Rule, Service
from consumer.handle import Handler, Hooks, Sources
from consumer.reconcile import How, Reconciler
from consumer.registries import CHOSEN_MAX, Opening, Registries
from consumer.requests.exchange import Instruments
from consumer.requests.registry_client import RegistryAccess
from consumer.worker import AT_HAND_MAX, Worker
from sandbox.faults import Fault
from shared.errors import NotSentError, PermanentError, TransientError
from tests.eventually import eventually
from tests.unit.consumer.custody import sole_owner
from tests.unit.consumer.deliveries import event_work
from tests.unit.consumer.fakes import FakeDeadLetters, FakeEvents, FakeKubernetes
from tests.unit.consumer.worlds import MODEL, PREFIX, SETTINGS, VERSION, an_object, seen

URL = PREFIX + "url"
CREATED = How(creates_first=True)


class Catalog:
    """Services as they are told, in the place of `ServiceCatalog`; `asked` are the ages that were accepted."""

    def __init__(self, *services: Service) -> None:
        self.known = list(services)
        self.live = list(services)
        self.asked: list[float] = []

    async def services(self, *, not_older_than_s: float = 30.0) -> tuple[Service, ...]:
        self.asked.append(not_older_than_s)
        if not_older_than_s < 30.0:
            self.known = list(self.live)
        return tuple(self.known)


class World:
    """Two registries that the consumer may use and one that it may not, and a consumer's inside."""

    def __init__(self, a, b, forbidden) -> None:
        self.a, self.b, self.forbidden = a, b, forbidden
        self.catalog = Catalog()
        self.circuits: list[tuple[str, str]] = []
        self.kubernetes = FakeKubernetes()
        self.dead_letters = FakeDeadLetters()
        self.registries = self.opened()

    def opened(self, **changes) -> Registries:
        allowed = tuple(each.url.removeprefix("http://") for each in (self.a, self.b))
        discovery = DiscoverySettings(prefix=PREFIX, url=self.a.url, allowed_hosts=allowed)
        opening = Opening(
            access=lambda address: RegistryAccess(base_url=address),
            in_flight=4,
            instruments=Instruments(NoOpTracer(), lambda *_: None),
            on_circuit=lambda name, state: self.circuits.append((name, state)),
            budget=lambda: 60.0,
            now=time.monotonic,
        )
        return Registries(opening, self.catalog, replace(discovery, **changes), SETTINGS)

    def reconciler(self) -> Reconciler:
        actor = Actor(self.kubernetes, SETTINGS, lambda _: None, lambda _: None)
        return Reconciler(actor, self.registries, SETTINGS, lambda *_: None)

    @asynccontextmanager
    async def working(self):
        """Run the real worker over the real handler; objects are given to it by `offer`."""
        actor = Actor(self.kubernetes, SETTINGS, lambda _: None, lambda _: None)
        reconciler = Reconciler(actor, self.registries, SETTINGS, lambda *_: None)
        hooks = Hooks(lambda: 0.5, lambda: "2026-11-30T12:00:00Z", lambda *_: None)
        handler = Handler(reconciler, Sources(FakeEvents(), actor.live), self.dead_letters, hooks)
        worker = Worker(WorkQueue(PREFIX), sole_owner())
        running = asyncio.create_task(worker.run(handler.handle))
        try:
            yield worker
            assert not running.done()
        finally:
            running.cancel()
            await worker.drain(0)
            await asyncio.wait([running])

    def names(self, server) -> set[str]:
        return {record["name"].partition("/")[0] for record in server.records("inference_services")}


@pytest.fixture
async def world():
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(sandbox.registry.serve()) for _ in range(3)]
        for server in servers:
            server.seed(
                registered_models=[{"id": "1", "name": "fraud"}],
                model_versions=[{"id": "11", "name": "1", "registeredModelId": "1"}],
            )
        made = World(*servers)
        yield made
        await made.registries.close()


def an_isvc(name: str, url: str = ""):
    obj = an_object({MODEL: "1", VERSION: "11"}, annotations={URL: url} if url else {})
    return replace(obj, metadata=replace(obj.metadata, name=name, uid=f"uid-{name}"))


def observed(name: str, url: str = ""):
    obj = an_isvc(name, url)
    found = seen(obj)
    return replace(found, uid=obj.metadata.uid, key=replace(found.key, name=name))


def offer(world: World, worker: Worker, name: str, url: str, sequence: int) -> None:
    obj = an_isvc(name, url)
    world.kubernetes.put(obj)
    worker.offer(event_work(obj, sequence=sequence))


# --- each in its own ---


async def test_each_object_is_recorded_in_the_registry_that_it_asks_for(world):
    reconciler = world.reconciler()
    for name, url in (("here", ""), ("there", world.b.url)):
        observation = observed(name, url)
        world.kubernetes.put(observation.obj)
        await reconciler.reconcile(observation, CREATED)
    assert (world.names(world.a), world.names(world.b)) == ({"here"}, {"there"})
    ids = [server.records("inference_services")[0]["id"] for server in (world.a, world.b)]
    assert ids[0] == ids[1], "the same id in two registries: two things"


async def test_each_registry_has_a_client_of_its_own_and_one_only(world):
    lookups = [await world.registries.choose(observed("x", url)) for url in ("", world.b.url, "", world.b.url)]
    assert lookups[0] is lookups[2] is not lookups[1] is lookups[3]
    assert lookups[0].place.environments is not lookups[1].place.environments
    assert world.registries.named(world.b.url) is lookups[1]


async def test_no_request_at_all_goes_to_a_server_that_is_not_allowed(world):
    with pytest.raises(PermanentError, match="REGISTRY_ALLOWED_HOSTS"):
        await world.registries.choose(observed("x", world.forbidden.url))
    result = await world.reconciler().reconcile(observed("x", world.forbidden.url), CREATED)
    assert "REGISTRY_ALLOWED_HOSTS" in result.rejections[0]
    assert world.forbidden.requests.total() == 0


async def test_a_redirect_to_a_server_that_is_not_allowed_is_not_followed(world):
    world.a.faults.set(Fault(error_rate=1.0, error_status=307, error_headers={"Location": world.forbidden.url + "/x"}))
    with pytest.raises(TransientError):
        await world.reconciler().reconcile(observed("x"), CREATED)
    assert world.a.faults.injected["error"]
    assert world.forbidden.requests.total() == 0


async def test_a_registry_that_is_not_allowed_is_a_dead_letter_that_names_the_setting(world):
    async with world.working() as worker:
        offer(world, worker, "x", world.forbidden.url, 1)
        await eventually(lambda: world.dead_letters.entries, "the dead letter")
    ((reason, _, _),) = world.dead_letters.entries.values()
    assert "REGISTRY_ALLOWED_HOSTS" in reason


async def test_a_rule_is_kept_to(world):
    world.registries = world.opened(rules=(Rule("team-a", (world.b.url,)),))
    with pytest.raises(PermanentError, match="REGISTRY_RULES"):
        await world.registries.choose(observed("x"))
    assert (await world.registries.choose(observed("x", world.b.url))).place.name == world.b.url


async def test_addresses_without_end_are_not_opened_and_take_no_place_from_others(world):
    named = f"{world.b.url}/named"
    world.registries = world.opened(namespaces=("kubeflow",), rules=(Rule("team-b", (named,)),))
    world.catalog.known = [service("mr-a")]
    for number in range(CHOSEN_MAX):
        await world.registries.choose(observed("x", f"{world.b.url}/{number}"))
    with pytest.raises(TransientError, match=f"objects have named {CHOSEN_MAX} others"):
        await world.registries.choose(observed("x", f"{world.b.url}/more"))
    assert (await world.registries.choose(observed("x", f"{world.b.url}/0"))).place.name == f"{world.b.url}/0"
    for url, name in (
        ("", world.a.url),
        (named, named),
        ("http://mr-a.kubeflow.svc.cluster.local:8080", "kubeflow/mr-a"),
    ):
        assert (await world.registries.choose(observed("x", url))).place.name == name


# --- Services that come, go and move ---


def service(name: str, port: int = 8080) -> Service:
    return Service("kubeflow", name, {"component": "model-registry"}, {}, {"http-api": port})


async def test_a_registry_that_is_installed_now_is_found_at_once(world):
    world.registries = world.opened(url=None, namespaces=("kubeflow",))
    with pytest.raises(TransientError, match="no Service there is labelled"):
        await world.registries.choose(observed("x"))
    world.catalog.live.append(service("mr-a"))
    assert (await world.registries.choose(observed("x"))).place.name == "kubeflow/mr-a"


async def test_what_is_clear_is_resolved_from_what_is_known(world):
    world.registries = world.opened(url=None, namespaces=("kubeflow",))
    world.catalog.known = [service("mr-a")]
    await world.registries.choose(observed("x"))
    assert world.catalog.asked == [30.0]


async def test_a_service_whose_address_changes_is_the_same_registry_at_another_address(world):
    world.registries = world.opened(url=None, namespaces=("kubeflow",))
    world.catalog.known = [service("mr-a")]
    before = await world.registries.choose(observed("x"))
    world.catalog.known = [service("mr-a", port=9090)]
    after = await world.registries.choose(observed("x"))
    assert before.place.name == after.place.name == "kubeflow/mr-a"
    assert before is not after is world.registries.named("kubeflow/mr-a")
    assert Located("kubeflow/mr-a", "x").name == after.place.name


# --- trouble stays where it is ---


async def test_a_registry_that_accepts_and_never_answers_stops_only_its_own_objects(world):
    world.b.faults.set(Fault(hang=True))
    async with world.working() as worker:
        for number in range(AT_HAND_MAX + 36):
            offer(world, worker, f"stuck-{number}", world.b.url, number)
        await eventually(lambda: world.b.requests.total() >= 1, "requests that hang")
        began = time.monotonic()
        for number in range(20):
            offer(world, worker, f"free-{number}", "", 1000 + number)
        await eventually(lambda: len(world.names(world.a)) == 20, "the objects of the other registry", 10.0)
        took_s = time.monotonic() - began
        assert took_s < 3.0, f"they waited {took_s:.1f} s for a registry that is not theirs"
        await eventually(lambda: (world.b.url, "open") in world.circuits, "the open circuit", 10.0)
        sent = world.b.requests.total()
        for number in range(20):
            offer(world, worker, f"free-too-{number}", "", 2000 + number)
        began = time.monotonic()
        await eventually(lambda: len(world.names(world.a)) == 40, "more objects of the other registry", 10.0)
        assert time.monotonic() - began < 3.0
        assert world.b.requests.total() - sent <= 1, "nothing but the probe leaves while the circuit is open"
        world.b.faults.clear()
        everything = AT_HAND_MAX + 36
        await eventually(lambda: len(world.names(world.b)) == everything, "the objects that were held", 20.0)
    assert world.b.faults.injected["hang"] >= 1
    assert world.circuits[-1] == (world.b.url, "closed")
    assert (world.a.url, "open") not in world.circuits
    assert world.dead_letters.entries == {}


async def test_after_an_outage_the_held_objects_are_done_within_seconds(world):
    world.a.faults.set(Fault(outage=True))
    async with world.working() as worker:
        for number in range(40):
            offer(world, worker, f"held-{number}", "", number)
        await eventually(lambda: (world.a.url, "open") in world.circuits, "the open circuit")
        await asyncio.sleep(3.0)
        requests = world.a.requests.total()
        world.a.faults.clear()
        began = time.monotonic()
        await eventually(lambda: len(world.names(world.a)) == 40, "the objects that were held", 10.0)
    assert time.monotonic() - began < 4.0
    assert requests < 40, "an outage is no reason to knock for each object"


async def test_a_hot_object_and_failing_ones_do_not_delay_another(world):
    world.registries = world.opened(namespaces=("kubeflow",))
    nowhere = {PREFIX + "name": "not-there"}
    async with world.working() as worker:
        for number in range(50):  # these fail for ever
            obj = an_isvc(f"failing-{number}")
            obj = replace(obj, metadata=replace(obj.metadata, labels=obj.metadata.labels | nowhere))
            worker.offer(event_work(obj, sequence=number))
        slowest_s = 0.0
        for number in range(20):
            for version in range(10):  # this one changes two hundred times
                obj = an_isvc("hot")
                version_label = {VERSION: "11" if version % 2 else ""}
                metadata = replace(obj.metadata, labels=obj.metadata.labels | version_label)
                metadata = replace(metadata, resource_version=str(100 + number * 10 + version))
                hot = replace(obj, metadata=metadata)
                world.kubernetes.put(hot)
                worker.offer(event_work(hot, sequence=1000 + number * 10 + version))
            began = time.monotonic()
            offer(world, worker, f"quiet-{number}", "", 5000 + number)
            await eventually(lambda name=f"quiet-{number}": name in world.names(world.a), "the quiet object")
            slowest_s = max(slowest_s, time.monotonic() - began)
        assert worker.held() >= 50, "the failing ones are still tried"
    assert "hot" in world.names(world.a)
    assert slowest_s < 1.5, f"a quiet object waited {slowest_s:.2f} s"


async def test_two_consumers_in_one_process_share_nothing(world):
    one, two = world.registries, world.opened()
    world.a.faults.set(Fault(outage=True))
    with pytest.raises(TransientError):
        await (await one.choose(observed("x"))).place.registry.find_environment("team-a")
    world.a.faults.clear()
    with pytest.raises(NotSentError):
        await (await one.choose(observed("x"))).place.registry.find_environment("team-a")
    assert await (await two.choose(observed("x"))).place.registry.find_environment("team-a") is None
    await two.close()


# --- our share of the requests in flight ---


@pytest.mark.parametrize("consumers", [1, 2, 4])
async def test_consumers_together_stay_within_the_limit(world, consumers):
    most = 0
    in_flight = 0

    def counted(registries: Registries) -> None:
        opened = registries._opened[world.a.url]
        send = opened.client._exchanger.send

        async def sending(*args):
            nonlocal most, in_flight
            in_flight += 1
            most = max(most, in_flight)
            try:
                return await send(*args)
            finally:
                in_flight -= 1

        opened.client._exchanger.send = sending

    world.a.faults.set(Fault(latency_s=0.01))
    members = [world.opened() for _ in range(consumers)]
    for registries in members:
        registries.resize(owned=16 // consumers, shards=16, members=consumers)
        lookup = await registries.choose(observed("x"))
        counted(registries)
        assert lookup.place.name == world.a.url
    calls = [
        registries.named(world.a.url).place.registry.find_record(f"k{n}") for registries in members for n in range(30)
    ]
    await asyncio.gather(*calls)
    assert most == 4
    for registries in members:
        await registries.close()


async def test_a_registry_that_is_opened_later_has_our_present_share(world):
    world.registries.resize(owned=4, shards=16, members=4)
    await world.registries.choose(observed("x"))
    assert world.registries._opened[world.a.url].limit._size == 1
    world.registries.resize(owned=16, shards=16, members=1)
    assert world.registries._opened[world.a.url].limit._size == 4
