"""The lane apart, with real children: one that hangs or crashes costs its own group, and no other is blamed."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sensorpool.model import Report
from sensorpool.poke.apart import LaneApart
from sensorpool.poke.child import Suspect
from sensorpool.settings import Settings
from sensorpool.states import Outcome
from tests.unit import scripted
from tests.unit.builders import classpath, due_group, until

CLASSES = [
    value for value in vars(scripted).values() if isinstance(value, type) and value.__module__ == scripted.__name__
]
CHILDREN = 90.0  # seconds for the children of a test, on a busy machine
LANDED, CRASHED, POKE_TIMEOUT = Outcome.LANDED, Outcome.CRASHED, Outcome.POKE_TIMEOUT


class Lane:
    """A lane apart, and what it has reported."""

    def __init__(self, poke_timeout: float = 1.0, *enabled: str, memory: int = 1_000) -> None:
        settings = Settings.load(
            sensors_enabled=[*map(classpath, CLASSES), *enabled],
            poke_timeout=poke_timeout,
            poke_memory=memory,
            heartbeat=0.1,
            lease_ttl=1,
        )
        self.kept: set[int] = set()
        self._reports: list[Report] = []
        self._lock = threading.Lock()
        self.lane = LaneApart(settings, self._take, self.kept.update)

    def _take(self, reports: Sequence[Report]) -> None:
        with self._lock:
            self._reports.extend(reports)

    def offer(self, number: int, cls: type | str, *, alone: bool = False, **context: str) -> int:
        if isinstance(cls, str):
            return self.lane.offer([Suspect(due_group(number), cls, "{}", alone)])
        return self.lane.offer([Suspect(due_group(number), classpath(cls), json.dumps(context), alone)])

    def offer_together(self, *classes: type) -> None:
        """Offer groups 1, 2, 3, …, in one child as long as it lives."""
        suspects = [
            Suspect(due_group(number), classpath(cls), "{}", alone=False) for number, cls in enumerate(classes, 1)
        ]
        assert self.lane.offer(suspects) == len(classes)

    def reports(self, number: int) -> dict[int, Report]:
        """Wait until so many groups are through."""

        def through() -> bool:
            return not any(self.lane.has(group_id) for group_id in range(1, number + 1))

        until(through, f"{number} groups are through", CHILDREN)
        with self._lock:
            found = {report.group.id: report for report in self._reports}
            assert len(found) == len(self._reports), "reported twice"
        return found


def test_groups_are_poked_in_a_child_and_reported() -> None:
    lane = Lane(30.0)
    lane.offer_together(scripted.Lands, scripted.Raises, scripted.AsyncLands, scripted.Prints, scripted.Lands)
    found = lane.reports(5)
    assert {number: report.outcome for number, report in found.items()} == {
        1: LANDED,
        2: Outcome.POKE_ERROR,
        3: LANDED,
        4: LANDED,
        5: LANDED,
    }
    assert found[2].reason == "ValueError: as told"
    assert lane.kept <= {1, 2, 3, 4, 5}


BAD = [
    (scripted.Hangs, POKE_TIMEOUT, "limit of 1 s"),
    (scripted.Freezes, POKE_TIMEOUT, "froze its process"),
    (scripted.Exits, CRASHED, "exit code 3"),
    (scripted.ExitsQuietly, CRASHED, "exit code 0"),
    (scripted.Segfaults, CRASHED, "SIGSEGV"),
]


@pytest.mark.parametrize(("bad", "outcome", "reason"), BAD, ids=[cls.__name__ for cls, _, _ in BAD])
def test_only_the_bad_one_is_blamed(bad: type, outcome: Outcome, reason: str) -> None:
    lane = Lane()
    lane.offer_together(scripted.Lands, scripted.Lands, bad, scripted.Lands, scripted.AsyncLands)
    found = lane.reports(5)
    assert found.pop(3).outcome is outcome
    assert {report.outcome for report in found.values()} == {LANDED}
    assert len(found) == 4


@pytest.mark.parametrize(("bad", "outcome", "reason"), BAD, ids=[cls.__name__ for cls, _, _ in BAD])
def test_the_reason_says_how_it_ended(bad: type, outcome: Outcome, reason: str) -> None:
    lane = Lane()
    lane.offer(1, bad, alone=True)
    [report] = lane.reports(1).values()
    assert report.outcome is outcome
    assert reason in str(report.reason)


def test_two_crashers_beside_each_other_are_both_found() -> None:
    lane = Lane()
    lane.offer_together(scripted.Exits, scripted.Lands, scripted.Segfaults)
    outcomes = {number: report.outcome for number, report in lane.reports(3).items()}
    assert outcomes == {1: CRASHED, 2: LANDED, 3: CRASHED}


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_from_outside_is_no_crash(tmp_path: Path, sent: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    lane = Lane(60.0)
    lane.offer(1, scripted.WaitsToBeKilled, pid_file=str(pid_file))
    until(pid_file.exists, "the child pokes", CHILDREN)
    os.kill(int(pid_file.read_text()), sent)
    [report] = lane.reports(1).values()
    assert report.outcome is POKE_TIMEOUT
    assert report.reason == "its process was killed from outside"


def test_a_class_whose_import_takes_the_process_down_costs_its_own_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_at_import.py").write_text("import os\nos._exit(4)\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    lane = Lane(1.0, "ends_at_import.Sensor")
    suspects = [
        Suspect(due_group(1), classpath(scripted.Lands), "{}", alone=False),
        Suspect(due_group(2), "ends_at_import.Sensor", "{}", alone=False),
    ]
    lane.lane.offer(suspects)
    found = lane.reports(2)
    assert {number: report.outcome for number, report in found.items()} == {1: LANDED, 2: CRASHED}
    assert "exit code 4" in str(found[2].reason)


def test_a_class_whose_import_ends_the_process_is_blamed_once_for_all_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are, and whatever else waits."""
    started = tmp_path / "started"
    (tmp_path / "counts_and_ends.py").write_text(
        f"import os\nwith open({str(started)!r}, 'a') as file:\n    file.write('x')\nos._exit(4)\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    lane = Lane(1.0, "counts_and_ends.Sensor")
    suspects = [Suspect(due_group(number), "counts_and_ends.Sensor", "{}", alone=False) for number in range(1, 1_201)]
    suspects += [
        Suspect(due_group(number), classpath(scripted.Lands), "{}", alone=False) for number in range(1_201, 1_211)
    ]
    lane.lane.offer(suspects)
    found = lane.reports(1_210)
    assert {found[number].outcome for number in range(1, 1_201)} == {CRASHED}
    assert {found[number].outcome for number in range(1_201, 1_211)} == {LANDED}
    assert len(started.read_text()) <= 3


def test_those_that_hang_hold_nobody_up() -> None:
    """Of another class, together with them and later; and they are given to more than one child."""
    lane = Lane(0.5)
    hanging = [Suspect(due_group(number), classpath(scripted.Hangs), "{}", alone=False) for number in range(3, 103)]
    lane.lane.offer([*hanging, Suspect(due_group(1), classpath(scripted.Lands), "{}", alone=False)])
    until(lambda: not lane.lane.has(1), "the one that was offered with them is through", CHILDREN)
    assert sum(lane.lane.has(number) for number in range(3, 103)) > 50
    lane.offer(2, scripted.Lands)
    until(lambda: not lane.lane.has(2), "the one that was offered later is through", CHILDREN)
    assert sum(lane.lane.has(number) for number in range(3, 103)) > 20
    assert {report.outcome for number, report in lane.reports(102).items() if number > 2} == {POKE_TIMEOUT}


def test_what_pokes_start_reads_nothing_that_is_meant_for_the_child() -> None:
    lane = Lane(20.0)
    lane.offer_together(scripted.ReadsInput, *[scripted.Lands] * 40, scripted.ReadsInput)
    assert {report.outcome for report in lane.reports(42).values()} == {LANDED}


def test_a_crash_is_seen_though_what_it_started_lives_on() -> None:
    lane = Lane(20.0)
    lane.offer(1, scripted.ForksAndAborts)
    [report] = lane.reports(1).values()
    assert report.outcome is CRASHED
    assert "SIGABRT" in str(report.reason)


def test_nobody_is_blamed_for_what_another_does_who_was_given_up() -> None:
    lane = Lane(1.0)
    lane.offer(1, scripted.AbortsLate)
    time.sleep(0.7)  # so that it is in hand when the first one ends its process
    lane.offer(2, scripted.Sleeps)
    assert {number: report.outcome for number, report in lane.reports(2).items()} == {1: POKE_TIMEOUT, 2: LANDED}


def test_a_coroutine_that_takes_no_notice_of_its_limit_has_frozen_nothing() -> None:
    lane = Lane(1.0)
    lane.offer(1, scripted.AsyncSwallows, name="x")
    [report] = lane.reports(1).values()
    assert report.outcome is POKE_TIMEOUT
    assert "limit of 1 s" in str(report.reason)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_who_finds_no_memory_left_beside_others_is_not_blamed() -> None:
    lane = Lane(2.0, memory=64)
    lane.offer_together(scripted.HoldsMemory, *[scripted.TakesMemory] * 4)
    found = lane.reports(5)
    assert found.pop(1).outcome is POKE_TIMEOUT
    assert {report.outcome for report in found.values()} == {LANDED}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_who_takes_all_memory_is_blamed_when_he_is_alone() -> None:
    lane = Lane(30.0, memory=64)
    lane.offer_together(scripted.Lands, scripted.TakesAllMemory, scripted.Lands)
    found = lane.reports(3)
    assert {number: report.outcome for number, report in found.items()} == {1: LANDED, 2: CRASHED, 3: LANDED}
    assert "MemoryError" in str(found[2].reason)


def test_a_class_that_is_not_enabled_is_not_imported_in_the_child_either(tmp_path: Path) -> None:
    lane = Lane()
    lane.offer(1, "os.path.Sensor")
    [report] = lane.reports(1).values()
    assert report.outcome is Outcome.FAIL
    assert "os.path.Sensor is not enabled" in str(report.reason)


def test_a_group_is_here_once_until_it_is_through(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    lane = Lane(60.0)
    assert lane.offer(1, scripted.WaitsToBeKilled, pid_file=str(pid_file)) == 1
    assert lane.offer(1, scripted.Lands) == 0
    assert lane.offer(2, scripted.Lands) == 1
    assert lane.lane.has(1)
    assert not lane.lane.has(3)
    until(pid_file.exists, "the child pokes", CHILDREN)
    until(lambda: lane.kept == {1, 2}, "both are kept while they are here", CHILDREN)
    until(lambda: not lane.lane.has(2), "the other one is through, and did not wait for the first", CHILDREN)
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert lane.reports(2)[2].outcome is LANDED
    assert lane.offer(1, scripted.Lands) == 1
    until(lambda: not lane.lane.has(1), "it is through again", CHILDREN)
