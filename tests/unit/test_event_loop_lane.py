"""The lane of coroutines: one that overruns, blocks the loop or will not end costs its own group."""

import threading
from collections.abc import Iterator

import pytest

from sensorpool.poke.event_loop import LoopLane
from sensorpool.poke.slots import Slots
from sensorpool.states import Outcome
from tests.unit import scripted
from tests.unit.builders import drive, one, outcomes, until

PATIENT = 60.0  # seconds; nobody overruns
LIMIT = 1.0
LANDED, POKE_TIMEOUT, POKE_ERROR = Outcome.LANDED, Outcome.POKE_TIMEOUT, Outcome.POKE_ERROR


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test's own gate, which opens when the test ends."""
    yield request.node.name
    scripted.open_all_gates()


@pytest.fixture
def lanes() -> Iterator[list[LoopLane]]:
    """Lanes to be closed."""
    made: list[LoopLane] = []
    yield made
    scripted.open_all_gates()
    for lane in made:
        until(lambda lane=lane: lane.idle, "everybody has gone")
        lane.close()


def _lane(lanes: list[LoopLane], concurrency: int, limit: float) -> LoopLane:
    lanes.append(LoopLane(Slots(concurrency), limit))
    return lanes[-1]


def test_everything_is_reported_once(lanes: list[LoopLane]) -> None:
    lane = _lane(lanes, 8, PATIENT)
    lane.put([one(number, scripted.AsyncLands) for number in range(1, 301)])
    found = outcomes(drive(lane, lambda seen: lane.idle and len(seen) >= 300, "all are poked"))
    assert found == dict.fromkeys(range(1, 301), LANDED)
    assert (lane.queued, lane.abandoned, lane.collect()) == (0, 0, [])


def test_no_more_are_poked_at_once_than_the_concurrency(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 3, PATIENT)
    lane.put([one(number, scripted.AsyncWaits, name=name) for number in range(1, 21)])
    gauge = scripted.gauges[name]
    drive(lane, lambda _: gauge.inside == 3, "three are poked at once")
    assert lane.queued == 17
    assert not lane.idle
    scripted.gates[name].set()
    drive(lane, lambda seen: len(seen) == 20, "all are poked")
    assert gauge.most == 3


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("bad", [scripted.AsyncWaits, scripted.AsyncSwallows, scripted.AsyncCancels])
def test_a_coroutine_that_does_not_answer_costs_its_slot_and_nobody_else(
    lanes: list[LoopLane], name: str, bad: type, concurrency: int
) -> None:
    lane = _lane(lanes, concurrency, LIMIT)
    lane.put([one(1, bad, name=name), *(one(number, scripted.AsyncLands) for number in range(2, 22))])
    found = outcomes(drive(lane, lambda seen: len(seen) == 21, "the others are poked"))
    assert found.pop(1) in {POKE_TIMEOUT, POKE_ERROR}
    assert set(found.values()) == {LANDED}
    scripted.gates[name].set()
    until(lambda: lane.idle, "the lane is idle")
    assert lane.abandoned == 0


def test_a_coroutine_that_will_not_end_is_not_reported_twice(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, LIMIT)
    lane.put([one(1, scripted.AsyncSwallows, name=name)])
    [report] = drive(lane, lambda seen: seen, "it is given up")
    assert report.outcome is POKE_TIMEOUT
    assert report.reason == "the poke took longer than its limit of 1 s"
    scripted.gates[name].set()
    assert scripted.departed[name].wait(30)
    # whoever is poked on its loop after that is reported after whatever it would have said
    lane.put([one(2, scripted.AsyncLands)])
    assert outcomes(drive(lane, lambda seen: seen, "the loop goes on")) == {2: LANDED}
    assert lane.collect() == []


def test_a_time_limit_of_the_sensor_is_an_error_of_the_sensor(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, PATIENT)
    lane.put([one(1, scripted.AsyncTimesOut, name=name)])
    [report] = drive(lane, lambda seen: seen, "it is reported")
    assert (report.outcome, report.reason) == (POKE_ERROR, "TimeoutError: its own")


