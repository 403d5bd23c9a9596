"""The lines of a job's groups whose backend has a budget: what counts as one poke, and what is given back."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sensorpool.leases.budgets import Asked, Granted
from sensorpool.model.budgets import Budgets, read_budgets
from sensorpool.poke.bulk_call import SIZE
from sensorpool.worker.budgeted import Budgeted, Turn
from tests.support.builders import due_group


class Left:
    """Grants all that is asked for, and notes the questions."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def take(self, questions: Sequence[Asked]) -> list[Granted]:
        """Grant all."""
        self.asked += questions
        return [Granted(each.wanted, 0.0) for each in questions]


@pytest.fixture
def left() -> Left:
    return Left()


def made(left: Any, groups: int, *, call: str | None, asker: str = "0-10") -> Budgeted:
    """Return the lines of groups of one class and backend."""
    turn = Turn(1_000, {}, (), lambda ids: dict.fromkeys(ids, "dag"), lambda unit: call)
    budgeted = Budgeted(Budgets(read_budgets({"warehouse": "2 at once"})), left, asker, turn)
    units: list[Any] = []
    for number in range(groups):
        one = SimpleNamespace(group=due_group(number), op_classpath="a.B", backend="warehouse", dag_id="dag")
        one.by_itself = False
        units.append(one)
    assert budgeted.set_apart(units) == []
    return budgeted


def test_a_call_for_many_is_given_back_when_all_of_it_has_ended(left: Left) -> None:
    budgeted = made(left, SIZE + 200, call="many")
    taken = budgeted.take({}, lambda _: 10_000)
    assert len(taken) == SIZE + 200
    assert left.asked[-1].wanted == 2
    ids = [unit.group.id for unit in taken]
    budgeted.ended(ids[: SIZE - 1])
    budgeted.leave()
    assert left.asked[-1].done == 0
    budgeted.ended(ids[SIZE - 1 : SIZE + 199])
    budgeted.leave()
    assert left.asked[-1].done == 1
    budgeted.ended(ids[SIZE + 199 :])
    budgeted.leave()
    assert left.asked[-1].done == 1


def test_each_round_of_a_range_holds_its_own_pokes(left: Left) -> None:
    rounds = [made(left, 3, call=None) for _ in range(2)]
    for each in rounds:
        assert len(each.take({}, lambda _: 10_000)) == 3
    assert left.asked[0].asker == left.asked[1].asker
    assert left.asked[0].holder != left.asked[1].holder
