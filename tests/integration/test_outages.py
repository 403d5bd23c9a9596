"""Servers that go away and come back: the pool loses time, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from harness import audit
from harness.scripted import land, pokes
from harness.service import Service
from harness.until import until
from sensorpool.model.states import State
from tests.integration.test_main_run import register

GROUPS = 30


def start(service: Service, folder: Path) -> list[int]:
    ids = register(service, folder, count=2 * GROUPS, groups=GROUPS)
    service.start(workers=2)
    until("pokes of all", lambda: len(pokes(folder)) == GROUPS)
    return ids


def finish(service: Service, folder: Path, ids: list[int]) -> None:
    for number in range(GROUPS):
        land(folder, f"g{number}")
    states = service.pool.wait(ids, 90)
    assert set(states.values()) == {State.SUCCESS}, service.logs()[-3000:]
    found = audit.read(service.pool.database)
    assert found.is_clean, found


def poked_since(folder: Path, at: float) -> bool:
    return all(any(poke.at > at for poke in some) for some in pokes(folder).values())


def test_redis_flushed_in_mid_run(service: Service, tmp_path: Path) -> None:
    ids = start(service, tmp_path)
    before = max(some[-1].at for some in pokes(tmp_path).values())
    for _ in range(3):
        service.pool.leases.store.client.flushdb()
        until("pokes after the flush", lambda at=before: poked_since(tmp_path, at))
        before = max(some[-1].at for some in pokes(tmp_path).values())
    finish(service, tmp_path, ids)


def test_redis_away_and_back(service: Service, tmp_path: Path, redis_server: Any) -> None:
    ids = start(service, tmp_path)
    redis_server.kill()
    try:
        done = service.cli("health")
        assert done.returncode == 1
        assert "does not answer" in done.stdout
        assert len(done.stdout.splitlines()) == 1
        # registrations go on without Redis
        more = register(service, tmp_path, count=GROUPS, groups=GROUPS, try_number=2)
    finally:
        redis_server.start()
    until("health", lambda: service.cli("health").returncode == 0, patience=90)
    superseded = service.pool.wait(ids[:GROUPS], 0)
    assert set(superseded.values()) == {State.CANCELLED}
    finish(service, tmp_path, more + ids[GROUPS:])


def test_the_database_away_and_back(service: Service, tmp_path: Path, postgres_server: Any) -> None:
    ids = start(service, tmp_path)
    postgres_server.kill()
    try:
        done = service.cli("status")
        assert done.returncode == 1
        assert "does not answer" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    finally:
        postgres_server.start()
    finish(service, tmp_path, ids)


@pytest.mark.parametrize("what", ["redis", "database"])
def test_unreachable_from_the_start_is_one_line(service: Service, what: str) -> None:
    away = {
        "redis": {"SENSORPOOL_REDIS_URL": "redis://:hush@127.0.0.1:1/0"},
        "database": {"SENSORPOOL_DATABASE_URL": "postgresql+psycopg://u:hush@127.0.0.1:1/x"},
    }[what]
    for command in ("status", "health"):
        done = service.cli(command, **away)
        said = done.stderr + done.stdout
        assert done.returncode == 1
        assert len(said.splitlines()) == 1, said
        assert "does not answer" in said
        assert "hush" not in said
