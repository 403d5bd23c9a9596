"""A task or callback that one poke leaves behind, and which blocks the event loop, costs no other poke its answer."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.poke import loop_lane
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.slots import Slots
from tests.support.builders import classpath, drive, one, outcomes

LIMIT = 0.5


class Left:
    """The gates of this test."""

    gate = threading.Event()
    blocks = threading.Event()
    waits = threading.Event()
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


class LeavesCallback:
    """Leaves a callback that does so."""

    async def poke(self, context: Any) -> bool:
        self.leave()
        return False

    def leave(self) -> None:
        asyncio.get_running_loop().call_later(0.05, partial(self.block))

    def block(self) -> None:
        Left.blocks.set()
        Left.gate.wait(60)


class OverrunsAndBlocks:
    """Goes on although it was cancelled, and blocks the loop once another poke has begun."""

    async def poke(self, context: Any) -> bool:
        while not Left.waits.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)
        Left.blocks.set()
        Left.gate.wait(60)
        return False


class BlocksInACallback(LeavesCallback):
    """Waits for a callback of its own, which blocks the loop."""

    async def poke(self, context: Any) -> bool:
        self.leave()
        await asyncio.sleep(60)
        return False


class MeetsABlocker(LeavesCallback):
    """Meets a loop that is blocked by what no poke has, wherever it begins."""

    async def poke(self, context: Any) -> bool:
        asyncio.get_running_loop().call_soon(self.block, context=contextvars.Context())
        await asyncio.sleep(60)
        return False


class BlocksInATask:
    """Waits for a task of its own, which blocks the loop."""

    async def poke(self, context: Any) -> bool:
        await asyncio.create_task(Leaves().report())
        return False


class Waits:
    """Lands if it began after the loop was blocked; otherwise it waits on."""

    async def poke(self, context: Any) -> bool:
        Left.waits.set()
        await asyncio.sleep(0 if Left.blocks.is_set() else 0.2)
        return True


@pytest.fixture
def gate() -> Iterator[None]:
    """Gates of this test alone, which open when it ends."""
    Left.gate, Left.blocks, Left.waits = threading.Event(), threading.Event(), threading.Event()
    yield
    Left.gate.set()


@pytest.mark.parametrize(
    ("cls", "left"),
    [
        (Leaves, "Leaves.report"),
        (LeavesCallback, "LeavesCallback.block"),
        (BlocksInATask, None),
        (BlocksInACallback, None),
    ],
)
@pytest.mark.usefixtures("gate")
def test_what_blocks_the_loop_costs_no_other_poke_its_answer(
    cls: type, left: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    lane = LoopLane(Slots(10), LIMIT)
    lane.put([one(1, cls), one(2, Waits), one(3, Waits)])
    try:
        with caplog.at_level(logging.WARNING):
            found = outcomes(drive(lane, lambda seen: len(seen) == 3, "all are reported"))
        assert Left.blocks.is_set()
        assert lane.abandoned == 1, "the loop was not blocked"
        first = Outcome.POKE_TIMEOUT if left is None else Outcome.NOT_LANDED
        assert found == {1: first, 2: Outcome.LANDED, 3: Outcome.LANDED}
        named = [record.fields["code"] for record in caplog.records if "left behind" in record.getMessage()]
        assert named == ([] if left is None else [left])
        assert not lane._moves
    finally:
        Left.gate.set()
        until("the end of all pokes", lambda: lane.idle)
        lane.close()


@pytest.mark.usefixtures("gate")
def test_a_poke_that_blocks_the_loop_after_it_was_reported_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_lane, "GRACE", 0.1)
    lane = LoopLane(Slots(10), LIMIT)
    lane.put([one(1, OverrunsAndBlocks)])
    try:
        assert outcomes(drive(lane, lambda seen: seen, "it is reported")) == {1: Outcome.POKE_TIMEOUT}
        lane.put([one(2, Waits)])
        with caplog.at_level(logging.WARNING):
            assert outcomes(drive(lane, lambda seen: seen, "the other lands")) == {2: Outcome.LANDED}
        assert lane.abandoned == 1
        [named] = [record.fields["code"] for record in caplog.records if "left behind" in record.getMessage()]
        assert named == classpath(OverrunsAndBlocks)
    finally:
        Left.gate.set()
        until("the end of all pokes", lambda: lane.idle)
        lane.close()


@pytest.mark.usefixtures("gate")
def test_a_poke_whose_loops_are_all_blocked_overruns_and_says_that_it_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lane, "GRACE", 0.1)
    lane = LoopLane(Slots(10), 0.1)
    lane.put([one(1, MeetsABlocker)])
    try:
        [report] = drive(lane, lambda seen: seen, "it is reported")
        assert lane.abandoned == 4
        assert report.outcome is Outcome.POKE_TIMEOUT
        assert report.reason == (
            "the poke took longer than its limit of 0.1 s, after it moved 3 times to another event loop: "
            "LeavesCallback.block, which a poke left behind, held its own"
        )
    finally:
        Left.gate.set()
        until("the end of all pokes", lambda: lane.idle)
        lane.close()
