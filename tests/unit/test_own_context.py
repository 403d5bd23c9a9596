"""What one poke sets in its context (the precision of decimals, a `ContextVar`) is not there in another's."""

import asyncio
import decimal
import threading
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from harness.until import until
from sensorpool.model.states import Outcome
from sensorpool.poke.answer import Answers
from sensorpool.poke.bulk_call import BulkCall
from sensorpool.poke.classes import Classes
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.reusable_threads import ReusableThreads
from sensorpool.poke.sensor_finalizer import SensorFinalizer, finalize
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import QuickBatch, ThreadLane
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from tests.support.builders import classpath, drive, one, outcomes

PATIENT = 60.0  # seconds; no poke overruns
LANDED, NOT_LANDED, ERROR = Outcome.LANDED, Outcome.NOT_LANDED, Outcome.POKE_ERROR
NAME: ContextVar[str] = ContextVar("NAME", default="none")


def _is_reached() -> bool:
    """Whether 999.60 + 0.30 reaches 1000: only if decimals are rounded to few digits."""
    return Decimal("999.60") + Decimal("0.30") >= 1000


def _round() -> None:
    decimal.getcontext().prec = 3
    NAME.set("rounds")
    Places.rounded.append(threading.get_ident())
    assert _is_reached()


class Places:
    """The threads on which pokes ran."""

    rounded: ClassVar[list[int]] = []
    asked: ClassVar[list[int]] = []


class _Answer:
    def __bool__(self) -> bool:
        _round()
        return False


class Rounds:
    """Sets the precision where its context says."""

    def __init__(self, where: str = "poke") -> None:
        self._where = where
        if where == "constructor":
            _round()

    def poke(self, context: Any) -> Any:
        if self._where == "poke":
            _round()
        if self._where == "error":
            raise OddTextError
        return _Answer() if self._where == "answer" else False

    def __del__(self) -> None:
        if self._where == "end":
            _round()


class OddTextError(Exception):
    """Sets the precision while its text is read."""

    def __str__(self) -> str:
        _round()
        return "odd"


class RoundsMany:
    """Sets the precision for many."""

    @staticmethod
    def poke_many(contexts: list[Any]) -> list[bool]:
        _round()
        return [False] * len(contexts)


class RoundsOnAThread:
    """A coroutine that sets the precision on the threads behind its loop."""

    async def poke(self, context: Any) -> bool:
        await asyncio.get_running_loop().run_in_executor(None, _round)
        return False


class Reaches:
    """Whether the sum is reached, in a context that no other poke has touched."""

    def poke(self, context: Any) -> bool:
        Places.asked.append(threading.get_ident())
        assert NAME.get() == "none"
        return _is_reached()


class ReachesOnAThread:
    """The same, on a thread that is asked by `asyncio.to_thread`, which takes along what the poke itself has set."""

    async def poke(self, context: Any) -> bool:
        Places.asked.append(await asyncio.to_thread(threading.get_ident))
        assert NAME.get() == "none"
        NAME.set("mine")
        assert await asyncio.to_thread(NAME.get) == "mine"
        return await asyncio.get_running_loop().run_in_executor(None, _is_reached)


@pytest.fixture(autouse=True)
def places() -> Iterator[None]:
    yield
    Places.rounded.clear()
    Places.asked.clear()


@pytest.fixture
def threads() -> Iterator[ReusableThreads]:
    made = ReusableThreads()
    yield made
    made.close()


def _used_again() -> bool:
    return bool(set(Places.asked) & set(Places.rounded))


def _poke_in_turn(lane: Any, *makers: Callable[[], Any]) -> set[tuple[Any, ...]]:
    """Poke one after the other until one thread has poked both; return the outcomes of each turn."""
    found: set[tuple[Any, ...]] = set()

    def turn() -> bool:
        seen = []
        for make in makers:
            lane.put([make()])
            (report,) = drive(lane, lambda reports: lane.idle and reports, "it is poked")
            seen.append(report.outcome)
        found.add(tuple(seen))
        return _used_again()

    until("a thread is used again", turn, patience=10)
    return found


@pytest.mark.parametrize("where", ["poke", "constructor", "answer", "error"])
def test_a_thread_that_pokes_again_has_a_new_context(where: str, threads: ReusableThreads) -> None:
    lane = ThreadLane(Slots(1), PATIENT, threads)
    found = _poke_in_turn(lane, lambda: one(1, Rounds, where=where), lambda: one(2, Reaches))
    assert found == {(ERROR if where == "error" else NOT_LANDED, NOT_LANDED)}


def test_works_that_one_thread_takes_up_in_a_row_have_contexts_of_their_own(threads: ReusableThreads) -> None:
    lane = ThreadLane(Slots(1), PATIENT, threads)
    lane.put([one(number, Rounds if number % 2 else Reaches) for number in range(1, 101)])
    found = outcomes(drive(lane, lambda seen: len(seen) == 100, "all are poked"))
    assert found == dict.fromkeys(range(1, 101), NOT_LANDED)
    assert _used_again()


@pytest.mark.parametrize("constructed", [False, True])
@pytest.mark.parametrize("where", ["poke", "constructor", "answer", "error"])
def test_so_has_each_poke_of_a_quick_batch(where: str, constructed: bool) -> None:
    tools = PokeTools(Classes([classpath(Rounds), classpath(Reaches)]), Answers([]), {})
    units: list[PokeUnit] = [one(1, Rounds, tools, where=where), one(2, Reaches, tools)]
    if constructed and where != "constructor":
        QuickBatch(units).poke()
        Places.rounded.clear()
    found = outcomes(Context().run(QuickBatch(units).poke))
    assert found == {1: ERROR if where == "error" else NOT_LANDED, 2: NOT_LANDED}
    assert _used_again()


def test_so_has_a_bulk_call(threads: ReusableThreads) -> None:
    tools = PokeTools(Classes([classpath(RoundsMany)]), Answers([]), {})
    lane = ThreadLane(Slots(1), PATIENT, threads)
    found = _poke_in_turn(lane, lambda: BulkCall([one(1, RoundsMany, tools)], tools), lambda: one(2, Reaches))
    assert found == {(NOT_LANDED, NOT_LANDED)}


def test_so_has_a_thread_behind_a_loop(threads: ReusableThreads) -> None:
    lane = LoopLane(Slots(1), PATIENT, threads)
    found = _poke_in_turn(lane, lambda: one(1, RoundsOnAThread), lambda: one(2, ReachesOnAThread))
    lane.close()
    assert found == {(NOT_LANDED, NOT_LANDED)}


def test_the_destruction_of_a_sensor_changes_no_context(threads: ReusableThreads) -> None:
    finalizer, lane = SensorFinalizer(threads), ThreadLane(Slots(1), PATIENT, threads)

    def reaches() -> PokeUnit:
        destroyed = len(Places.rounded)
        finalize(Rounds("end"))
        finalizer.look_after()
        until("the sensor is destroyed, and its thread is idle", lambda: len(Places.rounded) > destroyed)
        return one(1, Reaches)

    assert _poke_in_turn(lane, reaches) == {(NOT_LANDED,)}
