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
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest

from harness.until import until
from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke import child as child_module
from sensorpool.poke import isolated_children, isolated_lane
from sensorpool.poke.child import Child, Suspect
from sensorpool.poke.isolated_lane import TOGETHER, IsolatedLane
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
        self.kept: set[int] = set()
        self.failing = 0  # so many renewals of claims fail
        self.losing = 0  # so many results are lost
        self._reports: list[Report] = []
        self._lock = threading.Lock()
        self.watched: list[tuple[list[int], list[Report], bool | None]] = []
        self.lane = IsolatedLane(settings, self._take, self._keep, width, self._end_watch)

    def _take(self, reports: Sequence[Report]) -> None:
        if self.losing:
            self.losing -= 1
            raise Unreachable("the database is busy")
        with self._lock:
            self._reports.extend(reports)

    def _keep(self, group_ids: Sequence[int]) -> None:
        if self.failing:
            self.failing -= 1
            raise Unreachable("Redis does not answer")
        self.kept.update(group_ids)

    def _end_watch(self, group_ids: Sequence[int], late: Sequence[Report], died: bool | None) -> None:
        self.watched.append((list(group_ids), list(late), died))

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
    assert lane.kept <= {1, 2, 3, 4, 5}


def test_a_renewal_that_fails_ends_no_poke() -> None:
    lane = Lane(30.0, width=1)
    lane.failing = 1
    lane.offer_together(answering.Lands, answering.Lands)
    found = lane.reports(2)
    assert lane.failing == 0
    assert [found[number].outcome for number in (1, 2)] == [LANDED, LANDED]


def test_a_result_that_is_lost_ends_no_other_poke() -> None:
    lane = Lane(30.0, width=1)
    lane.losing = 1
    lane.offer_together(*[answering.Lands] * 20)
    until("the others", lambda: lane.order()[-1:] == [20], CHILDREN)
    assert lane.losing == 0
    assert 0 < len(lane.order()) < 20


BAD = [
    (hanging.Hangs, POKE_TIMEOUT, "limit of 1 s"),
    (hanging.Freezes, POKE_TIMEOUT, "froze its process"),
    (hanging.StopsTheMainThread, POKE_TIMEOUT, "froze its process"),
    (ending.Exits, CRASHED, "exit code 3"),
    (ending.ExitsQuietly, CRASHED, "exit code 0"),
    (ending.Segfaults, CRASHED, "SIGSEGV"),
]


@pytest.mark.parametrize(("bad", "outcome", "reason"), BAD, ids=[cls.__name__ for cls, _, _ in BAD])
def test_only_the_bad_one_is_blamed(bad: type, outcome: Outcome, reason: str) -> None:
    lane = Lane()
    lane.offer_together(answering.Lands, answering.Lands, bad, answering.Lands, answering.AsyncLands)
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


def test_one_that_hangs_at_its_end_stops_nobody() -> None:
    lane = Lane()
    lane.offer_together(*[hanging.HangsAtItsEnd] * 40, *[answering.Lands] * 40)
    assert {report.outcome for report in lane.reports(80).values()} == {LANDED}


