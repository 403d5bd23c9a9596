"""The isolated lane, with real children: a poke that hangs or crashes costs its own group; no other is blamed."""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke import isolated_lane
from sensorpool.poke.child import Child, Suspect
from sensorpool.poke.isolated_lane import TOGETHER, IsolatedLane
from sensorpool.poke.throttling import NO_BACKEND_OF_ITS
from tests.support.builders import classpath, due_group
from tests.support.sensors import answering, coroutines, ending, forking, greedy, hanging

CLASSES = [
    value
    for module in (answering, coroutines, ending, forking, greedy, hanging)
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
]
CHILDREN = 90.0  # seconds for the children of a test, on a busy machine
LANDED, CRASHED, POKE_TIMEOUT = Outcome.LANDED, Outcome.CRASHED, Outcome.POKE_TIMEOUT


def suspect(number: int, cls: type | str, *, alone: bool = False, **context: str) -> Suspect:
    path = cls if isinstance(cls, str) else classpath(cls)
    return Suspect(due_group(number), path, json.dumps(context), alone)


class Lane:
    """An isolated lane, and its reports."""

    def __init__(self, poke_timeout: float = 1.0, *enabled: str, memory: int = 1_000, width: int = TOGETHER) -> None:
        settings = Settings.load(
            sensors_enabled=[*map(classpath, CLASSES), *enabled],
            poke_timeout=poke_timeout,
            poke_memory=memory,
            heartbeat=0.1,
            lease_ttl=1,
        )
        self._reports: list[Report] = []
        self._lock = threading.Lock()
        self.lane = IsolatedLane(settings, self._take, width)

    def _take(self, reports: Sequence[Report]) -> None:
        with self._lock:
            self._reports.extend(reports)

    def offer(self, number: int, cls: type | str, *, alone: bool = False, **context: str) -> None:
        self.lane.offer([suspect(number, cls, alone=alone, **context)])

    def offer_together(self, *classes: type) -> None:
        """Offer groups 1, 2, 3, …, in one child as long as it lives."""
        self.lane.offer([suspect(number, cls) for number, cls in enumerate(classes, 1)])

    def order(self) -> list[int]:
        """Return the groups in the order of their reports."""
        with self._lock:
            return [report.group.id for report in self._reports]

    def reports(self, number: int) -> dict[int, Report]:
        """Wait until so many groups are reported."""

        def through() -> bool:
            return not any(self.lane.has(group_id) for group_id in range(1, number + 1))

        until(f"{number} groups are through", through, CHILDREN)
        with self._lock:
            found = {report.group.id: report for report in self._reports}
            assert len(found) == len(self._reports), "reported twice"
        return found


def test_groups_are_poked_in_a_child_and_reported() -> None:
    lane = Lane(30.0)
    lane.offer_together(answering.Lands, answering.Raises, answering.AsyncLands, greedy.Prints, answering.Lands)
    found = lane.reports(5)
    assert {number: report.outcome for number, report in found.items()} == {
        1: LANDED,
        2: Outcome.POKE_ERROR,
        3: LANDED,
        4: LANDED,
        5: LANDED,
    }
    assert found[2].reason == "ValueError: as told"


FREEZING = [hanging.Freezes, hanging.StopsTheMainThread]
ENDING = {ending.Exits: "exit code 3", ending.ExitsQuietly: "exit code 0", ending.Segfaults: "SIGSEGV"}


@pytest.mark.parametrize("bad", [*FREEZING, *ENDING], ids=lambda cls: cls.__name__)
def test_each_group_in_hand_of_a_child_that_ends_gets_a_strike(bad: type, tmp_path: Path) -> None:
    """Which of them ended it is not known; those that had not begun are poked in the next child."""
    lane, pid_file = Lane(10.0, width=2), tmp_path / "pid"
    lane.offer(1, hanging.WaitsToBeKilled, pid_file=str(pid_file))
    until("its poke", pid_file.exists, CHILDREN)
    lane.lane.offer([suspect(2, bad), suspect(3, answering.Lands), suspect(4, answering.AsyncLands)])
    found = lane.reports(4)
    assert [found[number].outcome for number in (1, 2, 3, 4)] == [CRASHED, CRASHED, LANDED, LANDED]
    assert not any(report.own_doing for report in found.values())


