"""The groups of a job whose backend has a budget: they wait in lines, and are poked as the budget allows.

A job does not wait for a budget alone: what is left at its end waits for its turn, for which another job is sent.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sensorpool.leases.budgets import Asked, BudgetsLeft
from sensorpool.model.budgets import Budget, Budgets, Waits, in_turn, stretch
from sensorpool.model.values import Milliseconds
from sensorpool.poke.bulk_call import SIZE
from sensorpool.poke.unit import PokeUnit

_AGAIN = 0.05  # seconds between two questions of one job for one budget, at least


class _Line:
    """The groups of one range that wait for one budget."""

    __slots__ = ("ask_at", "classes", "done", "is_in_turn", "poked", "stretched", "units")

    def __init__(self) -> None:
        self.units: list[PokeUnit] = []
        self.classes: set[str] = set()
        self.is_in_turn = False  # whether the groups stand in the order of their turns
        self.ask_at = 0.0  # when the budget is asked again, by the monotonic clock
        self.done = 0  # pokes that have ended since it was asked
        self.poked = 0  # groups handed over since then
        self.stretched = 0.0  # the sum of their stretches

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell: a group that did not wait tells nothing of stretches."""
        return self.done > 0 or self.stretched > self.poked or (self.poked > 0 and bool(self.units))


class _Call:
    """A call that a budget has granted as one poke, and that counts among those at once until all of it has ended."""

    __slots__ = ("budget", "open")

    def __init__(self, budget: Budget, groups: int) -> None:
        self.budget = budget
        self.open = groups  # that have not ended


class Turn(NamedTuple):
    """What the caller knows of the job.

    :param now: the database's time.
    :param since: since when groups have been left over, by id.
    :param late: ids of the groups that were left to this job in another way.
    :param dags: returns a DAG of each of these groups that waits for it, by id.
    :param call_of: returns what names the call by which a group is asked for with others; it counts as one poke.
    """

    now: Milliseconds
    since: Mapping[int, Milliseconds]
    late: Container[int]
    dags: Callable[[Sequence[int]], Mapping[int, str]]
    call_of: Callable[[PokeUnit], Hashable | None]

    def is_left(self, group_id: int) -> bool:
        """Whether an earlier job left a group to this one."""
        return group_id in self.since or group_id in self.late


