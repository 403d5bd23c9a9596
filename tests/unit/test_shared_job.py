"""A job that serves several ranges: one after the other, each as if it were alone."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from sensorpool import Settings
from sensorpool.errors import Unreachable
from sensorpool.model.values import JobResult, ShardRange, shard_ranges
from sensorpool.publish import wire
from sensorpool.service import tasks

RANGES = shard_ranges(4, 10_000)


class Stand:
    """A process with scripted jobs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = 100.0
        self.takes = 0.01
        self.fails: dict[ShardRange, Exception] = {}
        self.served: list[int] = []
        self.nudged: list[int] = []
        self.troubled: list[int] = []
        self.broker_is_away = False
        monkeypatch.setattr(tasks.time, "monotonic", lambda: self.here)
        monkeypatch.setattr(tasks.job, "run", self._run)
        self.settings = Settings.load()
        self.ranges = frozenset(RANGES)
        self.worker = SimpleNamespace(outbox=self, trouble=self, database=SimpleNamespace(one_connection=nullcontext))

    def _run(self, worker: object, shard_range: ShardRange, token: str, job_time: object) -> JobResult:
        self.here += self.takes
        self.served.append(RANGES.index(shard_range))
        if shard_range in self.fails:
            raise self.fails[shard_range]
        return JobResult(groups=2, poked=2, seconds=self.takes, extra={"slow": 1})

    def nudge(self, shard_range: ShardRange) -> None:
        """Stand in for the outbox."""
        if self.broker_is_away:
            raise Unreachable("the broker is away")
        self.nudged.append(RANGES.index(shard_range))

    def note_job(self, shard_range: ShardRange, *_: object) -> None:
        """Stand in for the notes of trouble."""
        self.troubled.append(RANGES.index(shard_range))

    def serve(self, *ranges: ShardRange) -> dict[str, Any]:
        """Serve the ranges."""
        runtime: Any = self
        return tasks.serve_ranges(ranges, runtime, SimpleNamespace(hostname="a@b", id="1"), 7)


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def test_one_range_has_the_result_of_a_job(stand: Stand) -> None:
    shown = {"groups": 2, "poked": 2, "landed": 0, "errors": 0, "seconds": 0.01, "slow": 1}
    assert stand.serve(RANGES[1]) == shown


def test_several_ranges_have_their_sum(stand: Stand) -> None:
    shown = {"ranges": 3, "groups": 6, "poked": 6, "landed": 0, "errors": 0, "seconds": 0.03, "slow": 3}
    assert stand.serve(*RANGES[:3]) == shown
    assert stand.served == [0, 1, 2]


def test_a_range_that_fails_keeps_no_other_waiting(stand: Stand) -> None:
    stand.fails = {RANGES[0]: Unreachable("away"), RANGES[2]: ZeroDivisionError("a fault")}
    with pytest.raises(ZeroDivisionError):
        stand.serve(*RANGES)
    assert stand.served == [0, 1, 2, 3]
    assert stand.troubled == [0, 2]


def test_a_signal_ends_the_job_at_once(stand: Stand) -> None:
    def struck(*_: object) -> JobResult:
        raise SystemExit(1)

    tasks.job.run = struck  # type: ignore[assignment]  # the fixture restores it
    with pytest.raises(SystemExit):
        stand.serve(*RANGES)


def test_ranges_that_take_longer_than_they_did_are_sent_on(stand: Stand) -> None:
    stand.takes = 0.3
    assert stand.serve(*RANGES)["sent_on"] == 2
    assert (stand.served, stand.nudged) == ([0, 1], [2, 3])


def test_while_the_broker_is_away_they_wait_for_their_tick(stand: Stand) -> None:
    stand.takes, stand.broker_is_away = 0.6, True
    assert stand.serve(*RANGES)["waits"] == "the broker is away"
    assert stand.served == [0]


def test_the_header_names_the_other_ranges() -> None:
    header = wire.also(RANGES[1:])
    assert wire.read_also(header[wire.ALSO], RANGES) == RANGES[1:]
    assert wire.also([]) == {}
    assert wire.shown(RANGES[:1]) == "shardcodes 0-2500"
    assert wire.shown(RANGES[:2]) == "shardcodes 0-2500 and 1 range more"
    assert wire.shown(RANGES) == "shardcodes 0-2500 and 3 ranges more"


@pytest.mark.parametrize(
    "forged", [None, 7, [], {"a": 1}, "x", "0-1", "0-2500 " * 20_000, "\0", "99999999999-999999999999"]
)
def test_a_forged_header_names_no_range_that_the_pool_does_not_have(forged: object) -> None:
    assert wire.read_also(forged, RANGES) == []


def test_a_range_is_served_once_however_often_it_is_named() -> None:
    assert wire.read_also("2500-5000 2500-5000 0-1 2500-5000", RANGES) == [RANGES[1]]
