"""Beat: when a range is due, and when no message is sent."""

from datetime import timedelta
from typing import Any

import pytest
from celery.beat import ScheduleEntry, SchedulingError
from celery.schedules import crontab
from kombu.exceptions import OperationalError

from sensorpool import Settings
from sensorpool.publish import overlay
from sensorpool.publish.overlay import Overlay
from sensorpool.service import beat
from sensorpool.service.app import make_app, schedule
from sensorpool.service.beat import Ticks


class Sent(Ticks):
    """A beat that notes the entries that it would send."""

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
        """Let time pass, and return the entries that are sent then."""
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
    assert ticks.after(0.2) == RANGES  # late by a tenth; the next tick is not late
    assert ticks.after(4.9) == RANGES
    assert ticks.after(5.0) == [*RANGES, "rescue"]


def test_after_a_pause_there_is_one_tick_and_no_burst(ticks: Sent) -> None:
    ticks.after(0)
    assert ticks.after(3_600) == [*RANGES, "rescue"]
    assert ticks.after(1.0) == []
    assert ticks.after(4.0) == RANGES


def test_it_looks_again_in_time(ticks: Sent) -> None:
    ticks.tick()
    assert ticks.tick() == 5.0  # beat_max_loop_interval, and the next tick
    ticks.here += 4.75
    assert ticks.tick() == pytest.approx(0.25)


def test_the_wall_clock_may_jump(ticks: Sent) -> None:
    ticks.after(0)
    for entry in ticks.schedule.values():  # the clock was set back an hour: all entries were sent in the future
        entry.last_run_at += HOUR
    assert ticks.after(5.0) == RANGES


def test_while_nobody_takes_jobs_up_no_more_are_sent(ticks: Sent) -> None:
    ticks.after(0)
    ticks.waiting = 3 * len(RANGES) + 1
    assert ticks.after(5) == []
    assert ticks.after(10) == [], "hours of rescue would stand before the ticks when the workers are back"
    ticks.waiting = 0
    assert ticks.after(15) == [*RANGES, "rescue"]


class Filled(Sent):
    """A beat whose messages wait in a queue."""

    apply_entry = Ticks.apply_entry

    def apply_async(self, entry: ScheduleEntry, **_: Any) -> None:
        self.sent.append(entry.name)
        self.waiting += 1


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> Filled:
    ticks = Filled(shards=2, tick=5.0, rescue_interval=3_600.0)
    monkeypatch.setattr(beat.time, "monotonic", lambda: ticks.here)
    return ticks


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(beat.log, "warning", lambda event, **more: said.append(event.partition(";")[0]))
    return said


def test_jobs_that_are_held_back_are_said_once(filled: Filled, warned: list[str]) -> None:
    said = "no worker takes jobs as fast as ticks come"
    for _ in range(60):
        filled.after(5)
        filled.waiting -= 1  # of two
    assert filled.waiting > 2 * len(RANGES), "the queue is full all the time"
    assert warned == [said], "once, not at each turn of the queue"
    filled.waiting = 0
    for _ in range(10):
        filled.after(5)
    assert warned == [said, said], "it is news again"


class Refused(Sent):
    """A beat whose broker takes no messages."""

    def __init__(self, **settings: Any) -> None:
        self.tried: list[str] = []
        self.cause: Exception | None = OperationalError("Command # 1 (LLEN q) of pipeline caused error: OOM")
        self.said: list[str] = []
        super().__init__(**settings)

    apply_entry = Ticks.apply_entry

    def apply_async(self, entry: ScheduleEntry, **_: Any) -> None:
        self.tried.append(entry.name)
        if self.cause is not None:
            try:
                raise self.cause
            except Exception as error:
                raise SchedulingError(f"Couldn't apply scheduled task {entry.name}") from error
        self.sent.append(entry.name)


def test_a_broker_that_takes_nothing_is_said_once_and_left_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Refused(shards=2, tick=5.0, rescue_interval=15.0)
    said: list[str] = []
    monkeypatch.setattr(beat.time, "monotonic", lambda: ticks.here)
    monkeypatch.setattr(beat.log, "error", lambda event, **more: said.append(f"{event} {more}"))
    for _ in range(600):
        assert ticks.after(1.0) == []
    assert len(ticks.tried) < 600 / 4, "it is tried again each tick, for all of them"
    assert len(said) == 1, "no traceback, and no line a message"
    ticks.cause = OperationalError("Command # 1 (SADD b) of pipeline caused error: OOM")
    ticks.after(10.0)
    assert len(said) == 1
    ticks.cause = ConnectionRefusedError(111, "refused")
    ticks.after(10.0)
    assert len(said) == 2
    ticks.cause = None
    assert ticks.after(5.0) == [*RANGES, "rescue"], "what was not sent is sent at once"
    ticks.cause = ConnectionRefusedError(111, "refused")
    ticks.after(5.0)
    assert len(said) == 3, "it is news again"


def test_what_cannot_be_sent_by_its_own_fault_holds_nobody_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = Refused(shards=2, tick=5.0, rescue_interval=15.0)
    said: list[str] = []
    monkeypatch.setattr(beat.time, "monotonic", lambda: ticks.here)
    monkeypatch.setattr(beat.log, "error", lambda event, **more: said.append(event))
    ticks.cause = ValueError("not JSON")
    for number in range(1, 4):
        ticks.after(15.0)
        assert len(ticks.tried) == 3 * number
    assert said == ["a due entry cannot be sent"] * 9, "one line for each of them"


def test_it_counts_the_queue_that_it_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "read", lambda: Overlay("x", {"task_default_queue": "mine"}))
    assert Sent()._queue == "sensorpool"
    assert Sent(namespace="other")._queue == "sensorpool.other"


def test_a_schedule_of_an_overlay_comes_beside_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"mine": {"task": "x.y", "schedule": 10.0}, "rescue": {"task": "x.z", "schedule": 10.0}}
    monkeypatch.setattr(overlay, "read", lambda: Overlay("x", {"beat_schedule": theirs}))
    found = make_app(Settings.load(redis_url="redis://127.0.0.1:1/0", shards=2)).conf.beat_schedule
    assert set(found) == {*RANGES, "rescue", "mine"}
    assert found["rescue"]["task"] == "sensorpool.rescue"


def test_entries_of_other_kinds_are_looked_after_too(ticks: Sent) -> None:
    ticks.add(name="theirs", task="their.task", schedule=crontab())
    entry = ticks.schedule["theirs"]
    entry.last_run_at -= HOUR
    assert "theirs" in ticks.after(0)
    assert "theirs" not in ticks.after(1)
