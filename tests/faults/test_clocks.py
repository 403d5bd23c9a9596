"""Faults 29 and 46: wall clocks that jump an hour and run fast or slow; servers and workers in other time zones."""

import glob
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import make_url

from harness.scripted import pokes
from harness.servers import Elsewhere, PostgresServer, RedisServer, fresh_database
from harness.service import kill_tree
from harness.until import until
from sensorpool.model.states import State
from sensorpool.store.migrate import upgrade
from tests.faults.stand import Stand, stand_on
from tests.faults.trial import FULL, SENSOR, Record


class WallClock:
    """The wall clock of Python processes, shifted by a file that they read at each look at the clock."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0, 0)
        here = Path(__file__).parent
        path = os.pathsep.join([str(here / "wall_clock"), str(here.parents[1])])
        self.environment = {"SENSORPOOL_TEST_CLOCK": str(self._file), "PYTHONPATH": path}

    def set(self, shift: float, rate: float) -> None:
        """Shift it by seconds, and have it gain (or lose) so much a second."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{shift} {rate}")
        written.rename(self._file)


class ClockedPostgres(PostgresServer):
    """A PostgreSQL whose clock can be set while it runs (libfaketime; it cannot do that for Python's sleep)."""

    library = ""

    def environment(self) -> dict[str, str]:
        clock = self.folder / "clock"
        if not clock.exists():
            self.set("+0")
        faked = {"LD_PRELOAD": self.library, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
        return super().environment() | faked | {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}

    def set(self, offset: str) -> None:
        """Set its clock, like ``+1h``."""
        written = self.folder / "clock.new"
        written.write_text(offset)
        written.chmod(0o644)
        written.rename(self.folder / "clock")


@pytest.fixture
def library() -> str:
    """The library that fakes the time (Debian: faketime)."""
    found = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))
    if not found:
        missing = "no libfaketime: apt-get install faketime"
        (pytest.fail if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip)(missing)
    return found[0]


@pytest.mark.parametrize("whose", ["worker", "beat"])
def test_wall_clock_of_a_process_jumps(stand: Stand, tmp_path: Path, whose: str) -> None:
    clock = WallClock(tmp_path)
    if whose == "worker":
        kill_tree(stand.workers.pop())
        stand.add_worker(**clock.environment)
    else:
        kill_tree(stand.beats.pop())
        stand.beats.append(stand.service.beat("--loglevel=DEBUG", **clock.environment))
    rates = (("+5 %", 0, 0.05), ("-5 %", 0, -0.05)) if FULL else ()
    for said, shift, rate in (("+1 h", 3600, 0), ("-1 h", -3600, 0), *rates):
        trial = stand.trial(f"29 wall clock of {whose}: {said}")
        with trial.fault():
            clock.set(shift, rate)
            trial.wait_for_pokes(3)
            if whose == "worker" and shift:
                jumped = [poke for poke in trial.patient_pokes if abs(poke.at - time.time() - shift) < 60]
                assert jumped, "its clock did not jump"
            elif shift:
                log = stand.service.folder / f"beat-{stand.service.processes.index(stand.beats[-1])}.log"
                until("its clock to jump", lambda log=log, shift=shift: abs(_said_last(log) - time.time() - shift) < 60)
        trial.end()
    clock.set(0, 0)


def test_a_worker_whose_wall_clock_is_days_ahead(stand: Stand, tmp_path: Path) -> None:
    """Local time that is taken for UTC, or a wrong date: no job is too old for it."""
    clock, shift = WallClock(tmp_path), 2 * 86_400.0
    clock.set(shift, 0)
    trial = stand.trial("29 wall clock of worker: 2 days ahead")
    with trial.fault():
        kill_tree(stand.workers.pop())
        stand.add_worker(**clock.environment)
        trial.wait_for_pokes(3)
        assert any(abs(poke.at - time.time() - shift) < 60 for poke in trial.patient_pokes), "its clock is not ahead"
    trial.end()


def _said_last(log: Path) -> float:
    """Return the time of a process's last log line, by its own clock: in our format, or in Celery's local time."""
    times = re.findall(r"^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)[.,]\d+(Z?)", log.read_text(), re.MULTILINE)
    if not times:
        return 0.0
    at, utc = times[-1]
    return datetime.fromisoformat(f"{at}+00:00" if utc else at).timestamp()


@pytest.fixture
def clocked(
    library: str,
    tmp_path: Path,
    redis_server: RedisServer | Elsewhere,
    redis_numbers: Iterator[int],
    record: Callable[[str], Record],
) -> Iterator[tuple[Stand, ClockedPostgres]]:
    """A service on a database whose clock can be set."""
    ClockedPostgres.library = library
    redis_url = f"{redis_server.start().url.rpartition('/')[0]}/{next(redis_numbers)}"
    with ClockedPostgres() as postgres, fresh_database(postgres) as database_url:
        upgrade(database_url)
        with stand_on(tmp_path, database_url, redis_url, record) as stand:
            stand.start()
            yield stand, postgres


def test_clock_of_the_database_jumps(clocked: tuple[Stand, ClockedPostgres]) -> None:
    """No instance times out by it, not even one whose timeout of an hour is over by the new clock."""
    stand, postgres = clocked
    trial = stand.trial("29 clock of the database: +1 h, and back", tight=False, measures=False)
    with trial.fault():
        database = stand.service.pool.database
        postgres.set("+1h")
        until("its clock to jump", lambda: database.read(database.now) / 1000 - time.time() > 3_000)
        trial.wait_for_pokes(3)
        postgres.set("+0")
        trial.wait_for_pokes(3)
    trial.end()


def test_time_zones(stand: Stand) -> None:
    """Fault 46: server and worker are in other time zones, the worker in one where spring skips an hour."""
    kill_tree(stand.workers.pop())
    name = make_url(stand.service.settings.database_url).database
    stand.sql(f"ALTER DATABASE {name} SET timezone = 'America/St_Johns'")
    stand.postgres.reset()
    stand.add_worker(TZ="Asia/Kathmandu", PGTZ="Pacific/Chatham")
    trial = stand.trial("46 server, worker and session in other time zones")
    with trial.fault():
        trial.wait_for_pokes(2)
    trial.end()
    soon = stand.service.pool.register(SENSOR, {"folder": str(stand.service.folder), "name": "soon"}, timeout=1.0)
    assert stand.service.pool.wait([soon.id], 60) == {soon.id: State.FAILED}
    waited = [poke.at for poke in pokes(stand.service.folder)["soon"]]
    assert waited[-1] - waited[0] < 60