def test_two_crashers_beside_each_other_are_both_found() -> None:
    lane = Lane()
    lane.offer_together(ending.Exits, answering.Lands, ending.Segfaults)
    outcomes = {number: report.outcome for number, report in lane.reports(3).items()}
    assert outcomes == {1: CRASHED, 2: LANDED, 3: CRASHED}


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_from_outside_is_no_crash(tmp_path: Path, sent: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    lane = Lane(60.0)
    lane.offer(1, hanging.WaitsToBeKilled, pid_file=str(pid_file))
    began, killed = time.monotonic(), set[str]()
    for _ in range(2):  # its answer is not known, so it is poked once more
        until("the child pokes", lambda: pid_file.exists() and pid_file.read_text() not in killed | {""}, CHILDREN)
        killed.add(pid_file.read_text())
        time.sleep(0.5)  # the child reports the begin in another way than by this file
        begun, began = began, time.monotonic()
        os.kill(int(pid_file.read_text()), sent)
    [report] = lane.reports(1).values()
    assert report.outcome is POKE_TIMEOUT
    assert begun < report.began < began, "when its poke began, not when its child ended"
    assert report.reason == "its process was killed from outside"


def test_a_class_whose_import_takes_the_process_down_costs_its_own_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_at_import.py").write_text("import os\nos._exit(4)\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    lane = Lane(1.0, "ends_at_import.Sensor")
    suspects = [
        Suspect(due_group(1), classpath(answering.Lands), "{}", alone=False),
        Suspect(due_group(2), "ends_at_import.Sensor", "{}", alone=False),
    ]
    lane.lane.offer(suspects)
    found = lane.reports(2)
    assert {number: report.outcome for number, report in found.items()} == {1: LANDED, 2: CRASHED}
    assert "exit code 4" in str(found[2].reason)


def test_a_class_whose_import_ends_the_process_is_blamed_once_for_all_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its groups, and other waiting groups, make no difference."""
    started = tmp_path / "started"
    (tmp_path / "counts_and_ends.py").write_text(
        f"import os\nwith open({str(started)!r}, 'a') as file:\n    file.write('x')\nos._exit(4)\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    lane = Lane(1.0, "counts_and_ends.Sensor")
    suspects = [Suspect(due_group(number), "counts_and_ends.Sensor", "{}", alone=False) for number in range(1, 1_201)]
    suspects += [
        Suspect(due_group(number), classpath(answering.Lands), "{}", alone=False) for number in range(1_201, 1_211)
    ]
    lane.lane.offer(suspects)
    found = lane.reports(1_210)
    assert {found[number].outcome for number in range(1, 1_201)} == {CRASHED}
    assert {found[number].outcome for number in range(1_201, 1_211)} == {LANDED}
    assert len(started.read_text()) <= 3


def test_those_that_hang_hold_nobody_up() -> None:
    """Groups of another class go on, together with them and later; and the hanging ones go to several children."""
    lane = Lane(0.5)
    stuck = [Suspect(due_group(number), classpath(hanging.Hangs), "{}", alone=False) for number in range(3, 103)]
    lane.lane.offer([*stuck, Suspect(due_group(1), classpath(answering.Lands), "{}", alone=False)])
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
    assert lane.offer(201, answering.Lands) == 0
    assert lane.order() == [200], "what was ended is not reported"


def test_threads_that_hang_take_no_memory_from_those_after_them() -> None:
    lane = Lane(0.3, width=100, memory=16)
    lane.lane.offer(Suspect(due_group(number), classpath(hanging.Hangs), "{}", alone=False) for number in range(1, 301))
    assert {report.reason for report in lane.reports(300).values()} == {"the poke took longer than its limit of 0.3 s"}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_that_froze_its_child_is_poked_by_itself_from_then_on() -> None:
    lane = Lane(1.0)
    lane.offer_together(hanging.Freezes)
    lane.reports(1)
    lane.lane.offer(
        Suspect(due_group(number), classpath(cls), "{}", alone=False)
        for number, cls in [(1, hanging.Freezes), (2, answering.Sleeps)]
    )
    until("the one that freezes is through", lambda: not lane.lane.has(1), CHILDREN)
    assert lane.order() == [1, 2, 1], "the other one did not wait for it"


class _Idle:
    """A child that lives; in the first one only one poke can begin."""

    made: ClassVar[list["_Idle"]] = []

    def __init__(self, settings: Settings, together: int, *, alone: bool = False) -> None:
        self.in_hand: dict[int, Suspect] = {}
        self.began: dict[int, float] = {}
        self.poked: set[int] = set()
        self.importing, self.hung, self.is_over, self.froze, self.returncode = None, 0, False, False, -9
        self.made.append(self)

    def give(self, suspect: Suspect) -> None:
        self.in_hand[suspect.group.id] = suspect

    def hear(self) -> list[tuple[Suspect, Report]]:
        time.sleep(0.01)
        begun = [group_id for group_id in self.in_hand if group_id == 1 or len(self.made) > 1]
        return [(each, Report(each.group, 0.0, LANDED)) for each in map(self.in_hand.pop, begun)]

    def end(self) -> None:
        self.is_over = True


def test_a_child_in_which_nothing_can_be_begun_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    _Idle.made.clear()
    for name, value in {"Child": _Idle, "STINT": 0.05, "START_LIMIT": 0.05}.items():
        monkeypatch.setattr(isolated_children, name, value)
    lane = Lane(0.1)
    lane.offer_together(answering.Lands, answering.Lands)
    assert {report.outcome for report in lane.reports(2).values()} == {LANDED}
    assert [child.is_over for child in _Idle.made] == [True, True]


def test_what_pokes_start_reads_nothing_that_is_meant_for_the_child() -> None:
    lane = Lane(20.0)
    lane.offer_together(greedy.ReadsInput, *[answering.Lands] * 40, greedy.ReadsInput)
    assert {report.outcome for report in lane.reports(42).values()} == {LANDED}


def test_a_crash_is_seen_though_what_it_started_lives_on() -> None:
    lane = Lane(20.0)
    lane.offer(1, ending.ForksAndAborts)
    [report] = lane.reports(1).values()
    assert report.outcome is CRASHED
    assert "SIGABRT" in str(report.reason)


def test_nobody_is_blamed_for_what_another_does_who_was_given_up() -> None:
    lane = Lane(1.0)
    lane.offer(1, ending.AbortsLate)
    time.sleep(0.7)  # so that the group is in hand when the first one ends its process
    lane.offer(2, answering.Sleeps)
    assert {number: report.outcome for number, report in lane.reports(2).items()} == {1: POKE_TIMEOUT, 2: LANDED}


def test_nobody_is_blamed_for_what_the_poke_of_another_left_behind(tmp_path: Path) -> None:
    lane = Lane(60.0)
    said = str(tmp_path / "said")
    lane.lane.offer(
        [
            Suspect(due_group(1), classpath(ending.EndsWhenTold), json.dumps({"said": said}), alone=False),
            Suspect(due_group(2), classpath(ending.TellsOnce), json.dumps({"said": said}), alone=False),
        ]
    )
    assert {number: report.outcome for number, report in lane.reports(2).items()} == {1: LANDED, 2: LANDED}


def test_no_class_is_blamed_for_what_a_poke_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if its import was under way when the process ended: it is imported again, in a fresh process."""
    lane = Lane()
    child = _ended(returncode=7, importing=classpath(answering.Lands))
    child.in_hand, child.poked = {1: Suspect(due_group(1), classpath(answering.Lands), "{}", alone=False)}, {9}
    again: list[int] = []
    children, waiting = lane.lane._children, lane.lane._groups.together
    monkeypatch.setattr(children, "poke_together", lambda line: again.extend(each.group.id for each in line.drain()))
    children._look_into(child, waiting, heard=True)
    assert (again, lane.order()) == ([1], [])


def watched(number: int, cls: type, share: int = 1, **context: str) -> Suspect:
    return Suspect(due_group(number), classpath(cls), json.dumps(context), alone=True, watch=share)


@pytest.mark.parametrize("how", ["segfault", "exit", "alarm"])
def test_one_that_ends_its_process_later_is_blamed_when_its_child_lives_on(how: str) -> None:
    lane = Lane(30.0)
    lane.lane.offer([watched(1, ending.EndsLater, how=how)])
    assert lane.reports(1)[1].outcome is Outcome.NOT_LANDED, "what it saw is said at once"
    [(group_ids, late, died)] = until("its child has ended", lambda: lane.watched, CHILDREN)
    assert (group_ids, died) == ([1], True)
    assert [each.outcome for each in late] == [CRASHED]
    assert late[0].reason == f"what its poke left behind took its process down ({ending.EndsLater.ENDINGS[how]})"


def test_of_those_that_share_a_child_which_ends_later_none_is_blamed() -> None:
    lane = Lane(30.0)
    innocent = [watched(number, answering.FindsNothing, 4) for number in (1, 2, 3)]
    lane.lane.offer([*innocent, watched(4, ending.EndsLater, 4, how="exit")])
    assert {report.outcome for report in lane.reports(4).values()} == {Outcome.NOT_LANDED}
    assert until("their child has ended", lambda: lane.watched, CHILDREN) == [([1, 2, 3, 4], [], True)]


def test_those_that_end_nothing_are_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_children, "LINGER", 0.2)
    lane = Lane(30.0)
    lane.lane.offer([watched(1, answering.FindsNothing, 4), watched(2, answering.Lands, 4)])
    assert {number: report.outcome for number, report in lane.reports(2).items()} == {
        1: Outcome.NOT_LANDED,
        2: LANDED,
    }
    [(group_ids, late, died)] = until("their child has ended", lambda: lane.watched, CHILDREN)
    assert (sorted(group_ids), late, died) == ([1, 2], [], False)


