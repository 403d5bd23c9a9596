"""A pool leaves an HTTP server alone for as long as its Retry-After asks."""

import time
from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest

from harness.until import until
from sensorpool import Pool
from sensorpool.admin.status import status
from sensorpool.model.states import State
from sensorpool.worker.context import Worker
from tests.sensors.serving import Server, answer

TICK = 0.2
HTTP = "sensorpool.sensors.HttpSensor"
MANY = 300


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    """A pool with one range."""
    return make_pool(sensors_enabled=[HTTP], shards=1, tick=TICK, poke_interval=TICK, poke_concurrency=8)


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


@pytest.fixture
def other_server() -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


def run(worker: Worker, pool: Pool) -> None:
    """Run the job of the one range, as soon as a period of each group has begun, and wait for its slow pokes."""
    time.sleep(TICK)
    worker.run_job(pool.ranges[0], "us")
    until("the slow pokes to end", lambda: not worker.background.is_busy)


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
def test_a_server_that_asks_for_quiet_is_left_alone(
    pool: Pool, worker: Worker, server: Server, other_server: Server, code: int, as_date: bool
) -> None:
    quiet = formatdate(time.time() + 60, usegmt=True) if as_date else "60"
    for n in range(MANY):
        server.at[f"/{n}"] = answer(code, Retry_After=quiet)
    waiting = pool.register_many({"sensor": HTTP, "poke_context": {"url": f"{server.url}/{n}"}} for n in range(MANY))
    run(worker, pool)
    asked = len(server.asked)
    assert 0 < asked < MANY, "the first answer holds the others back"
    [told] = status(pool)["away"]
    assert (told["backend"], told["why"]) == (server.url, "throttled")
    assert 45 < told["asked_in_s"] <= 75
    other_server.at["/"] = answer(200)
    other = pool.register(HTTP, {"url": f"{other_server.url}/"})
    for _ in range(5):
        run(worker, pool)
    assert len(server.asked) == asked
    assert pool.wait([other.id], 0) == {other.id: State.SUCCESS}
    assert set(pool.wait([each.id for each in waiting], 0).values()) == {State.SENSING}


def test_it_is_asked_again_when_its_time_is_over(pool: Pool, worker: Worker, server: Server) -> None:
    server.at["/"] = answer(429, Retry_After="2")
    made = pool.register(HTTP, {"url": f"{server.url}/"})
    began = time.monotonic()
    run(worker, pool)
    assert len(server.asked) == 1
    server.at["/"] = answer(200)
    until("it lands", lambda: run(worker, pool) or pool.wait([made.id], 0) == {made.id: State.SUCCESS}, every=0.01)
    assert len(server.asked) == 2
    assert time.monotonic() - began > 2
