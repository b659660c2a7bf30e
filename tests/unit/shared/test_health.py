"""The health server over real HTTP: what each path answers, and that a stuck event loop gets an answer, too."""

import asyncio
import http.client
import threading
import time

import pytest

from shared.errors import RefusedToStartError
from shared.health import Health, HealthSettings, serving

LOCAL = HealthSettings(health_host="127.0.0.1", health_port=0)


def metrics() -> tuple[str, bytes]:
    return "text/plain; version=0.0.4", b"up 1\n"


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(stuck_after_s=5, now=clock)


@pytest.fixture
def port(health):
    with serving(LOCAL, health, metrics) as port:
        yield port


def test_a_process_that_ticks_is_live_and_ready(port):
    assert ask(port, "/healthz") == (200, "event loop: ok\n")
    assert ask(port, "/readyz") == (200, "event loop: ok\n")


def test_liveness_fails_when_the_loop_has_not_ticked_in_time(port, clock):
    clock.now += 5.0
    assert ask(port, "/healthz")[0] == 200
    clock.now += 0.1
    assert ask(port, "/healthz") == (503, "event loop: the event loop has not run for 5.1 s\n")


def test_a_tick_heals_liveness(port, health, clock):
    clock.now += 60
    health.tick()
    assert ask(port, "/healthz")[0] == 200


def test_a_missing_dependency_fails_readiness_only_and_is_named(port, health):
    health.add_check("broker", lambda: "no answer for 12 s")
    health.add_check("lease", lambda: None)
    assert ask(port, "/readyz") == (503, "event loop: ok\nbroker: no answer for 12 s\nlease: ok\n")
    assert ask(port, "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("end", "told"),
    [("returns", "ended"), ("raises", "ended with ValueError"), ("is cancelled", "was cancelled")],
)
async def test_liveness_fails_for_ever_once_a_critical_task_has_ended(port, health, end, told):
    async def work() -> None:
        if end == "raises":
            raise ValueError
        if end == "is cancelled":
            await asyncio.Event().wait()

    task = asyncio.create_task(work(), name="watch isvc")
    health.watch_task(task)
    assert ask(port, "/healthz")[0] == 200
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    health.tick()
    assert ask(port, "/healthz") == (503, f"event loop: ok\nwatch isvc: the task watch isvc {told}\n")


def test_metrics_are_served_with_their_content_type(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    assert (response.headers["Content-Type"], response.read()) == metrics()
    connection.close()


@pytest.mark.parametrize("path", ["/", "/healthz/x", "/debug", "/../etc/passwd"])
def test_other_paths_are_not_found(port, path):
    assert ask(port, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_methods_are_refused(port, method):
    assert ask(port, "/healthz", method)[0] == 501


def test_head_answers_without_a_body(port):
    assert ask(port, "/readyz?verbose", "HEAD") == (200, "")


async def test_a_stuck_event_loop_is_answered_with_503_instead_of_silence():
    health = Health(stuck_after_s=0.05)
    answers: list[tuple[int, str]] = []

    def ask_until_503(port: int) -> None:
        deadline = time.monotonic() + 5
        while (answer := ask(port, "/healthz"))[0] != 503 and time.monotonic() < deadline:
            pass
        answers.append(answer)

    with serving(LOCAL, health, metrics) as port:
        ticking = asyncio.create_task(health.keep_ticking())
        await asyncio.sleep(0)
        probe = threading.Thread(target=ask_until_503, args=[port])
        probe.start()
        probe.join()  # blocks the loop on purpose
        ticking.cancel()
    assert answers[0][0] == 503


async def test_the_ticker_calls_its_hook_at_each_tick(clock):
    health = Health(stuck_after_s=5, now=clock)
    ticks: list[float] = []
    clock.now += 60
    ticking = asyncio.create_task(health.keep_ticking(lambda: ticks.append(clock.now)))
    await asyncio.sleep(0)
    ticking.cancel()
    assert ticks == [clock.now]
    assert health.live() == {"event loop": None}


def test_a_port_in_use_is_told_with_the_way_out(port, health):
    taken = HealthSettings(health_host="127.0.0.1", health_port=port)
    with (
        pytest.raises(RefusedToStartError, match=rf"cannot listen on 127.0.0.1:{port} .*HEALTH_PORT"),
        serving(taken, health, metrics),
    ):
        pytest.fail("two servers on one port")


def test_the_port_is_free_again_when_the_block_ends(health):
    with serving(LOCAL, health, metrics) as port:
        pass
    with serving(HealthSettings(health_host="127.0.0.1", health_port=port), health, metrics) as again:
        assert again == port


def test_a_check_that_fails_itself_is_an_answer(caplog):
    health = Health(stuck_after_s=60)
    health.add_check("odd", lambda: str({}["nothing"]))
    assert health.ready()["odd"] == "the check itself failed: KeyError"
    assert "a readiness check failed" in caplog.text
