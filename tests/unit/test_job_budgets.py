"""The budgets in one round of a job: whose turn it is, what counts as one poke, and what is given back."""

from collections.abc import Hashable, Mapping
from typing import Any

import pytest

from harness.until import until
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.budgets import Budget, Budgets
from sensorpool.poke.answer import Answers
from sensorpool.poke.classes import Classes
from sensorpool.poke.tools import PokeTools
from sensorpool.poke.unit import PokeUnit
from sensorpool.worker.job_budgets import JobBudgets
from tests.support.builders import START, due_group

PATH = "company.Sensor"
TOOLS = PokeTools(Classes([PATH]), Answers([]), {})
FOUR = Budget("hive", 1.0, 4)  # its bucket holds two
AT_ONCE = Budget("hive", None, 2)


class Round:
    """One round of a job."""

    def __init__(self, client: Any, budget: Budget, since: Mapping[int, int], calls: Mapping[int, Hashable]) -> None:
        self.budget = budget
        self.left = BudgetsLeft(RedisStore(client), kept=40.0, tick=5.0)
        self.budgets = JobBudgets(
            Budgets([budget]), self.left, "0-9", START, since, lambda unit: calls.get(unit.group.id)
        )

    def take(self, units: list[PokeUnit]) -> list[int]:
        """Return which groups are poked."""
        taken = self.budgets.take({self.budget: units}, {self.budget: len(units)})
        return [unit.group.id for unit in taken]


def some(*group_ids: int, **columns: Any) -> list[PokeUnit]:
    """Make groups of one backend."""
    return [PokeUnit(due_group(each, **columns), PATH, "{}", TOOLS, "hive") for each in group_ids]


def test_passed_deadlines_come_first_and_then_who_has_waited_for_longest(client: Any) -> None:
    late, early = some(8, next_deadline=START), some(9, next_deadline=START + 1)
    found = Round(client, FOUR, {2: START - 10, 3: START - 20}, {})
    assert found.take([*some(1, 2, 3), *early, *late]) == [8, 3]
    [told] = found.left.look([FOUR])
    assert told.waiting == 3
    assert 0.02 <= told.longest < 5


def test_one_call_for_many_is_one_poke(client: Any) -> None:
    found = Round(client, FOUR, {}, dict.fromkeys((1, 3, 5), "call"))
    assert found.take(some(1, 2, 3, 4, 5)) == [1, 3, 5, 2]


def test_a_budget_that_has_refused_is_asked_later(client: Any) -> None:
    found = Round(client, FOUR, {}, {})
    assert found.budgets.may_ask(FOUR)
    found.take(some(1, 2, 3))
    assert not found.budgets.may_ask(FOUR)
    again = found.budgets.again_in([FOUR])
    assert again is not None
    assert 0.5 < again <= 1.4
    assert found.budgets.may_ask(FOUR, soon=2.0)
    assert found.budgets.again_in([]) is None


@pytest.mark.parametrize(
    ("calls", "ended", "free"), [({}, [1], 1), ({1: "c", 2: "c"}, [2], 0), ({1: "c", 2: "c"}, [1, 2], 1)]
)
def test_a_call_is_given_back_when_all_of_it_has_ended(
    client: Any, calls: dict[int, Hashable], ended: list[int], free: int
) -> None:
    found = Round(client, AT_ONCE, {}, calls)
    taken = found.take(some(1, 2, 3, 4))
    assert found.left.look([AT_ONCE])[0].at_once == 2
    found.budgets.ended([*ended, 77])
    assert found.left.look([AT_ONCE])[0].at_once == 2 - free
    if free:
        until("the next question", lambda: found.budgets.may_ask(AT_ONCE))
        assert found.take(some(*{1, 2, 3, 4}.difference(taken)))
