"""How many pokes of a class go on at once: many that wait for answers, and a few that compute."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from sensorpool.poke.slots import FEWEST, WINDOW, ClassLimits, FairQueue, Slots
from tests.unit.test_slots import Work, fill, taken

MOST = 56
SOON = WINDOW + 0.001


@dataclass
class Process:
    """A process whose clocks go on when they are told to."""

    now: float = 1_000.0
    cpu: float = 10.0
    busy: Counter[str] = field(default_factory=Counter)
    limits: ClassLimits = field(init=False)

    def begin(self, op_classpath: str, number: int) -> None:
        """Begin pokes."""
        if number and not self.busy[op_classpath]:
            self.limits.first_begins(op_classpath)
        self.busy[op_classpath] += number

    def end(self, op_classpath: str, number: int, cpu: float) -> None:
        """End pokes and begin as many others, each of which took so many seconds of the processor."""
        for _ in range(number):
            self.limits.ended(op_classpath, cpu)
        self.cpu += number * cpu

    def look(self, after: float = SOON) -> list[str]:
        """Look after so many seconds; return the classes whose limit is another one then."""
        before = {name: self.limits.of(name) for name in self.busy}
        self.now += after
        self.limits.look(self.busy)
        return [name for name, limit in before.items() if self.limits.of(name) != limit]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr("sensorpool.poke.slots.time.monotonic", lambda: made.now)
    monkeypatch.setattr("sensorpool.poke.slots.time.process_time", lambda: made.cpu)
    made.limits = ClassLimits(MOST)
    return made


def test_pokes_that_wait_for_answers_soon_have_all_that_they_may(process: Process) -> None:
    process.begin("slow", FEWEST)
    found = [process.limits.of("slow")]
    for _ in range(4):
        process.look()
        found.append(process.limits.of("slow"))
    assert found == [FEWEST, 2 * FEWEST, 4 * FEWEST, MOST, MOST]


def test_pokes_that_compute_stay_few(process: Process) -> None:
    process.begin("sql", FEWEST)
    for _ in range(10):
        process.end("sql", 100, 0.5e-3)
        assert process.look() == []
    assert process.limits.of("sql") == FEWEST


def test_pokes_that_take_longer_than_a_look_are_judged_when_as_many_have_ended(process: Process) -> None:
    process.begin("parse", FEWEST)
    for _ in range(3):  # eight of 20 ms, of which none has ended
        process.cpu += SOON
        assert process.look() == []
    process.cpu += 0.007
    for _ in range(FEWEST):
        process.limits.ended("parse", 0.02)
    process.look(after=0.007)
    assert process.look(after=SOON) == []
    assert process.limits.of("parse") == FEWEST


def test_a_class_that_begins_to_compute_has_fewer_and_fewer(process: Process) -> None:
    process.begin("sql", FEWEST)
    for _ in range(3):
        process.look()
    process.begin("sql", MOST - FEWEST)
    found = []
    for _ in range(5):
        process.end("sql", 100, 0.5e-3)
        process.look()
        found.append(process.limits.of("sql"))
        process.busy["sql"] = min(process.busy["sql"], found[-1])
    assert found == [28, 14, FEWEST, FEWEST, FEWEST]


def test_pokes_that_compute_beside_the_interpreter_have_more(process: Process) -> None:
    process.begin("numpy", FEWEST)
    process.end("numpy", FEWEST, 0.02)  # 160 ms in 51
    assert process.look() == ["numpy"]
    assert process.limits.of("numpy") == 2 * FEWEST


def test_a_class_is_judged_by_its_own_pokes(process: Process) -> None:
    process.begin("sql", FEWEST)
    process.begin("http", FEWEST)
    for _ in range(3):
        process.end("sql", 100, 0.5e-3)
        process.end("http", FEWEST, 1e-4)
        process.look()
    assert (process.limits.of("sql"), process.limits.of("http")) == (FEWEST, MOST)


def test_pokes_that_hang_beside_a_busy_class_are_not_judged_before_they_end(process: Process) -> None:
    process.begin("sql", FEWEST)
    process.begin("hangs", FEWEST)
    process.end("sql", 100, 0.5e-3)
    process.look()
    assert process.limits.of("hangs") == FEWEST


def test_the_time_without_a_poke_does_not_count(process: Process) -> None:
    process.begin("sql", FEWEST)
    process.end("sql", 100, 0.5e-3)
    process.look()
    process.busy["sql"] = 0
    process.look(after=5.0)
    process.begin("sql", FEWEST)
    process.end("sql", FEWEST, 0.5e-3)
    assert process.look(after=0.001) == []  # the pokes have begun just now
    process.end("sql", 100, 0.5e-3)
    process.look()
    assert process.limits.of("sql") == FEWEST


def test_few_slots_are_never_exceeded(process: Process) -> None:
    process.limits = ClassLimits(3)
    process.begin("slow", 3)
    process.look()
    assert process.limits.of("slow") == 3


def test_a_class_at_its_limit_leaves_its_slots_to_others(process: Process) -> None:
    slots = Slots(64, of_threads=True)
    waiting: FairQueue[Work] = FairQueue(slots)
    fill(waiting, "sql", 100)
    assert (waiting.takeable, len(taken(waiting))) == (FEWEST, FEWEST)
    process.now += SOON
    process.cpu += SOON  # all of it goes into these eight
    for _ in range(2 * FEWEST):
        slots.release("sql", SOON / FEWEST / 2)
        assert waiting.take() is not None
    slots.look()
    assert waiting.takeable == 0
    fill(waiting, "http", 100)
    assert [work.op_classpath for work in taken(waiting)] == ["http"] * FEWEST
    process.now += SOON  # nothing takes CPU now
    slots.look()
    assert len(taken(waiting)) == 2 * FEWEST


def test_a_class_that_holds_more_than_its_new_limit_gets_no_slot(process: Process) -> None:
    slots = Slots(64, of_threads=True)
    waiting: FairQueue[Work] = FairQueue(slots)
    fill(waiting, "http", 100)
    assert len(taken(waiting)) == FEWEST
    process.now += SOON  # nothing takes CPU
    slots.look()
    assert len(taken(waiting)) == FEWEST
    process.now += SOON
    process.cpu += SOON
    for _ in range(2 * FEWEST):  # they take CPU now, so eight may go on, and sixteen do
        slots.release("http", SOON / FEWEST / 2)
        assert waiting.take() is not None
    slots.look()
    assert slots.most_of("http") == FEWEST
    slots.release("http")
    process.now += 1.0
    assert waiting.take() is None


def test_coroutines_have_no_such_limit() -> None:
    waiting: FairQueue[Work] = FairQueue(Slots(64))
    fill(waiting, "async", 100)
    assert len(taken(waiting)) == MOST
