"""The lane of coroutines: a poke that overruns, blocks the loop or does not end costs its own group."""

import asyncio
import errno
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.slots import Slots
from tests.support.builders import drive, one, outcomes
from tests.support.sensors import answering, coroutines, gates

PATIENT = 60.0  # seconds; no poke overruns
LIMIT = 1.0
LANDED, NOT_LANDED, POKE_TIMEOUT, POKE_ERROR, EXITED = (
    Outcome.LANDED,
    Outcome.NOT_LANDED,
    Outcome.POKE_TIMEOUT,
    Outcome.POKE_ERROR,
    Outcome.EXITED,
)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test's own gate, which opens when the test ends."""
    yield request.node.name
    gates.open_all_gates()


@pytest.fixture
def lanes() -> Iterator[list[LoopLane]]:
    """Lanes, which are closed after the test."""
    made: list[LoopLane] = []
    yield made
    gates.open_all_gates()
    for lane in made:
        until("the end of all pokes", lambda lane=lane: lane.idle)
        lane.close()


def _lane(lanes: list[LoopLane], concurrency: int, limit: float) -> LoopLane:
    lanes.append(LoopLane(Slots(concurrency), limit))
    return lanes[-1]


def test_a_poke_that_cannot_be_cancelled_keeps_no_other_from_its_end(lanes: list[LoopLane], name: str) -> None:
    lane = LoopLane(Slots(4), LIMIT)  # it is never idle: its first poke does not end
    lane.put([one(1, coroutines.AsyncAwaitsTheStubborn, name=name)])
    drive(lane, lambda seen: len(seen) == 1, "it is reported")
    gauge = gates.gauges[name]
    lane.put([one(2, coroutines.AsyncWaits, name=name)])
    found = outcomes(drive(lane, lambda seen: len(seen) == 1, "the next one is reported"))
    assert found == {2: POKE_TIMEOUT}
    until("it is cancelled", lambda: gauge.inside == 0)
    assert lane.abandoned == 0
    lane.close()


def test_everything_is_reported_once(lanes: list[LoopLane]) -> None:
    lane = _lane(lanes, 8, PATIENT)
    lane.put([one(number, answering.AsyncLands) for number in range(1, 301)])
    found = outcomes(drive(lane, lambda seen: lane.idle and len(seen) >= 300, "all are poked"))
    assert found == dict.fromkeys(range(1, 301), LANDED)
    assert (len(lane._waiting), lane.abandoned, lane.collect()) == (0, 0, [])


def test_no_more_are_poked_at_once_than_the_concurrency(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 3, PATIENT)
    lane.put([one(number, coroutines.AsyncWaits, name=name) for number in range(1, 21)])
    gauge = gates.gauges[name]
    drive(lane, lambda _: gauge.inside == 3, "three are poked at once")
    assert len(lane._waiting) == 17
    assert not lane.idle
    gates.gates[name].set()
    drive(lane, lambda seen: len(seen) == 20, "all are poked")
    assert gauge.most == 3