def test_of_those_that_share_a_child_one_that_crashes_is_found() -> None:
    lane = Lane(30.0)
    lane.lane.offer([watched(1, answering.FindsNothing, 4), watched(2, ending.Segfaults, 4)])
    assert {number: report.outcome for number, report in lane.reports(2).items()} == {
        1: Outcome.NOT_LANDED,
        2: CRASHED,
    }


def test_children_that_live_on_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_children, "LINGER", 3_600.0)
    monkeypatch.setattr(isolated_lane, "LINGERING", 2)
    lane = Lane(30.0)
    lane.lane.offer([watched(number, answering.FindsNothing) for number in (3, 4, 5)])
    until("two are through, and their children live on", lambda: not (lane.lane.has(3) or lane.lane.has(4)), CHILDREN)
    lane.offer(1, answering.Lands)
    lane.offer(2, answering.Lands, alone=True)
    until("the others are through", lambda: not (lane.lane.has(1) or lane.lane.has(2)), CHILDREN)
    assert sorted(lane.lane.close()) == [5], "the third one waited for a child"
    until("the children have ended", lambda: len(lane.watched) == 2, CHILDREN)
    assert lane.watched == [([3], [], None), ([4], [], None)] or lane.watched == [([4], [], None), ([3], [], None)]


def test_a_coroutine_that_takes_no_notice_of_its_limit_has_frozen_nothing() -> None:
    lane = Lane(1.0)
    lane.offer(1, coroutines.AsyncSwallows, name="x")
    [report] = lane.reports(1).values()
    assert report.outcome is POKE_TIMEOUT
    assert "limit of 1 s" in str(report.reason)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_who_finds_no_memory_left_beside_others_is_not_blamed() -> None:
    lane = Lane(2.0, memory=64)
    lane.offer_together(greedy.HoldsMemory, *[greedy.TakesMemory] * 4)
    found = lane.reports(5)
    assert found.pop(1).outcome is POKE_TIMEOUT
    assert {report.outcome for report in found.values()} == {LANDED}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_who_takes_all_memory_is_blamed_when_he_is_alone() -> None:
    lane = Lane(30.0, memory=64)
    lane.offer_together(answering.Lands, greedy.TakesAllMemory, answering.Lands)
    found = lane.reports(3)
    assert {number: report.outcome for number, report in found.items()} == {1: LANDED, 2: CRASHED, 3: LANDED}
    assert "MemoryError" in str(found[2].reason)


