"""A database that answers and takes no writes: a standby behind the name of the primary, a read-only server."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, make_url, text

from harness.servers import PostgresServer
from sensorpool import Pool, Settings
from sensorpool.admin import findings
from sensorpool.errors import Unreachable
from sensorpool.model.states import State
from sensorpool.store.database import Database
from sensorpool.store.migrate import upgrade
from sensorpool.worker.context import Worker
from tests.faults.proxy import Proxy
from tests.integration.test_jobs import OURS, QUICK, Lands, job, register


class Standby(PostgresServer):
    """A standby with the data of a server that has stopped."""

    def __init__(self, primary: PostgresServer) -> None:
        self._of = primary
        super().__init__(primary.settings)
        self.password = primary.password

    def install(self) -> None:
        self._package = self._of._package
        data = self.folder / "data"
        shutil.copytree(self._of.folder / "data", data)
        (data / "standby.signal").touch()
        data.chmod(0o700)
        if self.account:
            for path in (data, *data.rglob("*")):
                shutil.chown(path, self.account.pw_uid, self.account.pw_gid)


def test_a_standby_behind_the_name_of_the_primary_fails_nobody(make_worker: Callable[[Settings], Worker]) -> None:
    """A landed group stays sensing while the standby answers, and settles as soon as the name leads to the primary."""
    with PostgresServer({"wal_level": "replica"}) as primary, Proxy(primary.port) as proxy:
        upgrade(primary.url)
        pool = Pool(Settings.load(database_url=proxy.url(primary.url), sensors_enabled=OURS, **QUICK))
        landing = register(pool, Lands)
        pool.close()
        primary.stop()
        with Standby(primary) as standby:
            primary.start()
            proxy.target = standby.port
            worker = make_worker(pool.settings)
            with worker.database.engine.connect() as one, worker.database.engine.connect() as other:
                for connection in (one, other):
                    assert connection.execute(text("SELECT pg_is_in_recovery()")).scalar_one()
            with pytest.raises(Unreachable, match="is read-only"):
                job(worker, pool)
            assert any("read-only" in problem for problem in findings.health(pool))
            assert pool.wait([landing], 0) == {landing: State.SENSING}
            with pytest.raises(Unreachable, match="is read-only"):
                register(pool, Lands, "other")
            proxy.target = primary.port
            job(worker, pool)
            assert pool.wait([landing], 0) == {landing: State.SUCCESS}
            assert not any("read-only" in problem for problem in findings.health(pool))
        pool.close()


def test_a_connection_that_may_only_read_leaves_the_pool(
    postgres_database: str, make_worker: Callable[[Settings], Worker]
) -> None:
    """A session that began read-only stays read-only."""
    pool = Pool(Settings.load(database_url=postgres_database, sensors_enabled=OURS, **QUICK))
    landing = register(pool, Lands)
    worker = make_worker(pool.settings)
    name = make_url(postgres_database).database
    told = f"ALTER DATABASE {name} SET default_transaction_read_only"
    pool.database.run(lambda connection: connection.execute(text(f"{told} = on")))
    worker.database.read(worker.database.now)
    pool.database.run(lambda connection: connection.execute(text(f"{told} = off")))
    job(worker, pool)
    assert pool.wait([landing], 0) == {landing: State.SUCCESS}
    pool.close()


@pytest.mark.mariadb
def test_a_read_only_mariadb_fails_nobody(
    mariadb_server: Any, mariadb_database: str, make_worker: Callable[[Settings], Worker]
) -> None:
    pool = Pool(Settings.load(database_url=mariadb_database, sensors_enabled=OURS, **QUICK))
    landing = register(pool, Lands)
    user = f"reads_{make_url(mariadb_database).database}"[:32]
    administrator = Database(mariadb_database)

    def tell(*statements: str) -> None:
        administrator.run(lambda connection: [connection.exec_driver_sql(each) for each in statements])

    database = make_url(mariadb_database).database
    tell(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'", f"GRANT ALL ON {database}.* TO {user}@'127.0.0.1'")
    url = make_url(mariadb_database).set(username=user, password="x").render_as_string(hide_password=False)
    worker = make_worker(Settings.load(database_url=url, sensors_enabled=OURS, **QUICK))
    tell("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(Unreachable, match="is read-only"):
            job(worker, pool)
        assert any("read-only" in problem for problem in findings.health(pool))
    finally:
        tell("SET GLOBAL read_only = 0")
    job(worker, pool)
    assert pool.wait([landing], 0) == {landing: State.SUCCESS}
    tell(f"DROP USER {user}@'127.0.0.1'")
    administrator.dispose()
    pool.close()


def test_a_file_that_may_only_be_read_fails_nobody(make_pool: Callable[..., Pool], make_worker: Any) -> None:
    pool = make_pool(sensors_enabled=OURS, **QUICK)
    landing = register(pool, Lands)
    worker = make_worker(pool.settings)

    @event.listens_for(worker.database.engine, "connect")
    def _read_only(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA query_only = ON")

    with pytest.raises(Unreachable, match="is read-only"):
        job(worker, pool)
    event.remove(worker.database.engine, "connect", _read_only)
    job(worker, pool)
    assert pool.wait([landing], 0) == {landing: State.SUCCESS}
