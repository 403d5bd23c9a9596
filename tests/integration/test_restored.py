"""`sensorpool db restored`: after a restore from a backup, nothing of the time since the backup counts."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from sqlalchemy import update

from harness.scripted import land
from harness.service import Service, kill_tree
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.admin.actions import begin_epoch
from sensorpool.errors import Refused
from sensorpool.store.migrate import upgrade
from sensorpool.store.schema import sensor_instance
from tests.integration.test_main_run import register

SENSOR = "sensorpool.sensors.PathSensor"


def begin(url: str) -> None:
    upgrade(url)
    pool = Pool(Settings.load(database_url=url))
    first = pool.register(SENSOR, {"path": "/a"})
    before = pool.pool_id.get()
    began = time.time()
    found = begin_epoch(pool)
    assert found.pool_id != before
    assert found.waiting == 1
    second = pool.register(SENSOR, {"path": "/b"})
    assert min(second.id, second.group_id) >= began * 1e6 - 10_000 > first.id  # two clocks may differ by some ms
    begin_epoch(pool)
    assert pool.register(SENSOR, {"path": "/c"}).id > second.id + 1
    pool.close()


def test_ids_are_not_given_again(tmp_path: Path, postgres_database: str) -> None:
    begin(f"sqlite:///{tmp_path / 'pool.db'}")
    begin(postgres_database)


def test_one_backup_restored_twice_gives_other_ids(tmp_path: Path) -> None:
    kept, given = tmp_path / "kept.db", set[int]()
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    shutil.copy(tmp_path / "pool.db", kept)
    for _ in range(3):
        pool = Pool(Settings.load(database_url=url))
        begin_epoch(pool)
        ids = [pool.register(SENSOR, {"path": f"/{number}"}).id for number in range(5)]
        pool.close()
        assert min(ids) > max(given, default=0)
        given.update(ids)
        shutil.copy(kept, tmp_path / "pool.db")


def test_ids_are_not_given_again_when_the_clock_has_gone_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    pool = Pool(Settings.load(database_url=url))
    pool.register(SENSOR, {"path": "/a"})
    later = 10**6 * (int(time.time()) + 86_400)
    pool.database.run(lambda connection: connection.execute(update(sensor_instance).values(id=later)))
    begin_epoch(pool)
    assert pool.register(SENSOR, {"path": "/b"}).id == later + 1
    pool.close()


def test_ids_are_not_given_again_on_mariadb(mariadb_database: str) -> None:
    begin(mariadb_database)


def test_a_restore_beside_running_workers_is_refused(
    make_service: Callable[..., Service], tmp_path: Path, redis_url: str
) -> None:
    service = make_service()
    service.start()
    ids = register(service, tmp_path, count=4, groups=2)
    with pytest.raises(Refused, match="stop all workers"):
        begin_epoch(service.pool)
    done = service.cli("db", "restored")
    assert done.returncode == 2
    assert "stop all workers and beats" in done.stderr
    for process in service.processes:
        kill_tree(process)
    until("an empty roster", lambda: not service.pool.workers(), 30)
    with redis.Redis.from_url(redis_url) as client:
        client.set("sensorpool:other:{pool}:roster", "of another namespace")
        client.set("others", "of another program")
        assert service.cli("db", "restored").returncode == 0
        assert client.keys("sensorpool:{*") == []
        assert client.exists("sensorpool:other:{pool}:roster", "others") == 2
    service.start()
    land(tmp_path, "g0")
    land(tmp_path, "g1")
    again = register(service, tmp_path, count=1, groups=1, run_id="after")  # by a client that knew the old epoch
    assert set(map(str, service.pool.wait([*ids, *again], 60).values())) == {"success"}