class Budgeted:
    """The lines of one range in one round of a job. Belongs to the thread of the job."""

    def __init__(self, budgets: Budgets, left: BudgetsLeft, asker: str, turn: Turn) -> None:
        self._budgets = budgets
        self._left = left
        self._asker = asker
        self._turn = turn
        self._lines: dict[Budget, _Line] = {}
        # of its own: what a job of this range has not given back, a later one must not hold on to
        self._holder = f"{asker}/{secrets.token_hex(4)}"
        self._at_once: dict[int, _Call] = {}  # the call of each group that is being poked, if its budget counts these

    def set_apart(self, units: Sequence[PokeUnit]) -> list[PokeUnit]:
        """Take the groups into lines whose backend has a budget; return the others."""
        others: list[PokeUnit] = []
        backend: str | None = None
        line: _Line | None = None
        for unit in units:
            if unit.backend is not backend:  # names are interned, and groups by the thousand have one backend
                backend, line = unit.backend, self._line_of(unit.backend)
            if line is None:
                others.append(unit)
            else:
                if unit.by_itself and not self._turn.is_left(unit.group.id):
                    unit.by_itself = False  # another process has poked it since its shared call
                line.units.append(unit)
                line.classes.add(unit.op_classpath)
        return others

    def put_back(self, units: Sequence[PokeUnit]) -> None:
        """Take groups into their lines again: their call has ended, and each needs a poke of its own."""
        self.ended(unit.group.id for unit in units)
        for unit in units:
            if (line := self._line_of(unit.backend)) is not None:
                line.units.append(unit)
                line.is_in_turn = False

    def _line_of(self, backend: str) -> _Line | None:
        budget = self._budgets.of(backend)
        return None if budget is None else self._lines.setdefault(budget, _Line())

    @property
    def waiting(self) -> list[int]:
        """The ids of the groups that wait."""
        return [unit.group.id for line in self._lines.values() for unit in line.units]

    def waiting_of_each(self) -> dict[str, int]:
        """Return how many groups wait for each budget, by its pattern."""
        return {budget.pattern: len(line.units) for budget, line in self._lines.items() if line.units}

    @property
    def next_ask(self) -> float | None:
        """When a budget is asked again for groups that wait, by the monotonic clock; None: none waits."""
        return min((line.ask_at for line in self._lines.values() if line.units), default=None)

    def classes(self) -> set[str]:
        """Return the classes of the groups that wait and could be asked for now."""
        here = time.monotonic()
        return {name for line in self._lines.values() if line.units and line.ask_at <= here for name in line.classes}

    def take(self, wanted: Mapping[str, bool], most_of: Callable[[str], int]) -> list[PokeUnit]:
        """Ask the budgets; return the groups that are poked now.

        :param wanted: whether the slots of a class want more groups.
        :param most_of: returns how many groups of a class are handed over in one go.
        :raises Unreachable: when Redis does not answer.
        """
        here = time.monotonic()
        asking = [(budget, line) for budget, line in self._lines.items() if line.units and line.ask_at <= here]
        asking = [(budget, line) for budget, line in asking if any(wanted.get(path, True) for path in line.classes)]
        if not asking:
            return []
        mosts = [max(map(most_of, line.classes)) for _, line in asking]
        costs = [self._cost(line.units[:most]) for (_, line), most in zip(asking, mosts, strict=True)]
        granted = self._left.take([self._question(*each, cost) for each, cost in zip(asking, costs, strict=True)])
        taken: list[PokeUnit] = []
        for (budget, line), most, cost, grant in zip(asking, mosts, costs, granted, strict=True):
            line.ask_at = here + max(grant.wait, _AGAIN if grant.pokes < cost else 0.0)
            if grant.pokes >= cost:
                some, line.units[:most] = line.units[:most], []
            elif grant.pokes > 0:
                self._put_in_turn(line)
                some = self._first(line, grant.pokes, most)
            else:
                continue  # whose turn it is matters when there is a turn
            taken += some
            line.poked += len(some)
            line.stretched += self._stretched(some)
            if budget.at_once is not None:
                for call in self._calls(some):
                    granted_call = _Call(budget, len(call))
                    self._at_once.update((unit.group.id, granted_call) for unit in call)
        return taken

    def ended(self, group_ids: Iterable[int]) -> None:
        """Take note of pokes that have ended."""
        if self._at_once:
            for group_id in group_ids:
                if (call := self._at_once.pop(group_id, None)) is None:
                    continue
                call.open -= 1
                if not call.open:
                    line = self._lines[call.budget]
                    line.done += 1
                    line.ask_at = min(line.ask_at, time.monotonic() + _AGAIN)

    def leave(self) -> float | None:
        """Give back what the job has at once no more; return in how many seconds its groups' turn comes.

        :returns: None: no group waits.
        :raises Unreachable: when Redis does not answer.
        """
        told = [(budget, line) for budget, line in self._lines.items() if line.has_news]
        if told:
            self._left.take([self._question(budget, line, 0) for budget, line in told])
        return None if (at := self.next_ask) is None else max(0.0, at - time.monotonic())

    def _question(self, budget: Budget, line: _Line, wanted: int) -> Asked:
        waiting = len(line.units)
        asked = Asked(budget, self._asker, wanted, line.done, line.stretched, line.poked, waiting, self._holder)
        line.done, line.stretched, line.poked = 0, 0.0, 0
        return asked

    def _cost(self, units: Sequence[PokeUnit]) -> int:
        """Return how many pokes these groups are: one call for many is one."""
        calls = Counter(map(self._turn.call_of, units))
        return calls.pop(None, 0) + sum(-(-number // SIZE) for number in calls.values())

    def _calls(self, units: Sequence[PokeUnit]) -> Iterator[list[PokeUnit]]:
        """Yield the groups of each call, as `_cost` counts them."""
        many: dict[Hashable, list[PokeUnit]] = {}
        for unit in units:
            if (call := self._turn.call_of(unit)) is None:
                yield [unit]
            else:
                many.setdefault(call, []).append(unit)
        for same in many.values():
            yield from (same[start : start + SIZE] for start in range(0, len(same), SIZE))

    def _first(self, line: _Line, pokes: int, most: int) -> list[PokeUnit]:
        """Take the first groups out of a line, as many as so many pokes are."""
        cost, room = 0, Counter[Hashable]()
        taken: list[PokeUnit] = []
        left: list[PokeUnit] = []
        for unit in line.units[:most]:
            call = self._turn.call_of(unit)
            if room[call] > 0:
                room[call] -= 1
            elif cost == pokes:
                left.append(unit)
                continue
            else:
                cost += 1
                if call is not None:
                    room[call] = SIZE - 1
            taken.append(unit)
        line.units[:most] = left
        return taken

    def _put_in_turn(self, line: _Line) -> None:
        """Put the groups of a line in the order of their turns, once."""
        if line.is_in_turn:
            return
        line.is_in_turn = True
        if unknown := {unit.group.id: unit for unit in line.units if unit.dag_id is None}:
            dags = self._turn.dags([*unknown])
            for group_id, unit in unknown.items():
                unit.dag_id = dags.get(group_id, "")
        line.units = in_turn(line.units, self._waits, self._turn.now)

    def _waits(self, unit: PokeUnit) -> Waits:
        group, now = unit.group, self._turn.now
        since = self._turn.since.get(group.id) or now
        return Waits(group.poke_interval, group.next_deadline, since, unit.dag_id or "")

    def _stretched(self, units: Sequence[PokeUnit]) -> float:
        """Return the sum of the stretches of groups."""
        if not self._turn.since:
            return float(len(units))
        return sum(stretch(self._waits(unit), self._turn.now) for unit in units)


def charge(budgets: Budgets, left: BudgetsLeft, asker: str, units: Iterable[PokeUnit]) -> None:
    """Take the pokes of groups out of their budgets whatever is left there: they are poked apart, at once.

    :raises Unreachable: when Redis does not answer.
    """
    counted = Counter(budget for unit in units if (budget := budgets.of(unit.backend)) is not None)
    if counted:
        left.take([Asked(budget._replace(at_once=None), asker, -number) for budget, number in counted.items()])
