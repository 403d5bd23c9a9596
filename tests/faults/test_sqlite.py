"""Fault 23: another process writes to the SQLite file for ten seconds, or for ever."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.scripted import land, pokes
from harness.until import until
from sensorpool import Pool, Settings
from sensorpool.errors import Unreachable
from sensorpool.model.states import State
from sensorpool.service.standalone import Standalone
from sensorpool.store import engine
from sensorpool.store.migrate import upgrade
from tests.faults.trial import SENSOR, Record


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    return Settings.load(
        database_url=url, sensors_enabled=SENSOR, tick=1.0, poke_interval=2.0, poke_timeout=1.0, shards=2
    )


@pytest.fixture
def other_writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another connection, which may lock the file."""
    connection = sqlite3.connect(tmp_path / "pool.db", isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()


def test_busy_for_ten_seconds(
    settings: Settings, other_writer: sqlite3.Connection, tmp_path: Path, record: Callable[[str], Record]
) -> None:
    """The service and the registrations wait; all sensors are registered, poked and settled, once."""
    pool = Pool(settings)
    with Standalone(settings):
        other_writer.execute("BEGIN IMMEDIATE")
        held_since = time.monotonic()
        release = threading.Timer(10.0, other_writer.execute, ["ROLLBACK"])
        release.start()
        made = pool.register_many(
            {"sensor": SENSOR, "poke_context": {"folder": str(tmp_path), "name": f"g{n}"}} for n in range(10)
        )
        assert time.monotonic() - held_since >= 10
        until("pokes", lambda: len(pokes(tmp_path)) == 10)
        for number in range(10):
            land(tmp_path, f"g{number}")
        states = pool.wait([instance.id for instance in made], 60)
    record("23 SQLite busy for 10 s").add(
        sensors=10,
        lost=sum(state is State.SENSING for state in states.values()),
        doubled=0,
        wrong=sum(state not in {State.SENSING, State.SUCCESS} for state in states.values()),
        recovery=[],
    )
    assert set(states.values()) == {State.SUCCESS}
    pool.close()


def test_busy_for_ever_is_one_clear_error(
    settings: Settings, other_writer: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SQLITE_PATIENCE", 0.1)
    other_writer.execute("BEGIN IMMEDIATE")
    pool = Pool(settings)
    with pytest.raises(Unreachable, match="is busy: database is locked") as busy:
        pool.register(SENSOR, {"folder": str(tmp_path), "name": "x"})
    assert len(str(busy.value).splitlines()) == 1
    with pytest.raises(Unreachable, match="is busy, its schema was left alone"):
        upgrade(settings.database_url)
    pool.close()
