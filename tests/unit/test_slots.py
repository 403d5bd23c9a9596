"""The slots of a process: a class that wants many waits for itself."""

from dataclasses import dataclass

from sensorpool.poke.slots import Slots, Waiting


@dataclass(frozen=True)
class Work:
    op_classpath: str
    number: int = 0


def fill(waiting: Waiting[Work], op_classpath: str, number: int) -> None:
    waiting.put(Work(op_classpath, n) for n in range(number))


def taken(waiting: Waiting[Work]) -> list[Work]:
    """Take up as much as can be."""
    works = []
    while (work := waiting.take()) is not None:
        works.append(work)
    return works


def test_one_class_never_holds_all_slots() -> None:
    slots = Slots(64)
    waiting: Waiting[Work] = Waiting(slots)
    fill(waiting, "slow", 200)
    assert waiting.takeable == 56
    assert len(taken(waiting)) == 56
    assert (waiting.takeable, len(waiting), waiting.of_class("slow"), slots.free) == (0, 144, 144, 8)
    fill(waiting, "quick", 20)
    assert waiting.takeable == 8
    assert [work.op_classpath for work in taken(waiting)] == ["quick"] * 8


def test_the_next_slot_goes_to_the_class_that_holds_the_fewest() -> None:
    slots = Slots(8)
    waiting: Waiting[Work] = Waiting(slots)
    fill(waiting, "a", 20)
    fill(waiting, "b", 3)
    assert sorted(work.op_classpath for work in taken(waiting)) == ["a"] * 5 + ["b"] * 3
    slots.release("a")
    fill(waiting, "c", 1)
    assert [work.op_classpath for work in taken(waiting)] == ["c"]


def test_within_a_class_the_first_to_come_is_the_first_to_go() -> None:
    waiting: Waiting[Work] = Waiting(Slots(8))
    fill(waiting, "a", 7)
    assert [work.number for work in taken(waiting)] == list(range(7))


def test_lanes_share_the_slots() -> None:
    slots = Slots(16)
    first: Waiting[Work] = Waiting(slots)
    second: Waiting[Work] = Waiting(slots)
    fill(first, "slow", 20)
    fill(second, "slow", 20)
    assert len(taken(first)) == 14
    assert (second.takeable, taken(second)) == (0, [])
    slots.release("slow")
    assert len(taken(second)) == 1


def test_a_pool_of_few_slots_keeps_none_free() -> None:
    waiting: Waiting[Work] = Waiting(Slots(1))
    fill(waiting, "a", 2)
    assert len(taken(waiting)) == 1
    assert waiting.drain() == [Work("a", 1)]
    assert len(waiting) == 0