@pytest.mark.parametrize(("bad", "reason"), ENDING.items(), ids=[cls.__name__ for cls in ENDING])
def test_a_child_that_a_group_was_alone_in_and_that_died_by_itself_is_its_doing(bad: type, reason: str) -> None:
    lane = Lane()
    lane.offer(1, bad, alone=True)
    [report] = lane.reports(1).values()
    assert (report.outcome, report.own_doing) == (CRASHED, True)
    assert reason in str(report.reason)


@pytest.mark.parametrize("bad", FREEZING, ids=lambda cls: cls.__name__)
def test_a_group_that_froze_its_child_alone_overran(bad: type) -> None:
    lane = Lane()
    lane.offer(1, bad, alone=True)
    [report] = lane.reports(1).values()
    assert (report.outcome, report.own_doing) == (POKE_TIMEOUT, False)
    assert "froze its process" in str(report.reason)


def test_a_group_that_hangs_overruns_and_no_other_is_concerned() -> None:
    lane = Lane()
    lane.offer_together(answering.Lands, hanging.Hangs, answering.AsyncLands)
    assert {number: report.outcome for number, report in lane.reports(3).items()} == {
        1: LANDED,
        2: POKE_TIMEOUT,
        3: LANDED,
    }


def test_one_that_hangs_at_its_end_stops_nobody() -> None:
    lane = Lane()
    lane.offer_together(*[hanging.HangsAtItsEnd] * 40, *[answering.Lands] * 40)
    assert {report.outcome for report in lane.reports(80).values()} == {LANDED}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_from_outside_is_not_a_groups_doing(tmp_path: Path, sent: signal.Signals, alone: bool) -> None:
    pid_file = tmp_path / "pid"
    lane = Lane(60.0)
    began = time.monotonic()
    lane.offer(1, hanging.WaitsToBeKilled, alone=alone, pid_file=str(pid_file))
    until("the child pokes", lambda: pid_file.exists() and pid_file.read_text(), CHILDREN)
    time.sleep(0.5)  # the child reports the begin in another way than by this file
    killed = time.monotonic()
    os.kill(int(pid_file.read_text()), sent)
    [report] = lane.reports(1).values()
    assert (report.outcome, report.own_doing) == (POKE_TIMEOUT if alone else CRASHED, False)
    assert began < report.began < killed, "when its poke began, not when its child ended"
    assert report.reason == "its process was killed from outside"


