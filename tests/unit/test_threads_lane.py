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


class Turns:
    """A lane whose clocks stand still, with work that ends one by one.

    :param cpu: seconds of the processor that each piece of work takes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cpu: float, slots: Slots) -> None:
        self.now, self.slots, self.cpu = 1_000.0, slots, cpu
        self._used = threading.local()
        monkeypatch.setattr("sensorpool.poke.thread_lane.time.monotonic", lambda: self.now)
        monkeypatch.setattr("sensorpool.poke.thread_lane.time.thread_time", self._thread_time)
        self._may_end = threading.Semaphore(0)
        self.works = [Work(number, self._may_end.acquire) for number in range(1, 101)]
        self.lane = ThreadLane(slots, PATIENT)

    def _thread_time(self) -> float:
        self._used.seconds = getattr(self._used, "seconds", 0.0) + self.cpu
        return float(self._used.seconds)

    def at_once(self) -> int:
        """Return how many threads the lane has, once each of them pokes."""
        number = len(self.lane._runners)
        until("each thread pokes", lambda: sum(w.begun.is_set() and not w.ended.is_set() for w in self.works) == number)
        return number

    def look(self, after: float) -> None:
        """Have the lane looked after, so many seconds later."""
        self.at_once()
        self.now += after
        self.lane.supervise()

    def end(self, number: int) -> None:
        """Have pieces of work end."""
        before = sum(work.ended.is_set() for work in self.works)
        self._may_end.release(number)
        until("they have ended", lambda: sum(work.ended.is_set() for work in self.works) == before + number)
        self.at_once()  # a thread that pokes again has counted the work before

    def close(self) -> None:
        """Have all work end."""
        self.lane.withdraw()
        self._may_end.release(len(self.works))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Turns]]:
    made: list[Turns] = []

    def make(cpu: float, slots: Slots | None = None) -> Turns:
        made.append(Turns(monkeypatch, cpu, slots or Slots(64)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_pokes_that_compute_go_on_a_few_at_once_and_then_those_that_wait(turns: Callable[[float], Turns]) -> None:
    computing = turns(0.005)
    lane = computing.lane
    lane.put(computing.works)
    for _ in range(3):
        computing.look(after=0.001)
    assert computing.at_once() == 8
    computing.end(8)
    computing.look(after=0.01)  # too soon to tell
    computing.look(after=0.05)  # 40 ms of the processor in 60 ms
    assert computing.at_once() == 8
    assert computing.slots.want_interpreter == {Work.op_classpath}
    computing.end(2)
    computing.look(after=0.06)  # 10 ms in 60 ms: they wait for something
    assert computing.at_once() == 16
    assert computing.slots.want_interpreter == set()


def test_pokes_that_wait_for_answers_get_more_and_more_threads(turns: Callable[[float], Turns]) -> None:
    waiting = turns(0.0)
    waiting.lane.put(waiting.works)
    for _ in range(3):
        waiting.look(after=0.001)
    waiting.look(after=0.06)
    assert waiting.at_once() == 16
    waiting.look(after=0.06)
    waiting.look(after=0.06)
    assert waiting.at_once() == 56  # a class has not all slots


def test_pokes_that_run_beside_the_interpreter_get_more_threads(turns: Callable[[float], Turns]) -> None:
    beside = turns(0.02)
    beside.lane.put(beside.works)
    for _ in range(3):
        beside.look(after=0.001)
    beside.end(8)
    beside.look(after=0.06)  # 160 ms of the processor in 60 ms
    assert beside.at_once() == 16


def test_a_later_job_knows_that_a_class_computes(turns: Callable[[float], Turns]) -> None:
    slots = Slots(64)
    slots.want_interpreter.add(Work.op_classpath)
    later = turns(0.005, slots)
    later.lane.put(later.works[:50], at_once=True)
    assert later.at_once() == 1
    slots.want_interpreter.clear()
    later.lane.put(later.works[50:], at_once=True)
    assert later.at_once() == 56


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
