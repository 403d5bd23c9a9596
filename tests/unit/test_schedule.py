"""Beat: when a range is due, and when nothing is sent."""

from datetime import timedelta
from typing import Any

import pytest
from celery.beat import ScheduleEntry
from celery.schedules import crontab

from sensorpool import Settings, beat
from sensorpool.app import make_app, schedule
from sensorpool.beat import Ticks


class Sent(Ticks):
    """Beat, that notes what it would send."""

    def __init__(self, **settings: Any) -> None:
        self.sent: list[str] = []
        self.waiting = 0
        self.here = 1_000.0
        super().__init__(app=make_app(Settings.load(redis_url="redis://127.0.0.1:1/0", **settings)))

    def apply_entry(self, entry: ScheduleEntry, producer: object = None) -> None:
        self.sent.append(entry.name)

    def _waiting(self) -> int:
        return self.waiting

    def after(self, seconds: float) -> list[str]:
        """Let time pass, and return what is sent then."""
        self.here += seconds
        self.sent.clear()
        self.tick()
        return sorted(self.sent)

    producer = None


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Sent:
    made = Sent(shards=2, tick=5.0, rescue_interval=15.0)
    monkeypatch.setattr(beat.time, "monotonic", lambda: made.here)
    return made


HOUR = timedelta(hours=1)
RANGES = ["poke-0-5000", "poke-5000-10000"]


def test_each_range_and_rescue_have_an_entry() -> None:
    entries = schedule(Settings.load(shards=3, tick=2.0, rescue_interval=7.0))
    assert {name: entry["schedule"].seconds for name, entry in entries.items()} == {
        "poke-0-3333": 2,
        "poke-3333-6666": 2,
        "poke-6666-10000": 2,
        "rescue": 7,
    }


def test_what_is_due_is_sent_once_a_span(ticks: Sent) -> None:
    assert ticks.after(0) == [*RANGES, "rescue"]
    assert ticks.after(4.9) == []
    assert ticks.after(0.2) == RANGES  # late by a tenth, which the next one is not
    assert ticks.after(4.9) == RANGES
    assert ticks.after(5.0) == [*RANGES, "rescue"]


def test_after_a_pause_there_is_one_tick_and_no_burst(ticks: Sent) -> None:
    ticks.after(0)
    assert ticks.after(3_600) == [*RANGES, "rescue"]
    assert ticks.after(1.0) == []
    assert ticks.after(4.0) == RANGES


def test_it_looks_again_in_time(ticks: Sent) -> None:
    ticks.tick()
    assert ticks.tick() == 1.0  # beat_max_loop_interval
    ticks.here += 4.75
    assert ticks.tick() == pytest.approx(0.25)


def test_the_wall_clock_may_jump(ticks: Sent) -> None:
    ticks.after(0)
    for entry in ticks.schedule.values():  # it was set back an hour: all was sent in the future
        entry.last_run_at += HOUR
    assert ticks.after(5.0) == RANGES


def test_while_nobody_takes_jobs_up_no_more_are_sent(ticks: Sent) -> None:
    ticks.after(0)
    ticks.waiting = 3 * len(RANGES) + 1
    assert ticks.after(5) == []
    assert ticks.after(10) == ["rescue"]
    ticks.waiting = 0
    assert ticks.after(5) == RANGES


def test_entries_of_other_kinds_are_looked_after_too(ticks: Sent) -> None:
    ticks.add(name="theirs", task="their.task", schedule=crontab())
    entry = ticks.schedule["theirs"]
    entry.last_run_at -= HOUR
    assert "theirs" in ticks.after(0)
    assert "theirs" not in ticks.after(1)
