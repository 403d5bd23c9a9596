"""A poke speaks of the version of its group at which it began, however it ends: who joined later is not meant."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from sensorpool.model.states import Outcome
from sensorpool.poke.answer import Answers
from sensorpool.poke.bulk_call import BulkCall
from sensorpool.poke.classes import Classes
from sensorpool.poke.loop_lane import LoopLane
from sensorpool.poke.slots import Slots
from sensorpool.poke.thread_lane import QuickBatch, ThreadLane
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from tests.support.builders import classpath, drive, due_group, in_order, one

LIMIT = 0.3  # seconds


class Hangs:
    """Hangs until the gate opens."""

    begun: ClassVar[threading.Event]
    gate: ClassVar[threading.Event]

    def poke(self, context: Any) -> bool:
        Hangs.begun.set()
        Hangs.gate.wait()
        return False


class ManyHang(Hangs):
    """The same in one call for many."""

    @classmethod
    def poke_many(cls, contexts: list[Any]) -> list[bool]:
        Hangs.begun.set()
        Hangs.gate.wait()
        return [False] * len(contexts)


class AsyncHangs:
    """The same by coroutine."""

    async def poke(self, context: Any) -> bool:
        Hangs.begun.set()
        await asyncio.sleep(60)
        return False


class AsyncCancels:
    """Raises as if it was cancelled, when the gate is open."""

    async def poke(self, context: Any) -> bool:
        Hangs.begun.set()
        await asyncio.to_thread(Hangs.gate.wait)
        raise asyncio.CancelledError


@pytest.fixture(autouse=True)
def gate() -> Iterator[threading.Event]:
    """The gate for which pokes wait; it opens when the test ends."""
    Hangs.begun, Hangs.gate = threading.Event(), threading.Event()
    yield Hangs.gate
    Hangs.gate.set()


def _on_thread(units: list[PokeUnit]) -> Any:
    return _threads(units)


def _in_batch(units: list[PokeUnit]) -> Any:
    return _threads([QuickBatch(units)])


def _in_bulk(units: list[PokeUnit]) -> Any:
    return _threads([BulkCall(units, units[0]._tools)])


def _threads(works: list[Any]) -> ThreadLane:
    lane = ThreadLane(Slots(4), LIMIT)
    lane.put(works)
    return lane


def _on_loop(units: list[PokeUnit]) -> Any:
    lane = LoopLane(Slots(4), LIMIT if units[0].op_classpath == classpath(AsyncHangs) else 60.0)
    lane.put(units)
    return lane


@pytest.mark.parametrize(
    ("cls", "poke", "outcome"),
    [
        (Hangs, _on_thread, Outcome.POKE_TIMEOUT),
        (Hangs, _in_batch, Outcome.POKE_TIMEOUT),
        (ManyHang, _in_bulk, Outcome.POKE_TIMEOUT),
        (AsyncHangs, _on_loop, Outcome.POKE_TIMEOUT),
        (AsyncCancels, _on_loop, Outcome.EXITED),
    ],
)
def test_one_that_joins_while_a_poke_goes_on_is_not_meant(
    cls: type, poke: Callable[[list[PokeUnit]], Any], outcome: Outcome, gate: threading.Event
) -> None:
    unit = one(1, cls, PokeTools(Classes([classpath(cls)]), Answers([]), {}))
    lane = poke([unit])
    assert Hangs.begun.wait(60)
    unit.join(due_group(1, version=2))
    if outcome is Outcome.EXITED:
        gate.set()
    [report] = drive(lane, lambda seen: seen, "it is reported")
    assert (report.outcome, report.group.version) == (outcome, 1)
    assert unit.group.version == 2


class Away:
    """Is of a backend that is away."""

    called: ClassVar[int] = 0

    @classmethod
    def poke_many(cls, contexts: list[Any]) -> list[bool]:
        cls.called += 1
        raise ConnectionRefusedError(111, "refused")

    def poke(self, context: Any) -> bool:
        return False


def test_what_a_bulk_call_did_not_ask_is_as_old_as_its_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of a condition may have passed since: it was not looked at after it."""
    tools = PokeTools(Classes([classpath(Away)]), Answers(["builtins.ConnectionRefusedError"]), {})
    monkeypatch.setattr("sensorpool.poke.bulk_call._monotonic", lambda: float(Away.called))
    reports = in_order(BulkCall([one(number, Away, tools) for number in range(64)], tools).poke())
    assert len(reports) == 64
    assert 1 < Away.called < 64, "it was found to be away before each was asked"
    assert max(report.began for report in reports) == Away.called - 1