@pytest.mark.parametrize("concurrency", [1, 4, 50])
def test_whoever_blocks_the_loop_is_reported_and_the_others_move(
    lanes: list[LoopLane], name: str, concurrency: int
) -> None:
    lane = _lane(lanes, concurrency, LIMIT)
    some = [one(number, scripted.AsyncLands) for number in range(2, 12)]
    others = [one(number, scripted.AsyncLands) for number in range(12, 22)]
    lane.put([*some, one(1, scripted.AsyncBlocks, name=name), *others])
    found = outcomes(drive(lane, lambda seen: len(seen) == 21, "the others are poked"))
    assert found.pop(1) is POKE_TIMEOUT
    assert set(found.values()) == {LANDED}
    assert lane.abandoned == 1
    scripted.gates[name].set()
    lane.put([one(30, scripted.AsyncLands)])
    assert outcomes(drive(lane, lambda seen: seen, "the new loop goes on")) == {30: LANDED}
    assert lane.collect() == []


def test_a_loop_that_comes_back_pokes_nobody_who_has_moved(lanes: list[LoopLane], name: str) -> None:
    before = set(threading.enumerate())
    lane = _lane(lanes, 50, LIMIT)
    others = [f"{name} {number}" for number in range(2, 12)]
    counting = [one(number, scripted.AsyncCounts, name=other) for number, other in enumerate(others, 2)]
    lane.put([one(1, scripted.AsyncBlocks, name=name), *counting])
    assert scripted.arrived[name].wait(30)
    [blocked] = [thread for thread in set(threading.enumerate()) - before if thread.name == "poke-loop"]
    drive(lane, lambda seen: len(seen) == 11, "the others are poked on a new loop")
    scripted.gates[name].set()
    blocked.join(30)
    assert not blocked.is_alive()
    assert sorted(scripted.AsyncCounts.pokes) == sorted(others)


def test_those_who_wait_beside_a_blocker_are_poked_anew(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 10, 2 * LIMIT)
    waits = f"{name} waits"
    lane.put([one(number, scripted.AsyncWaits, name=waits) for number in range(2, 6)])
    assert scripted.arrived[waits].wait(30)
    lane.put([one(1, scripted.AsyncBlocks, name=name)])
    found = drive(lane, lambda seen: seen, "the blocker is given up")
    assert [report.group.id for report in found] == [1]
    scripted.gates[waits].set()
    rest = outcomes(drive(lane, lambda seen: len(seen) == 4, "the others are poked on a new loop"))
    assert rest == dict.fromkeys(range(2, 6), LANDED)


def test_a_loop_that_is_blocked_by_what_a_poke_left_behind_is_given_up(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 4, LIMIT)
    lane.put([one(1, scripted.AsyncLeavesBlocker, name=name)])
    assert outcomes(drive(lane, lambda seen: seen, "it lands")) == {1: LANDED}
    assert scripted.arrived[name].wait(30)
    lane.put([one(number, scripted.AsyncLands) for number in range(2, 12)])
    found = outcomes(drive(lane, lambda seen: len(seen) == 10, "the others are poked on a new loop"))
    assert set(found.values()) == {LANDED}
    assert lane.abandoned == 1


def test_what_nobody_has_begun_can_be_taken_back(lanes: list[LoopLane], name: str) -> None:
    lane = _lane(lanes, 1, PATIENT)
    assert (lane.withdraw(), lane.queued, lane.idle) == ([], 0, True)
    lane.put([one(1, scripted.AsyncWaits, name=name)])
    assert scripted.arrived[name].wait(30)
    rest = [one(number, scripted.AsyncLands) for number in range(2, 6)]
    lane.put(rest)
    assert lane.withdraw() == rest
    scripted.gates[name].set()
    assert outcomes(drive(lane, lambda seen: lane.idle and seen, "the first ends")) == {1: LANDED}