def test_a_lane_is_not_idle_while_a_poke_begins(
    lanes: list[LoopLane], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = _lane(lanes, 1, PATIENT)
    take, looked, said = lane._waiting.take, threading.Event(), []

    def look() -> None:
        said.append(lane.idle)
        looked.set()

    def take_and_be_seen() -> Any:
        if (unit := take()) is not None:
            threading.Thread(target=look, daemon=True).start()
            looked.wait(0.5)  # it may look now: the poke is no longer waiting, and not running yet
        return unit

    monkeypatch.setattr(lane._waiting, "take", take_and_be_seen)
    lane.put([one(1, coroutines.AsyncWaits, name=name)])
    assert looked.wait(30)
    assert said == [False]
    until("the poke", lambda: gates.gauges[name].inside == 1)  # its gate is there, to be opened


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("bad", [coroutines.AsyncWaits, coroutines.AsyncSwallows, coroutines.AsyncCancels])
def test_a_coroutine_that_does_not_answer_costs_its_slot_and_nobody_else(
    lanes: list[LoopLane], name: str, bad: type, concurrency: int
) -> None:
    lane = _lane(lanes, concurrency, LIMIT)
    lane.put([one(1, bad, name=name), *(one(number, answering.AsyncLands) for number in range(2, 22))])
    found = outcomes(drive(lane, lambda seen: len(seen) == 21, "the others are poked"))
    assert found.pop(1) in {POKE_TIMEOUT, EXITED}
    assert set(found.values()) == {LANDED}
    gates.gates[name].set()
    until("the lane is idle", lambda: lane.idle)
    assert lane.abandoned == 0


def test_a_coroutine_that_will_not_end_is_not_reported_twice(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, LIMIT)
    lane.put([one(1, coroutines.AsyncSwallows, name=name)])
    [report] = drive(lane, lambda seen: seen, "it is given up")
    assert report.outcome is POKE_TIMEOUT
    assert report.reason == "the poke took longer than its limit of 1 s"
    gates.gates[name].set()
    assert gates.departed[name].wait(30)
    # a poke on its loop after that one is reported after any report of it
    lane.put([one(2, answering.AsyncLands)])
    assert outcomes(drive(lane, lambda seen: seen, "the loop goes on")) == {2: LANDED}
    assert lane.collect() == []


@pytest.mark.parametrize(
    ("cls", "outcome", "reason"),
    [
        (coroutines.AsyncCancels, EXITED, "CancelledError"),
        (coroutines.AsyncCancelsItself, POKE_TIMEOUT, "its task was cancelled on its event loop"),
        (coroutines.AsyncCancelled, POKE_ERROR, "CancelledError"),
    ],
)
def test_a_poke_that_ends_as_if_cancelled_frees_its_slot(
    lanes: list[LoopLane], name: str, cls: type, outcome: Outcome, reason: str
) -> None:
    lane = _lane(lanes, 1, PATIENT)
    lane.put([one(1, cls, name=name), one(2, answering.AsyncLands)])
    found = drive(lane, lambda seen: len(seen) == 2, "both are poked")
    assert outcomes(found) == {1: outcome, 2: LANDED}
    assert reason in str(found[0].reason)


def test_a_time_limit_of_the_sensor_is_an_error_of_the_sensor(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, PATIENT)
    lane.put([one(1, coroutines.AsyncTimesOut, name=name)])
    [report] = drive(lane, lambda seen: seen, "it is reported")
    assert (report.outcome, report.reason) == (POKE_ERROR, "TimeoutError: its own")


@pytest.mark.parametrize("concurrency", [1, 4, 50])
def test_whoever_blocks_the_loop_is_reported_and_the_others_move(
    lanes: list[LoopLane], name: str, concurrency: int
) -> None:
    lane = _lane(lanes, concurrency, LIMIT)
    some = [one(number, answering.AsyncLands) for number in range(2, 12)]
    others = [one(number, answering.AsyncLands) for number in range(12, 22)]
    lane.put([*some, one(1, coroutines.AsyncBlocks, name=name), *others])
    found = outcomes(drive(lane, lambda seen: len(seen) == 21, "the others are poked"))
    assert found.pop(1) is POKE_TIMEOUT
    assert set(found.values()) == {LANDED}
    assert lane.abandoned == 1
    gates.gates[name].set()
    lane.put([one(30, answering.AsyncLands)])
    assert outcomes(drive(lane, lambda seen: seen, "the new loop goes on")) == {30: LANDED}
    assert lane.collect() == []


def test_a_loop_that_comes_back_pokes_nobody_who_has_moved(lanes: list[LoopLane], name: str) -> None:
    before = set(threading.enumerate())
    lane = _lane(lanes, 50, LIMIT)
    others = [f"{name} {number}" for number in range(2, 12)]
    counting = [one(number, answering.AsyncCounts, name=other) for number, other in enumerate(others, 2)]
    lane.put([one(1, coroutines.AsyncBlocks, name=name), *counting])
    assert gates.arrived[name].wait(30)
    [blocked] = [thread for thread in set(threading.enumerate()) - before if thread.name == "poke-loop"]
    drive(lane, lambda seen: len(seen) == 11, "the others are poked on a new loop")
    gates.gates[name].set()
    blocked.join(30)
    assert not blocked.is_alive()
    assert sorted(answering.AsyncCounts.pokes) == sorted(others)


def test_those_who_wait_beside_a_blocker_are_poked_anew(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, 2 * LIMIT)
    waits = f"{name} waits"
    lane.put([one(number, coroutines.AsyncWaits, name=waits) for number in range(2, 6)])
    assert gates.arrived[waits].wait(30)
    lane.put([one(1, coroutines.AsyncBlocks, name=name)])
    found = drive(lane, lambda seen: seen, "the blocker is given up")
    assert [report.group.id for report in found] == [1]
    gates.gates[waits].set()
    rest = outcomes(drive(lane, lambda seen: len(seen) == 4, "the others are poked on a new loop"))
    assert rest == dict.fromkeys(range(2, 6), LANDED)


def test_a_loop_that_is_blocked_by_what_a_poke_left_behind_is_given_up(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 4, LIMIT)
    lane.put([one(1, coroutines.AsyncLeavesBlocker, name=name)])
    assert outcomes(drive(lane, lambda seen: seen, "it lands")) == {1: LANDED}
    assert gates.arrived[name].wait(30)
    lane.put([one(number, answering.AsyncLands) for number in range(2, 12)])
    found = outcomes(drive(lane, lambda seen: len(seen) == 10, "the others are poked on a new loop"))
    assert set(found.values()) == {LANDED}
    assert lane.abandoned == 1


def test_what_nobody_has_begun_can_be_taken_back(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 1, PATIENT)
    assert (lane.withdraw(), len(lane._waiting), lane.idle) == ([], 0, True)
    lane.put([one(1, coroutines.AsyncWaits, name=name)])
    assert gates.arrived[name].wait(30)
    rest = [one(number, answering.AsyncLands) for number in range(2, 6)]
    lane.put(rest)
    assert lane.withdraw() == rest
    gates.gates[name].set()
    assert outcomes(drive(lane, lambda seen: lane.idle and seen, "the first ends")) == {1: LANDED}


@pytest.mark.parametrize(
    ("bad", "outcome"),
    [
        (coroutines.AsyncClosesThreads, NOT_LANDED),
        (coroutines.AsyncStops, NOT_LANDED),
        (coroutines.AsyncSetsUp, NOT_LANDED),
        (coroutines.AsyncExits, NOT_LANDED),
    ],
)
def test_a_coroutine_that_ends_what_is_not_its_own_ends_nothing_else(
    lanes: list[LoopLane], name: str, bad: type, outcome: Outcome
) -> None:
    lane = _lane(lanes, 10, PATIENT)
    by_task = f"{name} by task"
    lane.put([one(1, coroutines.AsyncWaits, name=name), one(2, coroutines.AsyncWaitsByTask, name=by_task)])
    assert gates.arrived[name].wait(30)
    assert gates.arrived[by_task].wait(30)
    lane.put([one(3, bad, name=name)])
    assert outcomes(drive(lane, lambda seen: seen, "it is reported")) == {3: outcome}
    lane.put([one(4, coroutines.AsyncAsksOnThread, name=name)])
    assert outcomes(drive(lane, lambda seen: seen, "the loop goes on")) == {4: LANDED}
    gates.open_all_gates()
    assert outcomes(drive(lane, lambda seen: len(seen) == 2, "the others land")) == {1: LANDED, 2: LANDED}
    assert lane.abandoned == 0


def test_those_whom_a_coroutine_cancels_are_poked_apart(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, PATIENT)
    lane.put([one(1, coroutines.AsyncWaits, name=name)])
    assert gates.arrived[name].wait(30)
    lane.put([one(2, coroutines.AsyncCancelsAll, name=name)])
    found = drive(lane, lambda seen: len(seen) == 2, "both are reported")
    assert outcomes(found) == {1: POKE_TIMEOUT, 2: NOT_LANDED}
    assert [report.of_many for report in found if report.group.id == 1] == [True]
    lane.put([one(3, answering.AsyncLands)])
    assert outcomes(drive(lane, lambda seen: seen, "the loop goes on")) == {3: LANDED}


def test_a_coroutine_cancels_what_is_its_own(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 4, PATIENT)
    lane.put([one(1, coroutines.AsyncCancelsOwn, name=name)])
    assert outcomes(drive(lane, lambda seen: seen, "it lands")) == {1: LANDED}


def test_those_on_a_loop_that_breaks_overran_and_others_have_a_new_one(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, PATIENT)
    waits = f"{name} waits"
    lane.put([one(1, coroutines.AsyncWaits, name=waits)])
    assert gates.arrived[waits].wait(30)
    lane.put([one(2, coroutines.AsyncBreaks, name=name)])
    found = drive(lane, lambda seen: len(seen) == 2, "both are reported")
    assert outcomes(found) == {1: POKE_TIMEOUT, 2: POKE_TIMEOUT}
    assert all(report.of_many for report in found), "none of them is to blame"
    lane.put([one(3, answering.AsyncLands)])
    assert outcomes(drive(lane, lambda seen: seen, "the new loop goes on")) == {3: LANDED}
    assert lane.abandoned == 1


@pytest.mark.parametrize("bad", [coroutines.AsyncBlocksByTask, coroutines.AsyncBlocksByCallback])
def test_who_blocks_the_loop_by_another_task_or_a_callback_is_one_of_all(
    lanes: list[LoopLane], name: str, bad: type
) -> None:
    lane = _lane(lanes, 10, LIMIT)
    waits = f"{name} waits"
    lane.put([one(1, coroutines.AsyncWaits, name=waits)])
    assert gates.arrived[waits].wait(30)
    lane.put([one(2, bad, name=name)])
    found = drive(lane, lambda seen: len(seen) == 2, "the loop is given up")
    assert outcomes(found) == {1: POKE_TIMEOUT, 2: POKE_TIMEOUT}
    assert all(report.of_many for report in found)
    gates.open_all_gates()


def test_who_hangs_on_a_thread_keeps_no_thread_from_the_others(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 60, PATIENT)
    lane.put([one(number, coroutines.AsyncHangsOnThread, name=name) for number in range(1, 51)])
    lane.put([one(number, coroutines.AsyncAsksOnThread, name=name) for number in range(51, 61)])
    found = outcomes(drive(lane, lambda seen: len(seen) >= 10, "the others land"))
    assert found == dict.fromkeys(range(51, 61), LANDED)
    gates.gates[name].set()
    found = outcomes(drive(lane, lambda seen: len(seen) >= 50, "those that hung land"))
    assert found == dict.fromkeys(range(1, 51), LANDED)


def test_threads_that_hang_are_counted_until_they_come_back(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 50, LIMIT)
    lane.put([one(number, coroutines.AsyncHangsOnThread, name=name) for number in range(1, 51)])
    found = outcomes(drive(lane, lambda seen: len(seen) >= 50, "all overran"))
    assert found == dict.fromkeys(range(1, 51), POKE_TIMEOUT)
    until("what hangs is counted", lambda: lane.hanging == 50)
    gates.gates[name].set()
    until("it has come back", lambda: lane.hanging == 0)


def test_pokes_wait_for_a_loop_while_none_can_be_made(
    lanes: list[LoopLane], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, tries, made = _lane(lanes, 4, PATIENT), itertools.count(), asyncio.SelectorEventLoop

    def fails_at_first() -> asyncio.AbstractEventLoop:
        if next(tries) < 3:
            raise OSError(errno.EMFILE, "too many open files")
        return made()

    monkeypatch.setattr(asyncio, "SelectorEventLoop", fails_at_first)
    lane.put([one(1, answering.AsyncLands)])
    assert (len(lane._waiting), lane.idle) == (1, False)
    assert outcomes(drive(lane, lambda seen: seen, "it lands")) == {1: LANDED}
    assert next(tries) == 4