def test_a_class_that_is_not_enabled_is_not_imported_in_the_child_either(tmp_path: Path) -> None:
    lane = Lane()
    lane.offer(1, "os.path.Sensor")
    [report] = lane.reports(1).values()
    assert report.outcome is Outcome.CANNOT_POKE
    assert "os.path.Sensor is not enabled" in str(report.reason)


def test_a_group_is_here_once_until_it_is_through(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    lane = Lane(60.0)
    assert lane.offer(1, hanging.WaitsToBeKilled, pid_file=str(pid_file)) == 1
    assert lane.offer(1, answering.Lands) == 0
    assert lane.offer(2, answering.Lands) == 1
    assert lane.lane.has(1)
    assert not lane.lane.has(3)
    until("the child pokes", pid_file.exists, CHILDREN)
    until("both are kept while they are here", lambda: lane.kept == {1, 2}, CHILDREN)
    until("the other one is through, and did not wait for the first", lambda: not lane.lane.has(2), CHILDREN)
    killed = set[str]()

    def through() -> bool:
        if (pid := pid_file.read_text()) not in killed | {""}:
            os.kill(int(pid), signal.SIGKILL)
            killed.add(pid)
        return not lane.lane.has(1)

    until("it is through, each of its processes killed", through, CHILDREN)
    assert len(killed) > 1, "it is poked once more"
    assert lane.reports(2)[2].outcome is LANDED
    assert lane.offer(1, answering.Lands) == 1
    until("it is through again", lambda: not lane.lane.has(1), CHILDREN)


def test_what_a_child_said_before_its_end_is_heard_though_it_is_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine: the poke is answered, the child ends, and only then does the parent's thread read."""
    may_read, read = threading.Event(), child_module._read

    def read_late(*arguments: Any) -> None:
        may_read.wait()
        read(*arguments)

    monkeypatch.setattr(child_module, "_read", read_late)
    before = set(psutil.Process().children())
    child = Child(Settings.load(sensors_enabled=classpath(ending.EndsLater)), 1)
    [process] = set(psutil.Process().children()) - before
    try:
        child.give(Suspect(due_group(1), classpath(ending.EndsLater), '{"how": "exit"}', alone=False))
        until("the child's end", lambda: process.status() == psutil.STATUS_ZOMBIE, CHILDREN)
        reports = [*child.hear(), *child.hear()]
        assert reports == []
        assert not child.is_over
        may_read.set()
        while not child.is_over:
            reports += child.hear()
    finally:
        may_read.set()
        child.end()
    assert [report.outcome for _, report in reports] == [Outcome.NOT_LANDED]
    assert (child.ready, child.poked, child.in_hand, child.returncode) == (True, {1}, {}, 7)


def test_a_child_is_not_frozen_by_a_machine_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks the clock goes on by an hour: neither its start nor its import nor its poke took that long."""
    ahead = [0.0]
    monkeypatch.setattr(child_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))
    child = Child(Settings.load(sensors_enabled=classpath(answering.Sleeps)), 1)
    try:
        child.give(Suspect(due_group(1), classpath(answering.Sleeps), "{}", alone=False))
        reports: list[Any] = []
        while not reports and not child.is_over:
            ahead[0] += 3_600
            reports += child.hear()
    finally:
        child.end()
    assert ahead[0] > 3 * 3_600
    assert not child.froze
    assert [report.outcome for _, report in reports] == [LANDED]


def _ended(
    *, returncode: int = 0, began: float | None = None, importing: str | None = None, froze: bool = False
) -> Child:
    """Return a child that has ended in this way, with group 1 in hand."""
    child = Child.__new__(Child)
    child.froze, child.returncode, child.starved, child.frozen_for = froze, returncode, False, 2.0 * froze
    child.importing, child._import_began = importing, 7.0
    child.began = {} if began is None else {1: began}
    child.hung = 0
    return child


@pytest.mark.parametrize(
    ("child", "outcome", "began"),
    [
        (_ended(returncode=-9), None, 0.0),
        (_ended(returncode=-9, importing="a.B"), None, 0.0),
        (_ended(returncode=-9, began=3.0), POKE_TIMEOUT, 3.0),
        (_ended(froze=True), None, 0.0),
        (_ended(froze=True, began=3.0), POKE_TIMEOUT, 3.0),
        (_ended(froze=True, importing="a.B"), Outcome.CANNOT_POKE, 7.0),
        (_ended(returncode=-11, began=3.0), CRASHED, 3.0),
    ],
)
def test_only_a_poke_that_began_is_said_to_have_seen_nothing(
    child: Child, outcome: Outcome | None, began: float
) -> None:
    report = child.blame(Suspect(due_group(1), "a.B", "{}", alone=False))
    assert (report and report.outcome, report and report.began) == (outcome, outcome and began)
