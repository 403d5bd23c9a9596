"""Pokes of quick classes in a row: each is reported once, and a poke that turns out to be slow holds up no other."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.poke.answer import Answers
from sensorpool.poke.cache import Cache
from sensorpool.poke.classes import Classes
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import QuickBatch, ThreadLane
from sensorpool.poke.tools import PokeTools
from tests.support.builders import classpath, drive, due_group, in_order, one, outcomes

PATIENT = 60.0  # seconds; no poke overruns
LIMIT = 1.0
LANDED, NOT_LANDED, ERROR, POKE_TIMEOUT = (
    Outcome.LANDED,
    Outcome.NOT_LANDED,
    Outcome.POKE_ERROR,
    Outcome.POKE_TIMEOUT,
)


class Says:
    """Answers with the value, the exception or the gate of its context."""

    says: Any = None
    gate = threading.Event()
    begun = threading.Event()

    def __init__(self, say: str) -> None:
        self._say = say

    def poke(self, context: Any) -> Any:
        match self._say:
            case "land":
                return True
            case "raise":
                raise IndexError("pop from an empty deque")  # like the end of the batch
            case "wait":
                self.begun.set()
                self.gate.wait()
        return False


@pytest.fixture(autouse=True)
def gate() -> Iterator[threading.Event]:
    Says.gate, Says.begun = threading.Event(), threading.Event()
    yield Says.gate
    Says.gate.set()


@pytest.fixture
def tools() -> PokeTools:
    return PokeTools(Classes([classpath(Says)]), Answers([]), {})


def row(tools: PokeTools, *says: str) -> QuickBatch:
    return QuickBatch([one(number, Says, tools, say=say) for number, say in enumerate(says, 1)])


@pytest.mark.parametrize("constructed", [False, True])
def test_each_is_poked_once_in_order_and_an_error_is_its_own(tools: PokeTools, constructed: bool) -> None:
    ones = [one(number, Says, tools, say=say) for number, say in enumerate(("", "land", "raise", ""), 1)]
    for each in ones:
        if constructed:
            each.poke()
    work = QuickBatch(ones)
    assert [group.id for group in work.groups] == [1, 2, 3, 4]
    reports = in_order(work.poke())
    assert [report.group.id for report in reports] == [1, 2, 3, 4]
    assert outcomes(reports) == {1: NOT_LANDED, 2: LANDED, 3: ERROR, 4: NOT_LANDED}
    assert tools.pace[classpath(Says)] < 1


def test_a_report_says_when_its_own_poke_began(tools: PokeTools) -> None:
    reports = in_order(row(tools, "", "", "").poke())
    assert [report.began for report in reports] == sorted(report.began for report in reports)
    for report in reports:
        assert report.seconds >= 0


def test_those_behind_a_slow_one_do_not_wait_for_it(tools: PokeTools, gate: threading.Event) -> None:
    lane = ThreadLane(Slots(2), PATIENT)
    lane.put([row(tools, "", "wait", *[""] * 20)])
    assert Says.begun.wait(30)
    found = outcomes(drive(lane, lambda seen: len(seen) == 20, "those behind are reported while one waits"))
    assert set(found) == {*range(3, 23)}
    gate.set()
    found = outcomes(drive(lane, lambda seen: len(seen) == 2, "the row comes back"))
    assert found == {1: NOT_LANDED, 2: NOT_LANDED}
    until("the lane is idle", lambda: lane.idle)


def test_one_that_hangs_costs_its_slot_and_nobody_else(tools: PokeTools, gate: threading.Event) -> None:
    lane = ThreadLane(Slots(1), LIMIT)
    lane.put([row(tools, "", "land", "wait", "", "")])
    found = outcomes(drive(lane, lambda seen: len(seen) == 5, "all are reported"))
    assert found == {1: NOT_LANDED, 2: LANDED, 3: POKE_TIMEOUT, 4: NOT_LANDED, 5: NOT_LANDED}
    assert lane.abandoned == 1
    gate.set()
    until("the thread comes back", lambda: lane.abandoned == 0)
    lane.supervise()
    assert lane.collect() == []


def test_a_row_that_was_emptied_before_it_began_says_nothing(tools: PokeTools) -> None:
    work = row(tools, "", "")
    assert [each.group.id for each in work.rest()] == [1, 2]
    assert (work.poke(), work.overran(1.0), work.groups) == ([], [], [])


def test_threads_outlive_what_they_do() -> None:
    reusable, names = ReusableThreads(), set()
    for _ in range(20):
        done = threading.Event()

        def task(done: threading.Event = done) -> None:
            names.add(threading.get_ident())
            done.set()

        reusable.do(task)
        assert done.wait(30)
        until("the thread waits for more", lambda: reusable.idle == 1)
    assert len(names) == 1


# what a process keeps


def test_a_group_is_kept_until_its_version_changes_and_its_sensor_longer(tools: PokeTools) -> None:
    cache = Cache(10, tools)
    kept = cache.keep(due_group(1, version=3, hashcode=7), classpath(Says), '{"say":"land"}')
    assert cache.look_up([(1, 3, 7)]) == ([kept], [])
    assert cache.look_up([(1, 4, 7)]) == ([], [1])
    again = cache.keep(due_group(1, version=4, hashcode=7, members=2), classpath(Says), '{"say":"land"}')
    assert again is kept
    assert (kept.group.version, kept.group.members) == (4, 2)
    assert cache.look_up([(1, 4, 7)]) == ([kept], [])


def test_an_id_that_means_another_condition_is_another_sensor(tools: PokeTools) -> None:
    """This happens after a backup is restored."""
    cache = Cache(10, tools)
    kept = cache.keep(due_group(1, hashcode=7), classpath(Says), '{"say":"land"}')
    assert cache.look_up([(1, 1, 8)]) == ([], [1])
    assert cache.keep(due_group(1, hashcode=8), classpath(Says), '{"say":""}') is not kept


def test_the_cache_is_bounded_and_the_oldest_goes(tools: PokeTools) -> None:
    cache = Cache(2, tools)
    for number in (1, 2, 3):
        cache.keep(due_group(number, hashcode=number), classpath(Says), "{}")
    assert len(cache) == 2
    hits, missing = cache.look_up([(1, 1, 1), (2, 1, 2), (3, 1, 3)])
    assert ([each.group.id for each in hits], missing) == ([2, 3], [1])
    cache.drop([2, 99])
    assert len(cache) == 1


def test_a_poke_speaks_of_the_version_at_which_it_began(tools: PokeTools, gate: threading.Event) -> None:
    """An instance that joins during the poke is not settled by it."""
    cache = Cache(10, tools)
    kept = cache.keep(due_group(1, version=1, hashcode=7), classpath(Says), '{"say":"wait"}')
    lane = ThreadLane(Slots(1), PATIENT)
    lane.put([kept])
    assert Says.begun.wait(30)
    cache.keep(due_group(1, version=2, hashcode=7), classpath(Says), '{"say":"wait"}')
    gate.set()
    [report] = drive(lane, lambda seen: seen, "it ends")
    assert report.group.version == 1
