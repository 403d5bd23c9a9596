"""A poke's clock stands still while other code holds its event loop, for less than the limit, and again and again."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report
from sensorpool.poke import loop_lane
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.slots import Slots
from tests.support.builders import drive, one, outcomes

LIMIT = 0.5
LANDED, NOT_LANDED, POKE_TIMEOUT = Outcome.LANDED, Outcome.NOT_LANDED, Outcome.POKE_TIMEOUT


class Seen:
    """What the sensors of one test saw."""

    current: ClassVar["Seen"]

    def __init__(self) -> None:
        self.began = self.ended = 0.0  # when a poke that waits first began, and when the last hold ended
        self.holds = 0
        self.is_over = False
        self.tasks: list[Any] = []

    def hold(self, seconds: float) -> None:
        """Hold the loop."""
        time.sleep(seconds)
        self.holds += 1
        self.ended = time.monotonic()


@pytest.fixture
def seen() -> Iterator[Seen]:
    """What is seen in this test; what holds a loop again and again ends after it."""
    Seen.current = seen = Seen()
    yield seen
    seen.is_over = True


@pytest.fixture
def lane(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopLane]:
    """A lane that never finds its loop blocked: no hold of this test is that long."""
    monkeypatch.setattr(loop_lane, "GRACE", 60.0)
    made = LoopLane(Slots(20), LIMIT)
    yield made
    seen.is_over = True
    until("the end of all pokes", lambda: made.idle)
    made.close()


class Sensor:
    """The base of these sensors."""

    def __init__(self) -> None:
        self.seen = Seen.current


class HoldsOnce(Sensor):
    """Leaves a task that holds the loop for less than the limit, until the limit of `WaitsForTheHold` is over."""

    async def poke(self, context: Any) -> bool:
        self.seen.tasks.append(asyncio.create_task(self.hold()))
        return False

    async def hold(self) -> None:
        while not self.seen.began or time.monotonic() < self.seen.began + 0.6 * LIMIT:
            await asyncio.sleep(0.005)
        self.seen.hold(self.seen.began + 1.2 * LIMIT - time.monotonic())


class HogsByTask(Sensor):
    """Leaves a task that holds the loop again and again."""

    async def poke(self, context: Any) -> bool:
        self.seen.tasks.append(asyncio.create_task(self.hog()))
        return False

    async def hog(self) -> None:
        while not self.seen.is_over:
            self.seen.hold(0.4 * LIMIT)
            await asyncio.sleep(0)


class HogsByCallback(HogsByTask):
    """Leaves a callback that does so."""

    async def poke(self, context: Any) -> bool:
        self.again(asyncio.get_running_loop())
        return False

    def again(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seen.hold(0.4 * LIMIT)
        if not self.seen.is_over:
            loop.call_soon(self.again, loop)


class HogsByItself(HogsByTask):
    """Holds the loop again and again as its poke goes on."""

    async def poke(self, context: Any) -> bool:
        await self.hog()
        return False


class HogsByItsTask(HogsByTask):
    """Does so in a task that it waits for."""

    async def poke(self, context: Any) -> bool:
        await asyncio.create_task(self.hog())
        return False


class HogsByItsCallback(HogsByCallback):
    """Does so in a callback, and waits."""

    async def poke(self, context: Any) -> bool:
        await super().poke(context)
        await asyncio.sleep(60)
        return False


class HoldsAsOneOfMany(Sensor):
    """Holds the loop for a part of the limit, and answers."""

    async def poke(self, context: Any) -> bool:
        self.seen.hold(0.4 * LIMIT)
        return False


class Waits:
    """Lands when the loop has turned some times."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    async def poke(self, context: Any) -> bool:
        for _ in range(self._turns):
            await asyncio.sleep(0.001)
        return True


class WaitsForTheHold(Sensor):
    """Lands some time after the hold."""

    async def poke(self, context: Any) -> bool:
        self.seen.began = self.seen.began or time.monotonic()
        while not self.seen.ended:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1 * LIMIT)
        return True


class Hangs:
    """Never answers."""

    async def poke(self, context: Any) -> bool:
        await asyncio.sleep(60)
        return True


def poked(lane: LoopLane, number: int) -> list[Report]:
    """Look after a lane until so many pokes are reported."""
    return drive(lane, lambda found: len(found) == number, "all are reported")


def test_a_hold_past_the_end_of_a_poke_makes_it_no_overrun(lane: LoopLane, seen: Seen) -> None:
    lane.put([one(1, HoldsOnce), one(2, WaitsForTheHold), one(3, WaitsForTheHold)])
    assert outcomes(poked(lane, 3)) == {1: NOT_LANDED, 2: LANDED, 3: LANDED}
    assert seen.ended > seen.began + LIMIT
    assert lane.abandoned == 0


@pytest.mark.parametrize("cls", [HogsByTask, HogsByCallback])
def test_what_holds_the_loop_again_and_again_is_left_with_its_loop(cls: type, lane: LoopLane, seen: Seen) -> None:
    lane.put([one(1, cls), one(2, Waits, turns=30), one(3, Waits, turns=30)])
    assert outcomes(poked(lane, 3)) == {1: NOT_LANDED, 2: LANDED, 3: LANDED}
    assert seen.holds >= 3, "the others were not kept waiting for longer than their limit"
    assert lane.abandoned == 1


@pytest.mark.parametrize("cls", [HogsByItself, HogsByItsTask, HogsByItsCallback])
def test_a_poke_that_holds_the_loop_by_itself_overruns_at_its_limit(cls: type, lane: LoopLane, seen: Seen) -> None:
    lane.put([one(1, cls), one(2, Waits, turns=3)])
    found = {report.group.id: report for report in poked(lane, 2)}
    assert (found[1].outcome, found[2].outcome) == (POKE_TIMEOUT, LANDED)
    assert seen.holds >= 3, "the other poke was not kept waiting for longer than its limit"
    assert found[1].seconds < 2 * LIMIT


def test_a_poke_that_hangs_is_found_at_its_limit(lane: LoopLane) -> None:
    lane.put([one(1, Hangs)])
    [report] = poked(lane, 1)
    assert (report.outcome, report.seconds) == (POKE_TIMEOUT, LIMIT)


def test_a_poke_has_three_times_its_limit_at_most(lane: LoopLane, seen: Seen) -> None:
    lane.put([one(1, Hangs), *(one(number, HoldsAsOneOfMany) for number in range(2, 10))])
    found = {report.group.id: report for report in poked(lane, 9)}
    hung = found.pop(1)
    assert {report.outcome for report in found.values()} == {NOT_LANDED}
    assert seen.holds == 8
    assert (hung.outcome, hung.seconds) == (POKE_TIMEOUT, 3 * LIMIT)
    assert hung.reason == "the poke took longer than its limit of 0.5 s, while other code held its event loop for 1 s"
