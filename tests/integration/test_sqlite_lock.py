"""A pool whose leases are in the memory of one process belongs to that process alone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.service import kill_tree
from sensorpool import Settings
from sensorpool.errors import SettingsError
from sensorpool.service.sqlite_lock import SqliteLock
from sensorpool.service.standalone import Standalone
from sensorpool.store.database import Database

FIRST = """
import sys, time
from sensorpool import Settings
from sensorpool.service.standalone import Standalone
pool = Standalone(Settings.load(database_url=sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'pool.db'}"


REDIS = "redis://127.0.0.1:1"
WITH_REDIS = f"""
import sys, time
from sensorpool import Settings
from sensorpool.service.sqlite_lock import SqliteLock
from sensorpool.store.database import Database
lock = SqliteLock(Settings.load(database_url=sys.argv[1], redis_url="{REDIS}"), Database(sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def holding(url: str, program: str) -> Iterator[subprocess.Popen[str]]:
    """Run another process that has the pool."""
    process = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        kill_tree(process)
        process.stdout.close()


@pytest.fixture
def first(url: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the pool, with its leases in its own memory."""
    with holding(url, FIRST) as process:
        yield process


def test_a_second_process_does_not_start_while_the_first_lives(
    url: str, first: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Any path to the file counts; a lock file that a killed process leaves does not lock."""
    (tmp_path / "link.db").symlink_to(tmp_path / "pool.db")
    for each in (url, f"sqlite:///{tmp_path / 'link.db'}"):
        with pytest.raises(SettingsError, match="another process runs the pool of the database sqlite") as refused:
            Standalone(Settings.load(database_url=each))
        assert len(str(refused.value).splitlines()) == 1
    first.kill()
    first.wait()
    database = Database(url)
    lock = SqliteLock(Settings.load(database_url=url), database)
    lock.end()
    lock.end()
    database.dispose()


def test_with_a_redis_any_number_start(url: str) -> None:
    with holding(url, WITH_REDIS):
        database = Database(url)
        SqliteLock(Settings.load(database_url=url, redis_url=REDIS), database).end()
        database.dispose()


def test_processes_whose_leases_lie_elsewhere_do_not_start(url: str, first: subprocess.Popen[str]) -> None:
    """Without SENSORPOOL_REDIS_URL in one of two terminals, both processes would poke each group."""
    database = Database(url)
    with pytest.raises(SettingsError, match="its leases are not those of this process: end it first, or set the same"):
        SqliteLock(Settings.load(database_url=url, redis_url=REDIS), database)
    first.kill()
    first.wait()
    with holding(url, WITH_REDIS), pytest.raises(SettingsError, match="its leases are not those of this process"):
        SqliteLock(Settings.load(database_url=url), database)
    database.dispose()


def test_without_a_file_there_is_nothing_to_lock() -> None:
    database = Database("sqlite://")
    SqliteLock(Settings.load(database_url="sqlite://"), database).end()
    database.dispose()


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "mysql+pymysql"])
def test_a_server_s_database_needs_a_redis(driver: str) -> None:
    """Its pool runs on other hosts, and SENSORPOOL_REDIS_URL was forgotten on this one."""
    pytest.importorskip(driver.rpartition("+")[2])
    with pytest.raises(SettingsError, match="set SENSORPOOL_REDIS_URL"):
        Standalone(Settings.load(database_url=f"{driver}://nobody@127.0.0.1:1/pool"))
