"""Faults 18-22 and 24: the database restarts, goes away, loses answers, deadlocks, is full. All is settled, once."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError

from tests.faults.stand import Stand
from tests.faults.trial import lasts, outage
from tests.servers import PostgresServer
from tests.service import until


def test_restarted(stand: Stand, postgres_server: PostgresServer) -> None:
    for trial in stand.trials("18 PostgreSQL killed and started", full=20):
        with trial.fault():
            postgres_server.kill()
            postgres_server.start()
        trial.end()


def test_down(stand: Stand) -> None:
    """Row 24 as well: Redis can be reached. Who was poked meanwhile is poked again, and nobody has timed out."""
    for trial in stand.trials("19 PostgreSQL down (24: Redis is not)", full=3):
        with trial.fault():
            stand.postgres.refuse()
            down = time.time()
            lasts(outage(5.0))
            gone = [poke for some in trial.pokes().values() for poke in some if poke.at > down + 1]
            assert len(gone) == 0, "a poke storm without a database to ask"
            stand.postgres.heal()
        trial.end()


def test_half_open(stand: Stand) -> None:
    for trial in stand.trials("19 PostgreSQL a black hole (half-open connections)", full=3):
        with trial.fault():
            stand.postgres.swallow()
            lasts(outage(5.0))
            stand.postgres.reset()
            stand.postgres.heal()
        trial.end()


def test_commit_whose_answer_is_lost(stand: Stand) -> None:
    """The commit counted, and whoever made it does not know: the row counts say so when it comes again."""
    for trial in stand.trials("20 COMMIT acknowledged, the answer lost", full=50):
        with trial.fault():
            before = stand.postgres.cut
            stand.postgres.cut_answer(b"COMMIT", times=3)
            until("three lost answers", lambda before=before: stand.postgres.cut == before + 3)
        trial.end()


def test_deadlock(stand: Stand) -> None:
    """Somebody locks the groups one after the other, the wrong way round, while they are settled."""
    url = _plain(stand)
    # so many that some are settled together
    for trial in stand.trials("21 deadlock", full=10, groups=120, sensors=120):
        deadlocks = _deadlocks(stand)
        with trial.fault(), psycopg.connect(url) as theirs:
            query = "SELECT id, poke_context::jsonb ->> 'name' FROM poke_group ORDER BY hashcode DESC"
            landing = trial.names[1::2]  # not true yet, so they are there until we let them be settled
            group_ids = [row[0] for row in theirs.execute(query).fetchall() if row[1] in landing]
            theirs.execute("SET deadlock_timeout = '10s'")  # so that ours is the one that is given up
            theirs.execute("SELECT id FROM poke_group WHERE id = %s FOR UPDATE", [group_ids[0]])
            trial.land(trial.names)
            until("ours to wait", lambda: _is_waiting(stand))
            done = threading.Thread(target=_lock_all, args=(theirs, group_ids))
            done.start()
            done.join(60)
            theirs.rollback()
        until("a deadlock", lambda before=deadlocks: _deadlocks(stand) > before)
        trial.end()


def test_serialization_failure(stand: Stand) -> None:
    for trial in stand.trials("21 serialization failures (40001)", full=20):
        stand.sql(
            "CREATE SEQUENCE failures",
            """CREATE FUNCTION fail_some() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval('failures') <= 3 THEN RAISE EXCEPTION 'as told' USING ERRCODE = '40001'; END IF;
                 RETURN NULL; END $$""",
            "CREATE TRIGGER fail_some AFTER UPDATE ON sensor_instance EXECUTE FUNCTION fail_some()",
        )
        with trial.fault():
            until("three failures", lambda: _last_value(stand) >= 3)
        trial.end()
        stand.sql("DROP TRIGGER fail_some ON sensor_instance", "DROP FUNCTION fail_some", "DROP SEQUENCE failures")


def test_no_connection_left(stand: Stand, postgres_server: PostgresServer) -> None:
    url = _plain(stand)
    for trial in stand.trials("22 no connection left in PostgreSQL", full=10):
        taken: list[psycopg.Connection[object]] = []
        with trial.fault():
            try:
                while True:
                    taken.append(psycopg.connect(url))
            except psycopg.OperationalError:
                pass
            stand.postgres.reset()  # whoever is connected has to come again
            lasts(outage(3.0))
            for connection in taken:
                connection.close()
        trial.end()


def test_disk_full(stand: Stand, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk can be mounted by root only")
    with _small_disk(tmp_path) as disk:
        stand.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
        try:
            for trial in stand.trials("22 the database's disk full", full=3):
                stand.sql("ALTER TABLE sensor_instance SET TABLESPACE small")
                stand.sql("ALTER TABLE sensorpool_outbox SET TABLESPACE small")
                with trial.fault():
                    _fill(stand)
                    lasts(outage(3.0, full=20.0))
                    stand.sql("DROP TABLE ballast")
                trial.end()
        finally:
            stand.sql(
                "DROP TABLE IF EXISTS ballast",
                "ALTER TABLE sensor_instance SET TABLESPACE pg_default",
                "ALTER TABLE sensorpool_outbox SET TABLESPACE pg_default",
                "DROP TABLESPACE small",
            )


def _plain(stand: Stand) -> str:
    url = make_url(stand.service.settings.database_url).set(drivername="postgresql")
    return url.render_as_string(hide_password=False)


def _one(stand: Stand, query: str) -> int:
    return int(stand.service.pool.database.read(lambda c: c.execute(text(query))).scalar_one() or 0)


def _deadlocks(stand: Stand) -> int:
    return _one(stand, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


def _is_waiting(stand: Stand) -> bool:
    return _one(stand, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0


def _last_value(stand: Stand) -> int:
    return _one(stand, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM failures")


def _lock_all(connection: psycopg.Connection[object], group_ids: list[int]) -> None:
    for group_id in group_ids:
        connection.execute("SELECT id FROM poke_group WHERE id = %s FOR UPDATE", [group_id])


def _fill(stand: Stand) -> None:
    """Leave no room on the small disk."""
    stand.sql("CREATE TABLE ballast (line text) TABLESPACE small")
    for size in (1_000_000, 100_000, 8_000):
        with pytest.raises(OperationalError, match="No space left"):  # noqa: PT012  # the last one of many
            while True:
                stand.sql(
                    "ALTER TABLE ballast ALTER line SET STORAGE EXTERNAL",
                    f"INSERT INTO ballast SELECT repeat('x', {size})",
                )


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    disk = Path("/var/tmp") / f"sensorpool-disk-{os.urandom(4).hex()}"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=0777", "tmpfs", str(disk)], check=True)
    try:
        place = disk / "pg"
        place.mkdir()
        shutil.chown(place, "nobody")
        yield place
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
        disk.rmdir()
