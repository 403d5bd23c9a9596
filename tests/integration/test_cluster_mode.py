"""A Redis in cluster mode is refused by name: its commands have keys of one slot only."""

from collections.abc import Callable, Iterator

import pytest
import redis
from redis.exceptions import ResponseError

from harness.servers import Missing, RedisServer
from harness.service import Service
from harness.until import until
from sensorpool import Pool
from sensorpool.admin import findings
from sensorpool.errors import SettingsError
from sensorpool.service.refusals import refuse_cluster

SLOTS = 16_384


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisServer]:
    """A cluster of one node, which has all slots."""
    try:
        server = RedisServer({"cluster-enabled": "yes"})
    except Missing as missing:
        pytest.skip(str(missing))
    with server, redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        until("all slots", lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True))
        with pytest.raises(ResponseError, match="hash to the same slot"):
            client.exists("{a}", "{b}")
        yield server


def test_a_worker_does_not_start(service: Service, cluster: RedisServer) -> None:
    worker = service.worker(SENSORPOOL_REDIS_URL=cluster.url)
    assert worker.wait(60) == 1
    [said] = [line for line in service.logs().splitlines() if line.startswith("sensorpool: Redis")]
    assert said.endswith(
        "is in cluster mode, where leases and Celery cannot work: name a single Redis, or a primary with replicas"
    )
    assert cluster.password not in service.logs()


def test_health_and_doctor_name_it(make_pool: Callable[..., Pool], cluster: RedisServer) -> None:
    pool = make_pool(redis_url=cluster.url)
    [problem] = findings.health(pool)
    found = {each.subject: each for each in findings.doctor(pool.settings)}
    assert "is in cluster mode" in problem
    assert (found["redis"].level, found["redis"].said) == ("wrong", problem)


def test_as_a_broker_alone_too(make_pool: Callable[..., Pool], cluster: RedisServer, redis_url: str) -> None:
    pool = make_pool(redis_url=redis_url, broker_url=cluster.url)
    with pytest.raises(SettingsError, match="is in cluster mode"):
        refuse_cluster(pool.settings)
    found = {each.subject: each for each in findings.doctor(pool.settings)}
    assert (found["redis"].level, found["broker"].level) == ("ok", "wrong")
    assert "is in cluster mode" in found["broker"].said


def test_a_cluster_without_its_slots_is_one_too(make_pool: Callable[..., Pool]) -> None:
    try:
        server = RedisServer({"cluster-enabled": "yes"})
    except Missing as missing:
        pytest.skip(str(missing))
    with server, pytest.raises(SettingsError, match="is in cluster mode"):
        refuse_cluster(make_pool(redis_url=server.url).settings)


def test_a_broker_that_is_away_is_waited_for(make_pool: Callable[..., Pool], redis_url: str) -> None:
    refuse_cluster(make_pool(redis_url=redis_url, broker_url="redis://127.0.0.1:1/0").settings)
