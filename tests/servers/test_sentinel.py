"""A pool whose Redis is named by Sentinels: it goes on with the replica when the primary dies, or stands still."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers.sentinels import Watched, watched_redis
from harness.service import Service
from harness.until import until
from sensorpool.testing import land
from tests.integration.test_main_run import register


@pytest.fixture
def watched() -> Iterator[Watched]:
    with watched_redis() as servers:
        yield servers


@pytest.fixture
def service(watched: Watched, tmp_path: Path, postgres_database: str) -> Iterator[Service]:
    made = Service(tmp_path, postgres_database, watched.url)
    yield made
    made.stop()


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_failover(service: Service, watched: Watched, tmp_path: Path, fault: str) -> None:
    service.start(workers=2)
    ids = register(service, tmp_path, count=40, groups=20)
    land(tmp_path, "g0")
    until("what lands before", lambda: "success" in set(map(str, service.pool.wait(ids, 0).values())))
    getattr(watched.primary, fault)()
    struck = time.monotonic()
    until("the failover", watched.is_promoted, 60)
    for number in range(1, 20):
        land(tmp_path, f"g{number}")
    states = set(map(str, service.pool.wait(ids, 120).values()))
    assert states == {"success"}, service.logs()[-4000:]
    print(f"\n{fault}: all settled {time.monotonic() - struck:.1f} s after the primary was lost")
    until("a healthy pool", lambda: service.cli("health").returncode == 0, 60)
    new = register(service, tmp_path, count=1, groups=1, run_id="afterwards")
    assert set(map(str, service.pool.wait(new, 60).values())) == {"success"}


def test_doctor_and_health_know_it(service: Service, watched: Watched) -> None:
    service.start()
    until("health", lambda: service.cli("health").returncode == 0)
    said = service.cli("doctor").stdout
    assert watched.primary.password not in said
    assert "sentinel://" in said


def test_sentinels_that_know_no_such_redis(service: Service, watched: Watched) -> None:
    wrong = watched.url.replace("master_name=pool", "master_name=other")
    done = service.cli("health", SENSORPOOL_REDIS_URL=wrong)
    assert done.returncode == 1
    assert "other" in done.stdout
    assert watched.primary.password not in done.stdout + done.stderr
