"""Faults 18-22 and 24: the database restarts, goes away, loses answers, deadlocks, is full. All settle, once."""

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

from harness.servers import PostgresServer
from harness.until import until
from tests.faults.proxy import COMMIT
from tests.faults.stand import Stand
from tests.faults.trial import lasts, outage


def test_restarted(stand: Stand, postgres_server: PostgresServer) -> None:
    for trial in stand.trials("18 PostgreSQL killed and started", full=20):
        with trial.fault():
            broken = stand.postgres.broken_off
            postgres_server.kill()
            postgres_server.start()
            until("the service to notice", lambda before=broken: stand.postgres.broken_off > before)
        trial.end()


def test_down(stand: Stand) -> None:
    """Row 24 as well: Redis can be reached. Groups that were poked meanwhile are poked again, and none times out."""
    for trial in stand.trials("19 PostgreSQL down (24: Redis is not)", full=3):
        with trial.fault():
            broken = stand.postgres.broken
            stand.postgres.refuse()
            assert stand.postgres.broken > broken, "no connection was there to be broken"
            down = time.time()
            lasts(outage(5.0))
            gone = [poke for some in trial.pokes().values() for poke in some if poke.at > down + 1]
            assert len(gone) == 0, "a poke storm without a database to ask"
            stand.postgres.heal()
        trial.end()


def test_half_open(stand: Stand) -> None:
    for trial in stand.trials("19 PostgreSQL a black hole (half-open connections)", full=3):
        with trial.fault():
            kept_back = stand.postgres.kept_back
            stand.postgres.swallow()
            lasts(outage(5.0))
            assert stand.postgres.kept_back > kept_back, "nobody asked it anything"
            stand.postgres.reset()
            stand.postgres.heal()
        trial.end()


def test_commit_whose_answer_is_lost(stand: Stand) -> None:
    """The commit counted, but its process does not know: the next attempt finds its outbox row."""
    for trial in stand.trials("20 COMMIT acknowledged, the answer lost", full=50):
        with trial.fault():
            before = stand.postgres.cut
            stand.postgres.cut_answer(COMMIT)
            until("a lost answer", lambda before=before: stand.postgres.cut == before + 1)
            stand.postgres.cut_answer(COMMIT)  # of what comes next: the outbox row that goes, another flush, rescue
            until("another", lambda before=before: stand.postgres.cut == before + 2)
        trial.end()


def test_deadlock(stand: Stand) -> None:
    """Another transaction locks the groups one after the other, in the wrong order, while they are settled."""
    url = _plain(stand)
    # so many groups that some are settled together
    for trial in stand.trials("21 deadlock", full=10, groups=120, sensors=120):
        deadlocks = _deadlocks(stand)
        with trial.fault(), psycopg.connect(url) as theirs:
            query = "SELECT id, poke_context::jsonb ->> 'name' FROM poke_group ORDER BY hashcode DESC"
            landing = trial.names[1::2]  # not true yet, so these groups exist until the test lets them settle
            group_ids = [row[0] for row in theirs.execute(query).fetchall() if row[1] in landing]
            theirs.execute("SET deadlock_timeout = '10s'")  # so that the pool's transaction is given up
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
            said = stand.service.logs().count("too many clients")
            stand.postgres.refuse()  # or the service would find the places free that it has left
            until("every place", lambda taken=taken: _is_full(url, taken))
            stand.postgres.heal()
            lasts(outage(3.0))
            until("a refusal", lambda before=said: stand.service.logs().count("too many clients") > before)
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
                # the room that its pages keep would take the ends of all waiters
                stand.sql("ALTER TABLE sensor_instance SET (fillfactor = 100), SET TABLESPACE small")
                stand.sql("ALTER TABLE sensorpool_outbox SET TABLESPACE small")
                with trial.fault():
                    said = stand.service.logs().count("No space left")
                    _fill(stand)
                    lasts(outage(3.0, full=20.0))
                    until("a refusal", lambda before=said: stand.service.logs().count("No space left") > before)
                    stand.sql("DROP TABLE ballast", "DELETE FROM sensor_instance WHERE run_id = 'ballast'")
                trial.end()
        finally:
            stand.sql(
                "DROP TABLE IF EXISTS ballast",
                "ALTER TABLE sensor_instance SET (fillfactor = 50), SET TABLESPACE pg_default",
                "ALTER TABLE sensorpool_outbox SET TABLESPACE pg_default",
                "DROP TABLESPACE small",
            )


def _is_full(url: str, taken: list[psycopg.Connection[object]]) -> bool:
    """Take all free connections of the server; return whether there was none."""
    before = len(taken)
    try:
        while True:
            taken.append(psycopg.connect(url))
    except psycopg.OperationalError:
        return len(taken) == before


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
    """Fill the small disk, and the free space in the pages of the instances."""
    stand.sql("CREATE TABLE ballast (line text) TABLESPACE small")
    for size in (1_000_000, 100_000, 8_000):
        with pytest.raises(OperationalError, match="No space left"):  # noqa: PT012  # the last one of many
            while True:
                stand.sql(
                    "ALTER TABLE ballast ALTER line SET STORAGE EXTERNAL",
                    f"INSERT INTO ballast SELECT repeat('x', {size})",
                )
    for size in (1_500, 400, 0):
        with pytest.raises(OperationalError, match="No space left"):  # noqa: PT012  # the last one of many
            while True:
                stand.sql(_BALLAST.format(size=size))


_BALLAST = """
INSERT INTO sensor_instance (
    dag_id, task_id, run_id, map_index, try_number, operator, op_classpath, group_id, joined_version, hashcode,
    shardcode, state, poke_context, execution_context, poke_interval, start_date, timeout_at, next_deadline, settled_at,
    reason
) SELECT 'd', gen_random_uuid()::text, 'ballast', -1, 1, 'o', 'o', 0, 0, 0, 0, 'cancelled', '{{}}', '{{}}', 1, 0, 0, 0,
         extract(epoch FROM now()) * 1000, repeat('x', {size})
"""


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
