"""A Redis that dies between a worker's receipt of jobs and its acks."""

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import redis

from harness.scripted import land
from harness.servers import RedisServer
from harness.service import Service, children
from harness.until import until
from tests.integration.test_main_run import register

CONCURRENCY = 2


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    """A service with one round of rescue only: without Redis that ends late, when the worker has seen its loss."""
    return make_service(rescue_interval=600.0)


def _stand_still(service: Service, redis_server: RedisServer, *options: str) -> list[psutil.Process]:
    """Return the children of a worker that has handed each of them a job, which stand still; Redis is dead."""
    worker = service.worker("--loglevel=DEBUG", *options)  # with a line for each job
    beat = service.beat()
    until("the first tick of every range", service.is_ready)
    standing = until("the children", lambda: found if len(found := children(worker)) == CONCURRENCY else None)
    until("the round of rescue", lambda: "sensorpool.rescue" in service.logs())
    beat.terminate()  # a child that stands still while it tells of a job would hold up the worker
    beat.wait(30)
    until("no job in hand", lambda: not _queued(service) and not _unfinished(service.logs()))
    for child in standing:
        child.suspend()
    for shard_range in service.pool.ranges[:CONCURRENCY]:
        service.pool.publisher.nudge(shard_range)
    until("jobs received", lambda: _unfinished(service.logs()) >= CONCURRENCY)
    redis_server.kill()
    return standing


def _queued(service: Service) -> int:
    with redis.Redis.from_url(service.settings.redis_url) as client:
        return int(client.llen("sensorpool:sensorpool"))


def _unfinished(logs: str) -> int:
    """Return how many jobs were received and have not ended."""
    return logs.count("] received") - logs.count("] succeeded in ") - logs.count("Discarding revoked task")


def test_a_worker_goes_on_after_acks_that_failed(service: Service, redis_server: RedisServer, tmp_path: Path) -> None:
    """One ack is enough: its failure tells the worker of the loss, which may drop the other job before its ack.

    A heartbeat would tell the worker too, and drop both.
    """
    for child in _stand_still(service, redis_server, "--without-heartbeat"):
        child.resume()
    until("an ack that fails", lambda: "Couldn't ack" in service.logs())
    redis_server.start()
    service.beat()
    ids = register(service, tmp_path, count=1, groups=1)
    land(tmp_path, "g0")
    assert [str(state) for state in service.pool.wait(ids, 60).values()] == ["success"], service.logs()[-3000:]


def test_a_worker_that_has_lost_redis_says_so_and_can_be_stopped(service: Service, redis_server: RedisServer) -> None:
    """It tries to send its heartbeat first, before it takes up the next job: that must not hold it up for ever.

    A child whose result was lost with the connection waits for 30 s until it ends: so long billiard gives the worker.
    """
    for child in _stand_still(service, redis_server):
        child.resume()
    until("a line", lambda: "Cannot connect to redis" in service.logs(), 30)
    service.processes[0].send_signal(signal.SIGTERM)
    assert service.processes[0].wait(90) == 0
