"""Beat's schedule: when a range is due, and when to look again."""

from datetime import UTC, datetime, timedelta

import pytest

from sensorpool import Settings
from sensorpool.app import make_app, schedule


def test_each_range_and_rescue_have_an_entry() -> None:
    entries = schedule(Settings.load(shards=3, tick=2.0, rescue_interval=7.0))
    assert {name: entry["schedule"].seconds for name, entry in entries.items()} == {
        "poke-0-3333": 2,
        "poke-3333-6666": 2,
        "poke-6666-10000": 2,
        "rescue": 7,
    }


@pytest.mark.parametrize(("ago", "due"), [(0.0, False), (4.5, False), (5.5, True), (500.0, True)])
def test_an_entry_is_due_when_its_span_is_over(ago: float, due: bool) -> None:
    every = schedule(Settings.load(shards=1, tick=5.0))["poke-0-10000"]["schedule"]
    found = every.is_due(datetime.now(UTC) - timedelta(seconds=ago))
    assert found.is_due is due
    # beat looks ten milliseconds before it is told to
    assert found.next == pytest.approx(5.0 if due else 5.01 - ago, abs=0.2)


def test_beat_makes_its_entries_of_it() -> None:
    """It copies them, and compares them to see whether they have changed."""
    app = make_app(Settings.load(redis_url="redis://localhost:1/0", shards=2))
    from celery.beat import Scheduler

    scheduler = Scheduler(app=app)
    assert {entry.schedule.seconds for entry in scheduler.schedule.values()} >= {5, 15}
    for entry in scheduler.schedule.values():
        assert entry.last_run_at.tzinfo is not None
        assert not entry.is_due().is_due
        assert next(entry).schedule == entry.schedule
