"""What the log of a waiting task says: who waits with it, each change and error, and a line now and then."""

from typing import Any

import pytest

from sensorpool import Pool, Settings
from sensorpool.airflow.triggerer.task_log import TaskLog
from sensorpool.leases.poke_log import Record
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.store import inspecting
from tests.support.builders import due_group

SENSOR = "sensorpool.sensors.TimeSensor"


@pytest.fixture
def pool(postgres_database: str, redis_url: str) -> Any:
    """A pool without a worker."""
    made = Pool(Settings.load(database_url=postgres_database, redis_url=redis_url))
    yield made
    made.close()


class Log:
    """The log of one that waits with two others."""

    def __init__(self, pool: Pool, every: float) -> None:
        self._pool = pool
        self.task_log = TaskLog(pool, every)
        context = {"target_time": "2100-01-01T00:00:00Z"}
        self._mine = pool.register(SENSOR, context)
        for _ in range(3):
            pool.register(SENSOR, context)
        self.lines: list[str] = []

    def meet(self) -> None:
        """It comes to the triggerer."""
        rows = self._pool.database.read(inspecting.waiters, [self._mine.id])
        self.lines += self.task_log.first_lines(rows).values()

    def poked(self, at: int, outcome: Outcome, reason: str | None = None) -> None:
        """The pool has poked it, and time goes by."""
        record = Record(at)
        record.add([Report(due_group(self._mine.group_id), 0.0, outcome, reason)], [0])
        shard_range = self._pool.range_of(self._mine.shardcode)
        self._pool.leases.poke_log.keep(shard_range, record, 0)
        self.task_log._read_at -= 3600
        self.lines += self.task_log.lines().values()


def test_who_waits_with_it_is_counted_and_not_named(pool: Pool) -> None:
    log = Log(pool, every=1e9)
    log.meet()
    log.meet()
    assert len(log.lines) == 1
    assert log.lines[0].endswith("; 3 others wait for the same")
    assert "waits in the pool since" in log.lines[0]


def test_each_change_is_said_once(pool: Pool) -> None:
    log = Log(pool, every=1e9)
    log.meet()
    for at, (outcome, reason) in enumerate(
        [
            (Outcome.NOT_LANDED, None),
            (Outcome.NOT_LANDED, None),
            (Outcome.INFRA_FAILURE, "connection refused"),
            (Outcome.INFRA_FAILURE, "connection refused"),
            (Outcome.POKE_TIMEOUT, "took longer"),
            (Outcome.NOT_LANDED, None),
        ]
    ):
        log.poked(1_000_000 + at, outcome, reason)
    said = log.lines[1:]
    assert ["infra_failure: connection refused" in said[0], "poke_timeout: took longer" in said[1]] == [True, True]
    assert ": not_landed;" in said[2]
    assert len(said) == 3


def test_a_line_comes_now_and_then(pool: Pool) -> None:
    log = Log(pool, every=0.0)
    log.meet()
    for at in range(3):
        log.poked(1_000_000 + at, Outcome.NOT_LANDED)
    assert len(log.lines) == 4
    log.task_log.forget(log._mine.id)
    log.poked(2_000_000, Outcome.NOT_LANDED)
    assert len(log.lines) == 4
