"""The order of the suspects of a class."""

import time
from typing import Any

import pytest

from sensorpool.poke.child import Suspect
from sensorpool.poke.slots import FairQueue, Slots
from sensorpool.poke.suspect_line import SuspectLine
from tests.support.builders import due_group

SOON, NEVER = -1.0, 3_600.0  # seconds from now


def suspect(number: int, *, deadline: float | None = None, **more: Any) -> Suspect:
    at = None if deadline is None else time.monotonic() + deadline
    return Suspect(due_group(number), "a.Class", "{}", alone=False, deadline=at, **more)


def order(*suspects: Suspect) -> list[int]:
    turns = SuspectLine()
    for each in suspects:
        turns.append(each)
    assert sorted(each.group.id for each in turns) == sorted({each.group.id for each in suspects})
    found = [turns.popleft().group.id for _ in range(len(turns))]
    assert len(turns) == 0
    with pytest.raises(IndexError):
        turns.popleft()
    return found


def test_the_first_to_come_is_the_first_to_go() -> None:
    assert order(*(suspect(number) for number in (3, 1, 2))) == [3, 1, 2]


def test_what_was_never_seen_to_hang_goes_first() -> None:
    assert order(suspect(1), suspect(2, hung=False), suspect(3), suspect(4, hung=False)) == [2, 4, 1, 3]


def test_what_has_passed_its_deadline_goes_before_all_others_the_earliest_first() -> None:
    line = [suspect(1, hung=False), suspect(2, deadline=NEVER), suspect(3, deadline=SOON), suspect(4, deadline=-2.0)]
    assert order(*line) == [4, 3, 1, 2]


def test_a_deadline_that_passes_while_it_waits_counts() -> None:
    turns = SuspectLine()
    turns.append(suspect(1))
    turns.append(suspect(2, deadline=0.02))
    time.sleep(0.03)
    assert [turns.popleft().group.id, turns.popleft().group.id] == [2, 1]


def test_a_group_waits_once_as_it_is_known_now() -> None:
    assert order(suspect(1), suspect(2, deadline=SOON), suspect(1, deadline=-2.0)) == [1, 2]
    assert order(suspect(1), suspect(2, deadline=SOON), suspect(2, deadline=NEVER)) == [1, 2]


def test_a_group_that_comes_again_has_another_turn() -> None:
    turns = SuspectLine()
    turns.append(suspect(1, deadline=SOON))
    assert turns.popleft().group.id == 1
    turns.append(suspect(1))
    assert [each.group.id for each in turns] == [1]
    assert turns.popleft().group.id == 1
    assert len(turns) == 0


def test_classes_have_lines_of_their_own() -> None:
    waiting: FairQueue[Suspect] = FairQueue(Slots(64), SuspectLine)
    waiting.put([suspect(1), suspect(2, deadline=SOON), Suspect(due_group(3), "b.Class", "{}", alone=False)])
    found = [each.group.id for each in iter(waiting.take, None)]
    assert found in ([2, 3, 1], [3, 2, 1])
