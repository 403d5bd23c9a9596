"""The task's body: one job for all ranges of a message, and what is said of it."""

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
        self.fails: BaseException | None = None
        self.served: list[int] = []
        self.troubled: list[int] = []
        self.sent_on: list[ShardRange] = []
        monkeypatch.setattr(tasks.job, "run_each", self._run)
        monkeypatch.setattr(tasks.foreign, "send_on", self._send_on)
        self.settings, self.node = Settings.load(), None
        self.ranges = frozenset(RANGES)
        self.worker = SimpleNamespace(trouble=self)

    def _run(self, worker: object, ranges: list[ShardRange], token: str) -> list[JobResult]:
        self.served += [RANGES.index(each) for each in ranges]
        if self.fails is not None:
            raise self.fails
        return [JobResult(groups=2, poked=2, seconds=0.01, extra={"slow": 1}) for _ in ranges]

    def _send_on(self, worker: object, ranges: object, shard_range: ShardRange, request: object) -> int:
        self.sent_on.append(shard_range)
        return 2

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


def test_a_range_of_another_cut_is_sent_on_and_ours_are_served(stand: Stand) -> None:
    foreign = ShardRange(0, 5_000)
    assert stand.serve(foreign, RANGES[3])["sent_on"] == 2
    assert (stand.sent_on, stand.served) == ([foreign], [3])
    assert stand.serve(foreign) == {"sent_on": 2}


def test_while_a_server_is_away_the_ranges_wait_for_their_tick(stand: Stand) -> None:
    stand.fails = Unreachable("away")
    assert stand.serve(*RANGES) == {"waits": "away"}
    assert stand.troubled == [0, 1, 2, 3]


def test_a_fault_is_noted_for_each_range_and_raised(stand: Stand) -> None:
    stand.fails = ZeroDivisionError("a fault")
    with pytest.raises(ZeroDivisionError):
        stand.serve(*RANGES)
    assert stand.troubled == [0, 1, 2, 3]


def test_a_signal_ends_the_job_at_once(stand: Stand) -> None:
    stand.fails = SystemExit(1)
    with pytest.raises(SystemExit):
        stand.serve(*RANGES)
    assert not stand.troubled


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
