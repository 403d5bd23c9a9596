"""The budgets of backends, as one round of a job asks them: what they do not allow yet is left over."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.model.budgets import Budget, Budgets
from sensorpool.model.values import Milliseconds
from sensorpool.poke.bulk_call import SIZE
from sensorpool.poke.unit import PokeUnit

Unit = TypeVar("Unit")
_AGAIN = 0.05  # seconds after which a budget is asked again when a poke has ended, at least


class JobBudgets:
    """What the groups of one range have of budgets in one round of a job. Belongs to the thread of the job.

    :param asker: the range.
    :param now: the database's time.
    :param since: since when groups have been left over, by id; 0: not known.
    :param call_of: returns what names the call by which a group is asked for with others; it counts as one poke.
    """

    def __init__(
        self,
        budgets: Budgets,
        left: BudgetsLeft,
        asker: str,
        now: Milliseconds,
        since: Mapping[int, Milliseconds],
        call_of: Callable[[PokeUnit], Hashable | None],
    ) -> None:
        self.of = budgets.of
        self._left = left
        self._asker = asker
        self._now = now
        self._since = since
        self._call_of = call_of
        self._ask_at: dict[Budget, float] = {}  # when a budget is asked again, by the monotonic clock
        self._at_once: dict[int, Budget] = {}  # by the first group of each call, if the budget counts those at once

    def may_ask(self, budget: Budget, soon: float = 0.0) -> bool:
        """Whether a budget may be asked now, or in so many seconds."""
        return self._ask_at.get(budget, 0.0) <= time.monotonic() + soon

    def again_in(self, budgets: Iterable[Budget]) -> float | None:
        """Return in how many seconds the first of some budgets is asked again; None: there is none."""
        at = min((self._ask_at.get(budget, 0.0) for budget in budgets), default=None)
        return None if at is None else max(0.0, at - time.monotonic())

    def in_turn(self, units: Sequence[PokeUnit]) -> list[PokeUnit]:
        """Return groups in the order of their turns: passed deadlines, then those that have waited for longest."""
        return sorted(units, key=self._turn_of)

    def take(self, wanted: Mapping[Budget, Sequence[PokeUnit]], waiting: Mapping[Budget, int]) -> list[PokeUnit]:
        """Ask budgets; return the groups that are poked now.

        :param wanted: the groups that could be poked now.
        :param waiting: how many groups wait for each budget, these among them.
        :raises Unreachable: when Redis does not answer.
        """
        taken: list[PokeUnit] = []
        for budget, units in wanted.items():
            calls = in_calls(self.in_turn(units), self._call_of, SIZE)
            waited = max(0, self._now - min(map(self._left_since, units))) / 1000
            names = [str(call[0].group.id) for call in calls]
            granted, wait = self._left.take(budget, self._asker, names, groups=waiting[budget], waited=waited)
            self._ask_at[budget] = time.monotonic() + wait
            for call in calls[:granted]:
                taken += call
                if budget.at_once is not None:
                    self._at_once[call[0].group.id] = budget
        return taken

    def ended(self, group_ids: Iterable[int]) -> None:
        """Take note of pokes that have ended.

        :raises Unreachable: when Redis does not answer; then the budget has them back after a while.
        """
        if not self._at_once:
            return
        ended = [(budget, str(each)) for each in group_ids if (budget := self._at_once.pop(each, None)) is not None]
        again = time.monotonic() + _AGAIN
        for budget, _ in ended:
            self._ask_at[budget] = min(self._ask_at.get(budget, 0.0), again)
        if ended:
            self._left.give_back(ended)

    def _turn_of(self, unit: PokeUnit) -> tuple[bool, Milliseconds]:
        deadline = unit.group.next_deadline
        return deadline is None or self._now < deadline, self._left_since(unit)

    def _left_since(self, unit: PokeUnit) -> Milliseconds:
        return self._since.get(unit.group.id) or self._now


def in_calls(units: Iterable[Unit], call_of: Callable[[Unit], Hashable | None], size: int) -> list[list[Unit]]:
    """Return groups by the call that asks for them, each of which counts as one poke, in the order of its first group.

    :param call_of: names the call by which a group is asked for with others; None: it is asked for alone.
    :param size: groups of one call, at most.
    """
    calls: list[list[Unit]] = []
    open_calls: dict[Hashable, list[Unit]] = {}
    for unit in units:
        name = call_of(unit)
        call = None if name is None else open_calls.get(name)
        if call is not None and len(call) < size:
            call.append(unit)
            continue
        calls.append(call := [unit])
        if name is not None:
            open_calls[name] = call
    return calls
