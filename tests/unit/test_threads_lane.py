"""The lane of threads: so many pokes at once, one report each, and a poke that hangs costs its own slot."""

import threading
from collections.abc import Callable, Iterator

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import ThreadLane
from sensorpool.poke.tools import overran
from tests.support.builders import drive, due_group, outcomes
from tests.support.sensors.gates import Gauge

PATIENT = 60.0  # seconds; no poke overruns
LIMIT = 1.0


class Work:
    """A piece of work that does as it is told, and lands."""

    op_classpath = "pkg.mod.Told"
    size = 1

    def __init__(self, group_id: int, act: Callable[[], object] = lambda: None) -> None:
        self.began = 0.0
        self.groups: list[DueGroup] = [due_group(group_id)]
        self.begun = threading.Event()
        self.ended = threading.Event()
        self._act = act

    def poke(self) -> list[Report]:
        self.begun.set()
        self._act()
        self.ended.set()
        return [Report(self.groups[0], 0.0, Outcome.LANDED)]

    def overran(self, limit: float) -> list[Report]:
        return [overran(self.groups[0], self.began, limit)]

    def rest(self) -> "list[Work]":
        return []


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The gate for which hanging work waits; it opens when the test ends."""
    event = threading.Event()
    yield event
    event.set()


def test_everything_is_reported_once() -> None:
    lane = ThreadLane(Slots(8), PATIENT)
    lane.put(Work(number) for number in range(1, 2_001))
    reports = drive(lane, lambda seen: lane.idle and len(seen) >= 2_000, "all are poked")
    assert outcomes(reports) == dict.fromkeys(range(1, 2_001), Outcome.LANDED)
    assert (lane.queued, lane.abandoned, lane.collect()) == (0, 0, [])


def test_quick_pokes_get_no_more_threads_and_slow_ones_do(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: now)
    works = [Work(number, gate.wait) for number in range(1, 9)]
    for work in works:
        work.size = 64
    lane = ThreadLane(Slots(8), PATIENT)
    lane.put(works)
    begun = lambda: sum(work.begun.is_set() for work in works)  # noqa: E731
    until("the first one has begun", lambda: begun() == 1)
    for _ in range(5):
        lane.supervise()  # too soon to tell
    now += 0.001
    lane.supervise()  # 64 quick pokes take three times as long
    assert len(lane._runners) == 1
    now += 0.005
    lane.supervise()
    until("another one has begun", lambda: begun() == 2)
    gate.set()


def test_no_more_are_poked_at_once_than_the_concurrency(gate: threading.Event) -> None:
    gauge = Gauge()

    def stay() -> None:
        with gauge:
            gate.wait()

    lane = ThreadLane(Slots(3), PATIENT)
    lane.put(Work(number, stay) for number in range(1, 21))
    drive(lane, lambda _: gauge.inside == 3, "three are poked at once")
    lane.supervise()
    assert lane.queued == 17
    assert not lane.idle
    gate.set()
    assert len(drive(lane, lambda seen: len(seen) == 20, "all are poked")) == 20
    assert gauge.most == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_poke_that_hangs_costs_its_slot_and_nobody_else(gate: threading.Event, concurrency: int) -> None:
    lane = ThreadLane(Slots(concurrency), LIMIT)
    hung = [Work(number, gate.wait) for number in range(1, concurrency + 1)]
    lane.put(hung)
    lane.put(Work(number) for number in range(10, 30))
    found = outcomes(drive(lane, lambda seen: len(seen) == 20 + concurrency, "the others are poked"))
    assert {number for number, outcome in found.items() if outcome is Outcome.POKE_TIMEOUT} == set(
        range(1, concurrency + 1)
    )
    until("the lane is idle", lambda: lane.idle)
    assert lane.abandoned == concurrency


def test_a_poke_that_comes_back_late_is_not_reported_twice(gate: threading.Event) -> None:
    lane = ThreadLane(Slots(1), LIMIT)
    late = Work(1, gate.wait)
    lane.put([late])
    [report] = drive(lane, lambda seen: seen, "the poke is given up")
    assert report.outcome is Outcome.POKE_TIMEOUT
    assert report.reason == "the poke took longer than its limit of 1 s"
    gate.set()
    until("the thread comes back", lambda: lane.abandoned == 0)
    assert late.ended.is_set()
    lane.supervise()
    assert lane.collect() == []
    # and the lane goes on, with one slot and not two
    gauge = Gauge()

    def enter() -> None:
        with gauge:
            pass

    lane.put(Work(number, enter) for number in range(2, 200))
    assert len(drive(lane, lambda seen: len(seen) == 198, "the others are poked")) == 198
    assert gauge.most == 1


def test_what_nobody_has_taken_up_can_be_taken_back(gate: threading.Event) -> None:
    lane = ThreadLane(Slots(1), PATIENT)
    first = Work(1, gate.wait)
    lane.put([first])
    assert first.begun.wait(30)
    rest = [Work(number) for number in range(2, 10)]
    lane.put(rest)
    assert lane.withdraw() == rest
    assert (lane.queued, lane.withdraw()) == (0, [])
    gate.set()
    assert outcomes(drive(lane, lambda seen: lane.idle and seen, "the first ends")) == {1: Outcome.LANDED}
    assert not any(work.begun.is_set() for work in rest)


def test_a_lane_with_nothing_to_do_is_idle() -> None:
    lane = ThreadLane(Slots(4), PATIENT)
    lane.put([])
    lane.supervise()
    assert lane.idle
    assert lane.collect() == []


class Telling:
    """Threads that note what they are told, and do it when the test says so."""

    def __init__(self) -> None:
        self.told: list[Callable[[], None]] = []

    def do(self, task: Callable[[], None]) -> None:
        """Note a task."""
        self.told.append(task)

    def begin(self) -> None:
        """Begin the first task."""
        threading.Thread(target=self.told.pop(0), daemon=True).start()


def told_lane(slots: int) -> tuple[ThreadLane, Telling]:
    """Return a lane whose threads do what they are told when the test says so."""
    threads = Telling()
    return ThreadLane(Slots(slots), PATIENT, threads), threads  # type: ignore[arg-type]


def waiting_lane(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> tuple[ThreadLane, Telling, list[Work]]:
    """Return a lane with four pieces of work that wait for answers, at a time that stands still."""
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: 1_000.0)
    lane, threads = told_lane(8)
    works = [Work(number, gate.wait) for number in range(1, 5)]
    lane.put(works, at_once=True)
    return lane, threads, works


def test_threads_are_woken_one_by_one(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred that are woken at once wait for the interpreter, and for one another."""
    lane, threads, works = waiting_lane(monkeypatch, gate)
    for work in works[:-1]:
        lane.supervise()
        assert len(threads.told) == 1
        threads.begin()
        assert work.begun.wait(PATIENT)
    threads.begin()
    assert works[-1].begun.wait(PATIENT)
    assert threads.told == [], "no work is left"
    gate.set()
    assert outcomes(drive(lane, lambda seen: len(seen) == 4, "all are poked")).keys() == {1, 2, 3, 4}


