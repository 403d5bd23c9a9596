"""The lane of threads: so many pokes at once, one report each, and a poke that hangs costs its own slot."""

import threading
from collections.abc import Callable, Iterator

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke import lane as lane_module
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import ThreadLane
from sensorpool.poke.tools import overran
from tests.support.builders import drive, due_group, outcomes
from tests.support.sensors.gates import Gauge

PATIENT = 60.0  # seconds; no poke overruns
LIMIT = 1.0


class Work(lane_module.Work):
    """A piece of work that does as it is told, and lands."""

    op_classpath = "pkg.mod.Told"

    def __init__(self, group_id: int, act: Callable[[], object] = lambda: None) -> None:
        self.began = 0.0
        self._group = due_group(group_id)
        self.begun = threading.Event()
        self.ended = threading.Event()
        self._act = act

    def poke(self) -> list[Report]:
        self.begun.set()
        self._act()
        self.ended.set()
        return [Report(self._group, 0.0, Outcome.LANDED)]

    def overran(self, limit: float) -> list[Report]:
        return [overran(self._group, self.began, limit)]


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
    assert (len(lane._waiting), lane.abandoned, lane.collect()) == (0, 0, [])


def test_quick_pokes_get_no_more_threads_and_slow_ones_do(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: now)
    works = [Work(number, gate.wait) for number in range(1, 9)]
    for work in works:
        work.is_quick = True
    lane = ThreadLane(Slots(8), PATIENT)
    lane.put(works)
    begun = lambda: sum(work.begun.is_set() for work in works)  # noqa: E731
    until("the first one has begun", lambda: begun() == 1)
    for _ in range(5):
        now += 0.001
        lane.supervise()  # too soon to tell
    assert len(lane._runners) == 1
    now += 0.01
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
    assert len(lane._waiting) == 17
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
    assert (len(lane._waiting), lane.withdraw()) == (0, [])
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


def waiting_lane(gate: threading.Event) -> tuple[ThreadLane, Telling, list[Work]]:
    """Return a lane with four pieces of work that wait for answers."""
    lane, threads = told_lane(8)
    works = [Work(number, gate.wait) for number in range(1, 5)]
    lane.put(works)
    return lane, threads, works


def test_threads_are_woken_one_by_one(gate: threading.Event) -> None:
    """A hundred that are woken at once wait for the interpreter, and for one another."""
    lane, threads, works = waiting_lane(gate)
    before = len(threads.told)
    for work in works:  # and none looks at the lane again
        threads.begin()
        assert work.begun.wait(PATIENT)
        assert len(threads.told) <= before
    gate.set()
    while threads.told:
        threads.begin()
    assert outcomes(drive(lane, lambda seen: len(seen) == 4, "all are poked")).keys() == {1, 2, 3, 4}


def test_a_thread_that_does_not_come_holds_up_no_other(gate: threading.Event) -> None:
    lane, threads, works = waiting_lane(gate)
    threads.told.clear()  # it waits for the interpreter

    def another_is_told() -> bool:
        lane.supervise()
        return bool(threads.told)

    for work in works:
        until("another is told", another_is_told)
        threads.begin()
        assert work.begun.wait(PATIENT)


def test_the_running_threads_do_the_work_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, threads = told_lane(8)
    works = [Work(number) for number in range(1, 5)]
    lane.put(works)

    def fail(task: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "do", fail)
    lane.put([])
    threads.told.pop(0)()
    assert all(work.ended.is_set() for work in works)
    assert lane.idle
    assert outcomes(drive(lane, lambda seen: len(seen) == 4, "all are reported")).keys() == {1, 2, 3, 4}


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
