"""Which ranges get a message at a tick, by the marks that jobs left."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sensorpool import Settings
from sensorpool.errors import Unreachable
from sensorpool.leases.range_marks import Marks
from sensorpool.model.values import ShardRange, shard_ranges
from sensorpool.service import beat, tick_plan, uptake
from sensorpool.service.tick_plan import PATIENCE, TickPlan
from sensorpool.service.uptake import Uptake

RANGES = shard_ranges(4, 10_000)
NONE, LIGHT = Marks(None, None), Marks(None, 0.01)


class Stand:
    """A plan with scripted marks and a scripted clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.here = 1_000.0
        self.of: dict[ShardRange, Marks] = {}
        self.away = False
        self.asked = 0
        self.marks = self
        monkeypatch.setattr(tick_plan.time, "monotonic", lambda: self.here)
        monkeypatch.setattr(tick_plan, "leases_of", lambda *_, patience: self)
        self.plan = TickPlan(Settings.load(**settings))

    def look(self, ranges: Sequence[ShardRange]) -> list[Marks]:
        """Stand in for the marks in Redis."""
        self.asked += 1
        if self.away:
            raise Unreachable("Redis does not answer")
        return [self.of.get(each, NONE) for each in ranges]

    def tick(self, seconds: float = 5.0, *, by_marks: bool = True) -> list[list[int]]:
        """Return the messages of the next tick, by the numbers of their ranges, and note that they were sent."""
        self.here += seconds
        messages = self.plan.messages(RANGES, by_marks=by_marks)
        for message in messages:
            self.plan.sent(message)
        return [[RANGES.index(each) for each in message] for message in messages]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def test_without_marks_each_range_has_its_message(stand: Stand) -> None:
    assert stand.tick() == [[0], [1], [2], [3]]


def test_a_quiet_range_has_none(stand: Stand) -> None:
    stand.tick()
    stand.of = {RANGES[1]: Marks(40.0, None), RANGES[3]: Marks(4.0, None)}
    assert stand.tick() == [[0], [2], [3]]


def test_of_a_range_to_which_this_beat_has_sent_nothing_the_mark_counts_not(stand: Stand) -> None:
    stand.of = {RANGES[1]: Marks(40.0, None)}
    assert stand.tick() == [[0], [1], [2], [3]]
    assert stand.tick() == [[0], [2], [3]]


def test_a_mark_that_lives_too_long_counts_by_the_clock_of_beat(stand: Stand) -> None:
    stand.tick()
    stand.of = dict.fromkeys(RANGES, Marks(12.0, None))  # the clock of Redis was put back
    assert [len(stand.tick()) for _ in range(6)] == [0, 0, 4, 0, 0, 4]


def test_light_ranges_share_a_message(stand: Stand) -> None:
    stand.of = dict.fromkeys(RANGES, LIGHT)
    assert stand.tick() == [[0, 1, 2, 3]]


def test_together_they_take_no_longer_than_a_second_and_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch, tick=60.0, poke_interval=60.0)
    stand.of = {each: Marks(None, took) for each, took in zip(RANGES, (0.4, 0.4, 0.5, 0.8), strict=True)}
    assert sorted(map(sorted, stand.tick())) == [[0, 1], [2], [3]]


def test_together_they_take_no_longer_than_a_quarter_of_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch, tick=0.1, poke_interval=1.0)
    stand.of = dict.fromkeys(RANGES, LIGHT)
    assert sorted(map(sorted, stand.tick())) == [[0, 1], [2, 3]]


def test_a_range_with_both_marks_is_left_out_first(stand: Stand) -> None:
    stand.tick()
    stand.of = dict.fromkeys(RANGES[:2], Marks(40.0, 0.01)) | dict.fromkeys(RANGES[2:], LIGHT)
    assert list(map(sorted, stand.tick())) == [[2, 3]]


def test_while_no_worker_lives_nobody_asks_for_the_marks(stand: Stand) -> None:
    stand.tick()
    stand.of = dict.fromkeys(RANGES, Marks(40.0, 0.01))
    stand.asked = 0
    assert stand.tick(by_marks=False) == [[0], [1], [2], [3]]
    assert stand.asked == 0


def test_while_redis_is_away_each_range_has_its_message_and_beat_asks_now_and_then(stand: Stand) -> None:
    stand.tick()
    stand.of = dict.fromkeys(RANGES, Marks(40.0, 0.01))
    stand.away, stand.asked = True, 0
    assert [len(stand.tick()) for _ in range(4)] == [4, 4, 4, 4]
    assert stand.asked == 2
    stand.away = False
    assert [len(stand.tick()) for _ in range(2)] == [0, 0]


def test_no_question_of_beat_waits_long_for_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that is slow must not make the ticks late."""
    asked: list[float | None] = []

    def leases_of(_: Settings, *, patience: float | None = None) -> Any:
        asked.append(patience)
        raise Unreachable("Redis does not answer")

    for module in (beat, tick_plan, uptake):
        monkeypatch.setattr(module, "leases_of", leases_of)
    settings = Settings.load()
    TickPlan(settings).messages(RANGES, by_marks=True)
    assert not Uptake(settings, 0.0).is_seen()
    beat.Ticks._ask_roster(SimpleNamespace(_settings=settings, _asked=float("-inf"), _roster=None))  # type: ignore[arg-type]
    assert asked == [PATIENCE] * 3