@pytest.mark.parametrize("alone", [True, False])
def test_a_class_whose_import_ends_the_process_costs_its_own_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    (tmp_path / "ends_at_import.py").write_text("import os\nos._exit(4)\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    lane = Lane(1.0, "ends_at_import.Sensor")
    lane.lane.offer([suspect(1, answering.Lands), suspect(2, "ends_at_import.Sensor", alone=alone)])
    found = lane.reports(2)
    assert (found[2].outcome, found[2].own_doing) == (CRASHED, alone)
    assert found[1].outcome is LANDED or not alone
    assert "importing its class took its process down (exit code 4)" in str(found[2].reason)


@pytest.mark.parametrize("alone", [True, False])
def test_where_no_child_can_be_started_groups_are_due_again(monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    lane = Lane()
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        lane.offer(1, answering.Lands, alone=alone)
        assert lane.reports(1) == {}
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/bin/false")
        lane.offer(1, answering.Lands, alone=alone)
        assert lane.reports(1) == {}
    lane.offer(1, answering.Lands, alone=alone)
    assert lane.reports(1)[1].outcome is LANDED


def test_those_that_hang_hold_nobody_up() -> None:
    """Groups of another class go on, together with them and later; and the hanging ones go to several children."""
    lane = Lane(0.5)
    stuck = [suspect(number, hanging.Hangs) for number in range(3, 103)]
    lane.lane.offer([*stuck, suspect(1, answering.Lands)])
    until("the one that was offered with them is through", lambda: not lane.lane.has(1), CHILDREN)
    assert sum(lane.lane.has(number) for number in range(3, 103)) > 50
    lane.offer(2, answering.Lands)
    until("the one that was offered later is through", lambda: not lane.lane.has(2), CHILDREN)
    assert sum(lane.lane.has(number) for number in range(3, 103)) > 20
    assert {report.outcome for number, report in lane.reports(102).items() if number > 2} == {POKE_TIMEOUT}


def test_a_wide_lane_has_as_many_hang_at_once_and_ends_them_when_it_is_closed(tmp_path: Path) -> None:
    """Several children share them, so that a child that freezes costs its share."""
    lane = Lane(100.0, width=150)
    path = classpath(hanging.WaitsToBeKilled)
    numbers = range(1, 121)
    lane.lane.offer(
        Suspect(due_group(number), path, json.dumps({"pid_file": str(tmp_path / f"{number}")}), alone=False)
        for number in numbers
    )

    def pids() -> list[int]:
        return [int(file.read_text()) for file in tmp_path.iterdir() if not file.suffix]

    until("all are poked at once", lambda: len(pids()) == len(numbers), CHILDREN)
    shares = Counter(pids())
    assert sorted(shares.values()) == [56, 64]
    lane.offer(200, answering.Lands)
    until("another class finds room", lambda: not lane.lane.has(200), CHILDREN)
    assert sorted(lane.lane.close()) == list(numbers)
    until("the children have ended", lambda: not any(_lives(pid) for pid in shares), CHILDREN)
    lane.offer(201, answering.Lands)
    assert not lane.lane.has(201)
    assert lane.order() == [200], "what was ended is not reported"


def test_threads_that_hang_take_no_memory_from_those_after_them() -> None:
    lane = Lane(0.3, width=100, memory=16)
    lane.lane.offer(suspect(number, hanging.Hangs) for number in range(1, 301))
    assert {report.reason for report in lane.reports(300).values()} == {"the poke took longer than its limit of 0.3 s"}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class _Idle:
    """A child that lives; in the first one only one poke can begin."""

    made: ClassVar[list["_Idle"]] = []

    def __init__(self, settings: Settings, together: int) -> None:
        self.in_hand: dict[int, Suspect] = {}
        self.began: dict[int, float] = {}
        self.importing, self.hung, self.returncode = None, 0, -9
        self.is_over, self.froze, self.ran_out, self.ready = False, False, False, True
        self.made.append(self)

    def give(self, suspect: Suspect) -> None:
        self.in_hand[suspect.group.id] = suspect

    def hear(self) -> list[tuple[Suspect, Report]]:
        time.sleep(0.01)
        begun = [group_id for group_id in self.in_hand if group_id == 1 or len(self.made) > 1]
        return [(each, Report(each.group, 0.0, LANDED)) for each in map(self.in_hand.pop, begun)]

    def blame(self, suspect: Suspect, *, alone: bool) -> Report | None:
        return None

    def end(self) -> None:
        self.is_over = True


def test_a_child_in_which_nothing_can_be_begun_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    _Idle.made.clear()
    for name, value in {"Child": _Idle, "STINT": 0.05, "START_LIMIT": 0.05}.items():
        monkeypatch.setattr(isolated_lane, name, value)
    lane = Lane(0.1)
    lane.offer_together(answering.Lands, answering.Lands)
    assert lane.reports(2).keys() == {1}, "the other group is due again"
    lane.offer(2, answering.Lands)
    assert lane.reports(2).keys() == {1, 2}
    assert [child.is_over for child in _Idle.made] == [True, True]


def test_what_pokes_start_reads_nothing_that_is_meant_for_the_child() -> None:
    lane = Lane(20.0)
    lane.offer_together(greedy.ReadsInput, *[answering.Lands] * 40, greedy.ReadsInput)
    assert {report.outcome for report in lane.reports(42).values()} == {LANDED}


def test_a_crash_is_seen_though_what_it_started_lives_on() -> None:
    lane = Lane(20.0)
    lane.offer(1, ending.ForksAndAborts, alone=True)
    [report] = lane.reports(1).values()
    assert (report.outcome, report.own_doing) == (CRASHED, True)
    assert "SIGABRT" in str(report.reason)


def test_groups_that_are_poked_alone_hold_nobody_up() -> None:
    lane = Lane(1.0)
    lane.lane.offer([suspect(number, hanging.Freezes, alone=True) for number in range(3, 15)])
    lane.offer(1, answering.Lands)
    until("another group is through", lambda: not lane.lane.has(1), CHILDREN)
    assert sum(lane.lane.has(number) for number in range(3, 15)) > 2
    lane.lane.close()


def test_a_coroutine_that_takes_no_notice_of_its_limit_has_frozen_nothing() -> None:
    lane = Lane(1.0)
    lane.offer(1, coroutines.AsyncSwallows, name="x")
    [report] = lane.reports(1).values()
    assert report.outcome is POKE_TIMEOUT
    assert "limit of 1 s" in str(report.reason)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_child_whose_memory_ran_out_pokes_no_further_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Child] = []

    class Noted(Child):
        def __init__(self, settings: Settings, together: int) -> None:
            made.append(self)
            super().__init__(settings, together)

    monkeypatch.setattr(isolated_lane, "Child", Noted)
    lane = Lane(30.0, memory=64, width=1)
    lane.offer_together(greedy.TakesAllMemory, answering.Lands, answering.Lands)
    found = lane.reports(3)
    assert (found[1].outcome, found[1].quiet_for) == (Outcome.INFRA_FAILURE, NO_BACKEND_OF_ITS)
    assert "MemoryError" in str(found[1].reason)
    assert [found[number].outcome for number in (2, 3)] == [LANDED, LANDED]
    assert len(made) == 2


def test_a_class_that_is_not_enabled_is_not_imported_in_the_child_either(tmp_path: Path) -> None:
    lane = Lane()
    lane.offer(1, "os.path.Sensor")
    [report] = lane.reports(1).values()
    assert report.outcome is Outcome.CANNOT_POKE
    assert "os.path.Sensor is not enabled" in str(report.reason)


def test_a_group_is_here_once_until_it_is_through(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    lane = Lane(60.0)
    lane.offer(1, hanging.WaitsToBeKilled, pid_file=str(pid_file))
    lane.offer(1, answering.Lands)
    lane.offer(2, answering.Lands)
    assert (lane.lane.has(1), lane.lane.has(2), lane.lane.has(3)) == (True, True, False)
    until("the child pokes", lambda: pid_file.exists() and pid_file.read_text(), CHILDREN)
    until("the other one is through, and did not wait for the first", lambda: not lane.lane.has(2), CHILDREN)
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert {number: report.outcome for number, report in lane.reports(2).items()} == {1: CRASHED, 2: LANDED}
    lane.offer(1, answering.Lands)
    until("it is through again", lambda: not lane.lane.has(1), CHILDREN)
    assert sorted(lane.order()) == [1, 1, 2]


def test_what_a_child_said_before_its_end_is_heard_though_it_is_read_late() -> None:
    """A busy machine: the poke is answered, the child ends, and only then does the parent read."""
    before = set(psutil.Process().children())
    child = Child(Settings.load(sensors_enabled=classpath(ending.EndsLater)), 1)
    [process] = set(psutil.Process().children()) - before
    try:
        child.give(suspect(1, ending.EndsLater))
        until("the child's end", lambda: process.status() == psutil.STATUS_ZOMBIE, CHILDREN)
        reports = child.hear()
        while not child.is_over:
            reports += child.hear()
    finally:
        child.end()
    assert [report.outcome for _, report in reports] == [Outcome.NOT_LANDED]
    assert (child.ready, child.in_hand, child.returncode) == (True, {}, 7)


def _ended(
    *, returncode: int = 0, began: float | None = None, importing: str | None = None, froze: bool = False
) -> Child:
    """Return a child that has ended in this way, with group 1 in hand."""
    child = Child.__new__(Child)
    child.froze, child.returncode, child.starved, child._poke_timeout = froze, returncode, False, 1.0
    child.importing, child._import_began = importing, 7.0
    child.began = {} if began is None else {1: began}
    return child


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("child", "began", "by_itself"),
    [
        (_ended(returncode=-9), None, False),
        (_ended(returncode=-9, importing="a.B"), 7.0, False),
        (_ended(returncode=-9, began=3.0), 3.0, False),
        (_ended(froze=True), None, False),
        (_ended(froze=True, began=3.0), 3.0, False),
        (_ended(froze=True, importing="a.B"), 7.0, False),
        (_ended(returncode=-11, importing="a.Other"), None, True),
        (_ended(returncode=-11, began=3.0), 3.0, True),
    ],
)
def test_what_the_end_of_a_child_means(child: Child, began: float | None, by_itself: bool, alone: bool) -> None:
    report = child.blame(suspect(1, "a.B"), alone=alone)
    if began is None:
        assert report is None, "its poke had not begun"
        return
    assert report is not None
    assert report.began == began
    assert report.outcome is (CRASHED if by_itself or not alone else POKE_TIMEOUT)
    assert report.own_doing is (by_itself and alone)


def test_a_child_that_the_kernel_killed_for_its_memory_has_died_by_itself() -> None:
    child = _ended(returncode=-9, began=3.0)
    child.starved = True
    report = child.blame(suspect(1, "a.B"), alone=True)
    assert report is not None
    assert (report.outcome, report.own_doing) == (CRASHED, True)
