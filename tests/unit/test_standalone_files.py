"""The files in which the one-process service keeps what a poke was about to end it with."""

from pathlib import Path

import pytest

from sensorpool import Settings
from sensorpool.leases.background_notes import Isolated
from sensorpool.leases.lease import Acquired, Leases
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.redis_store import RedisStore, connect
from sensorpool.leases.standalone_files import InFlightFiles
from sensorpool.model.values import ShardRange

RANGE = ShardRange(0, 1_250)
OTHER_RANGE = ShardRange(1_250, 2_500)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of a service on an SQLite file."""
    return Settings.load(database_url=f"sqlite:///{tmp_path / 'pool.db'}", redis_url="memory://")


def _start(settings: Settings) -> tuple[Leases, int]:
    """Return the leases of a new process, which has nothing in its memory, and how many groups were in flight."""
    client = connect("memory://")
    client.flushall()
    leases = Leases(RedisStore(client), lease_ttl=60)
    return leases, leases.take_up(InFlightFiles(settings), [RANGE, OTHER_RANGE])


def _take(leases: Leases) -> Acquired:
    held = leases.acquire(RANGE, "one")
    assert isinstance(held, Acquired)
    return held


def test_what_was_in_flight_is_known_until_its_job_ends(settings: Settings) -> None:
    leases, _ = _start(settings)
    _take(leases).lease.put_in_flight([4, 7])
    leases, died_with = _start(settings)
    held = _take(leases)
    assert (died_with, held.struck) == (2, [4, 7])
    held.lease.finish(RangeState(), again=False)
    leases, died_with = _start(settings)
    assert (died_with, _take(leases).struck) == (0, [])


def test_no_file_is_left_of_a_range_with_nothing_in_flight(settings: Settings, tmp_path: Path) -> None:
    leases, _ = _start(settings)
    held = _take(leases)
    held.lease.put_in_flight([4])
    held.lease.release()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "[", "5", "[[]]", '{"a": 1}', "\xff", "[" * 100_000])
def test_a_file_that_cannot_be_read_names_no_group(settings: Settings, tmp_path: Path, text: str) -> None:
    (tmp_path / f"pool.db.standalone.{RANGE}.in_flight").write_text(text, encoding="latin-1")
    leases, died_with = _start(settings)
    assert (died_with, _take(leases).struck) == (0, [])


def test_a_full_disk_stops_no_job(settings: Settings, tmp_path: Path) -> None:
    leases, _ = _start(settings)
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    held = _take(leases)
    held.lease.put_in_flight([4])
    held.lease.finish(RangeState(), again=False)


def test_what_was_poked_outside_of_jobs_is_known_once(settings: Settings) -> None:
    leases, _ = _start(settings)
    leases.note_background(RANGE, [4], Isolated([5]), 60.0)
    leases, died_with = _start(settings)
    assert (died_with, _take(leases).struck) == (1, [4])
    leases.note_background(RANGE, [6], Isolated(), 60.0)
    leases.note_background(RANGE, [], Isolated(), 60.0)
    assert _start(settings)[1] == 1, "the next job has not ended, and what ended meanwhile is not named"
