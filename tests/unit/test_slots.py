"""The slots of a process: a class that wants many slots waits for its own pokes only."""

from dataclasses import dataclass

from sensorpool.poke.slots import FairQueue, Slots


@dataclass(frozen=True)
class Work:
    op_classpath: str
    number: int = 0


def fill(waiting: FairQueue[Work], op_classpath: str, number: int) -> None:
    waiting.put(Work(op_classpath, n) for n in range(number))


def taken(waiting: FairQueue[Work]) -> list[Work]:
    """Take as many items as there are slots."""
    works = []
    while (work := waiting.take()) is not None:
        works.append(work)
    return works


def test_one_class_never_holds_all_slots() -> None:
    slots = Slots(64)
    waiting: FairQueue[Work] = FairQueue(slots)
    fill(waiting, "slow", 200)
    assert waiting.takeable == 56
    assert len(taken(waiting)) == 56
    assert (waiting.takeable, len(waiting), waiting.of_class("slow"), slots.free) == (0, 144, 144, 8)
    fill(waiting, "quick", 20)
    assert waiting.takeable == 8
    assert [work.op_classpath for work in taken(waiting)] == ["quick"] * 8


def test_the_next_slot_goes_to_the_class_that_holds_the_fewest() -> None:
    slots = Slots(8)
    waiting: FairQueue[Work] = FairQueue(slots)
    fill(waiting, "a", 20)
    fill(waiting, "b", 3)
    assert sorted(work.op_classpath for work in taken(waiting)) == ["a"] * 5 + ["b"] * 3
    slots.release("a")
    fill(waiting, "c", 1)
    assert [work.op_classpath for work in taken(waiting)] == ["c"]


def test_of_classes_that_hold_as_many_the_next_slot_goes_to_the_one_that_had_none_for_longest() -> None:
    """A quick class that one thread pokes gives its only slot back before it takes the next one."""
    waiting: FairQueue[Work] = FairQueue(Slots(8))
    for op_classpath in ("a", "b", "c"):
        fill(waiting, op_classpath, 3)
    work, order = waiting.take(), list[str]()
    while work is not None:
        order.append(work.op_classpath)
        work = waiting.take_after(work.op_classpath, 0.0)
    assert order == ["a", "b", "c"] * 3


def test_within_a_class_the_first_to_come_is_the_first_to_go() -> None:
    waiting: FairQueue[Work] = FairQueue(Slots(8))
    fill(waiting, "a", 7)
    assert [work.number for work in taken(waiting)] == list(range(7))


def test_lanes_share_the_slots() -> None:
    slots = Slots(16)
    first: FairQueue[Work] = FairQueue(slots)
    second: FairQueue[Work] = FairQueue(slots)
    fill(first, "slow", 20)
    fill(second, "slow", 20)
    assert len(taken(first)) == 14
    assert (second.takeable, taken(second)) == (0, [])
    slots.release("slow")
    assert len(taken(second)) == 1


def test_a_pool_of_few_slots_keeps_none_free() -> None:
    waiting: FairQueue[Work] = FairQueue(Slots(1))
    fill(waiting, "a", 2)
    assert len(taken(waiting)) == 1
    assert waiting.drain() == [Work("a", 1)]
    assert len(waiting) == 0