def test_a_look_cuts_no_chain_short(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, threads, works = waiting_lane(monkeypatch, gate)
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: 1_000.001)
    lane.supervise()
    for work in works:  # and none looks at the lane again
        threads.begin()
        assert work.begun.wait(PATIENT)


def test_work_that_comes_as_a_thread_finds_none_has_a_thread(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, threads, works = waiting_lane(monkeypatch, gate)
    take = lane._waiting.take
    assert lane.withdraw() == works

    def find_none() -> Work | None:
        assert take() is None
        monkeypatch.setattr(lane._waiting, "take", take)
        lane.put(works, at_once=True)
        return None

    monkeypatch.setattr(lane._waiting, "take", find_none)
    threads.told.pop(0)()
    assert len(threads.told) == 1


def test_no_thread_is_told_for_work_that_was_taken_back(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, threads, _ = waiting_lane(monkeypatch, gate)
    lane.withdraw()
    threads.told.pop(0)()
    lane.supervise()
    quick = [Work(number) for number in range(1, 5)]
    for work in quick:
        work.size = 64
    lane.put(quick)
    assert len(threads.told) == 1
    threads.told.pop(0)()
    assert all(work.ended.is_set() for work in quick)
    assert threads.told == []


def test_a_thread_that_does_not_come_holds_up_no_other(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, threads, works = waiting_lane(monkeypatch, gate)
    threads.told.clear()  # it is lost
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: 1_000.02)
    lane.supervise()
    assert len(threads.told) == 2, "one by one has failed"
    for later, work in enumerate(works):
        monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda later=later: 1_001.0 + later)
        lane.supervise()
        threads.begin()
        assert work.begun.wait(PATIENT)


def test_threads_that_wait_for_the_interpreter_are_told_by_the_number(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where other pokes compute, each thread waits for its turn: one after the other would take seconds."""
    now = 1_000.0
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: now)
    lane, threads = told_lane(64)
    lane.put((Work(number, gate.wait) for number in range(40)), at_once=True)
    told = []
    for _ in range(6):
        told.append(len(threads.told))
        now += 0.02
        lane.supervise()
    assert told == [1, 3, 7, 15, 31, 40]


def test_the_time_in_which_a_thread_tells_the_next_is_no_time_of_its_poke(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    lane, threads, works = waiting_lane(monkeypatch, gate)
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: now)

    def start_slowly(task: Callable[[], None]) -> None:
        nonlocal now
        now += 2 * PATIENT
        threads.told.append(task)

    monkeypatch.setattr(threads, "do", start_slowly)
    threads.begin()
    assert works[0].begun.wait(PATIENT)
    lane.supervise()
    assert (lane.abandoned, works[0].began) == (0, 1_000.0 + 2 * PATIENT)


def test_the_running_threads_do_the_work_where_none_can_be_started(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, threads, works = waiting_lane(monkeypatch, gate)
    tries: list[object] = []

    def fail(task: object) -> None:
        tries.append(task)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "do", fail)
    gate.set()
    threads.told.pop(0)()
    assert len(tries) == 1, "the next look tries again, and no poke before it"
    assert all(work.ended.is_set() for work in works)
    assert lane.idle
    assert outcomes(drive(lane, lambda seen: len(seen) == 4, "all are reported")).keys() == {1, 2, 3, 4}


def test_a_signal_while_a_thread_is_told_leaves_none_behind(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, threads, works = waiting_lane(monkeypatch, gate)
    threads.told.pop(0)
    lane.withdraw()
    lane._runners.clear()

    def interrupted(task: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(threads, "do", interrupted)
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: 1_001.0)
    with pytest.raises(SystemExit):
        lane.put(works)
    lane.withdraw()
    assert lane.idle


def test_a_thread_whose_start_was_thought_to_fail_is_known_to_the_lane(gate: threading.Event) -> None:
    lane, threads = told_lane(8)
    work = Work(1, gate.wait)
    lane.put([work])
    lane._runners.clear()
    threads.begin()
    assert work.begun.wait(PATIENT)
    assert not lane.idle
    gate.set()
    until("the lane is idle", lambda: lane.idle)


class Unreadable(Work):
    """A piece of work whose result cannot be read, after the lane has given it up."""

    def __init__(self, group_id: int, act: Callable[[], object]) -> None:
        super().__init__(group_id, act)
        self.overruns = 0

    def poke(self) -> list[Report]:
        super().poke()
        raise MemoryError

    def overran(self, limit: float) -> list[Report]:
        self.overruns += 1
        return super().overran(limit)


def test_work_that_was_given_up_does_not_overrun_again_as_it_ends(gate: threading.Event) -> None:
    lane = ThreadLane(Slots(1), 0.05)
    work = Unreadable(1, gate.wait)
    lane.put([work])
    drive(lane, lambda seen: seen, "the poke is given up")
    gate.set()
    until("the thread comes back", lambda: lane.abandoned == 0)
    assert (work.overruns, lane.collect(), lane.idle) == (1, [], True)


def test_an_error_in_the_last_resort_leaves_no_thread_behind() -> None:
    class Worse(Unreadable):
        def overran(self, limit: float) -> list[Report]:
            raise MemoryError

    lane, threads = told_lane(4)
    lane.put([Worse(1, lambda: None)])
    with pytest.raises(MemoryError):
        threads.told.pop(0)()
    assert lane.idle


def test_work_that_other_work_made_begins_at_once(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, threads, works = waiting_lane(monkeypatch, gate)
    taken = lane.withdraw()
    threads.told.pop(0)()
    lane.put_back(taken, at_once=True)
    for work in works:
        threads.begin()
        assert work.begun.wait(PATIENT)
