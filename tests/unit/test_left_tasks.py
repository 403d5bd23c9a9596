"""A task that one poke leaves behind, and which blocks the event loop, costs no other poke its answer."""

import asyncio
import threading
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.slots import Slots
from tests.support.builders import drive, one, outcomes

LIMIT = 0.5


class Left:
    """The gates of this test."""

    gate = threading.Event()
    blocks = threading.Event()
    tasks: ClassVar[set[Any]] = set()


class Leaves:
    """Leaves a task that blocks the loop once the other poke has begun."""

    async def poke(self, context: Any) -> bool:
        Left.tasks.add(asyncio.get_running_loop().create_task(self.report()))
        return False

    async def report(self) -> None:
        await asyncio.sleep(0.05)
        Left.blocks.set()
        Left.gate.wait(60)


class BlocksInATask:
    """Waits for a task of its own, which blocks the loop."""

    async def poke(self, context: Any) -> bool:
        await asyncio.create_task(Leaves().report())
        return False


class Waits:
    """Lands if it began after the loop was blocked; otherwise it waits on."""

    async def poke(self, context: Any) -> bool:
        await asyncio.sleep(0 if Left.blocks.is_set() else 0.2)
        return True


@pytest.mark.parametrize("cls", [Leaves, BlocksInATask])
def test_a_task_that_blocks_the_loop_costs_no_other_poke_its_answer(cls: type) -> None:
    Left.gate, Left.blocks = threading.Event(), threading.Event()
    lane = LoopLane(Slots(10), LIMIT)
    lane.put([one(1, cls), one(2, Waits), one(3, Waits)])
    try:
        found = outcomes(drive(lane, lambda seen: len(seen) == 3, "all are reported"))
        assert Left.blocks.is_set()
        assert lane.abandoned == 1, "the loop was not blocked"
        first = Outcome.NOT_LANDED if cls is Leaves else Outcome.POKE_TIMEOUT
        assert found == {1: first, 2: Outcome.LANDED, 3: Outcome.LANDED}
        assert not lane._moves
    finally:
        Left.gate.set()
        until("the end of all pokes", lambda: lane.idle)
        lane.close()
