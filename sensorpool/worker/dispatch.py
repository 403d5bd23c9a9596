"""The step that pokes: groups go to the lanes class by class, and reports are taken and settled until none is left."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sensorpool.config.settings import Settings
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.lease import Acquired
from sensorpool.model.budgets import Budget, Budgets
from sensorpool.model.not_landed import NotLanded, Seen, number_of
from sensorpool.poke.poker import Poker
from sensorpool.poke.poking import Poking
from sensorpool.poke.unit import PokeUnit
from sensorpool.poke.watchdog import Watchdog
from sensorpool.settle.flush import GROUPS
from sensorpool.store.database import Database
from sensorpool.worker.background import Background
from sensorpool.worker.breakers import Breakers
from sensorpool.worker.finisher import Batch, Finisher
from sensorpool.worker.job_budgets import JobBudgets
from sensorpool.worker.metrics import Metrics

FLUSH_EVERY = 0.1  # seconds
_WAITS = (0.001, 0.05)  # seconds between two looks at the lanes: the first, and the longest
_PACE = 8  # looks at the lanes in the time of a poke, where that is longer than the first wait
_AFTER_SLOW = 0.0125  # seconds: the longest wait after a look that found something
_MOST_AT_ONCE = 5_000  # groups of a class that are handed over in one go
_SOON = 0.1  # seconds: a job waits so long for a budget
_LONG = 1.0  # seconds: a job does not wait longer for pokes that have begun


@dataclass(slots=True)
class LeftOver:
    """What a dispatch leaves.

    :param left: ids of the groups that there was no time for.
    :param waiting: ids of the groups that wait for their backend.
    :param again_in: seconds until a budget may be asked again; None: no group waits for one.
    """

    left: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What a process pokes with."""

    settings: Settings
    database: Database
    poker: Poker
    watchdog: Watchdog
    breakers: Breakers
    budgets: Budgets
    budgets_left: BudgetsLeft
    finisher: Finisher
    background: Background
    metrics: Metrics


def poke(tools: Tools, held: Acquired, batch: Batch, units: list[PokeUnit]) -> LeftOver:
    """Poke groups and settle what the pokes saw. Pokes that take longer than their job go on by themselves.

    :raises Unreachable: when the database or Redis does not answer.
    """
    dispatch = _Dispatch(tools, held, batch, units)
    if not units:
        dispatch.flush()  # the steps before may have left facts
        return LeftOver()
    tools.watchdog.guard()
    poking = tools.poker.begin(batch.moment.at)
    try:
        return dispatch.poke_in_turn(poking)
    except BaseException:
        poking.withdraw()
        raise
    finally:
        if poking.outstanding:
            dispatch.let_go_on(poking)
        else:
            poking.end()
            tools.watchdog.rest()


def sift(tools: Tools, held: Acquired, batch: Batch, units: Sequence[PokeUnit]) -> tuple[list[PokeUnit], list[int]]:
    """Return the groups whose backend is asked now, and the ids of those that are left over until it answers.

    :raises Unreachable: when Redis does not answer.
    """
    sifted = tools.breakers.sift(units, batch.moment.at(time.monotonic()), held.state.left)
    if sifted.missed:
        batch.result.count("held", sifted.missed.total())
        for backend, number in sifted.missed.items():
            tools.metrics.count("held", number, backend)
    return sifted.units, sifted.left


_Line = tuple[str, Budget | None]  # a class, and the budget of its groups' backend


class _Dispatch:
    """The dispatch of one round of a job."""

    def __init__(self, tools: Tools, held: Acquired, batch: Batch, units: list[PokeUnit]) -> None:
        self._tools = tools
        self._lease = held.lease
        self._held = held
        self._batch = batch
        self._poked = LeftOver()
        self._few = 2 * tools.settings.poke_concurrency
        self._chunk = self._few  # groups of a class that are handed over in one go
        self._budgets = self._ask_budgets(units) if tools.budgets else None
        self._lines = self._line_up(units)  # the groups that wait

    def flush(self) -> None:
        """Settle the facts so far.

        :raises Unreachable: when the database does not answer.
        """
        self._tools.finisher.flush(self._batch)

    def poke_in_turn(self, poking: Poking) -> LeftOver:
        """Poke until no group waits, or time is up."""
        batch, lease, settings, wait = self._batch, self._lease, self._tools.settings, _WAITS[0]
        flushed_at = time.monotonic()
        # counted from here on: some groups are poked however long the load took
        stop_at, patience = flushed_at + settings.job_span, min(_LONG, settings.tick / 2)
        while poking.outstanding or self._may_hand_over():
            here = time.monotonic()
            if here > stop_at or not lease.keep(settings.heartbeat):
                break
            self._hand_over(poking)
            seen = poking.step()
            self._take(seen)
            undecided = self._take_back(poking)
            if batch.facts and (here - flushed_at >= FLUSH_EVERY or len(batch.facts) >= GROUPS):
                self.flush()
                flushed_at = time.monotonic()
            if not (seen or undecided) and poking.is_held_up(patience):
                break
            wait = _wait_after(seen) if seen or undecided else min(wait * 1.5, _WAITS[1])
            if poking.outstanding or self._budgets is not None:
                time.sleep(wait)
        waiting = poking.withdraw()
        self._end([unit.group.id for unit in waiting])
        self._take_back(poking)
        self._take(poking.step())  # what has ended since the last look is not slow
        self.flush()
        self._poked.left = [unit.group.id for unit in waiting]
        over_budget = 0
        for (_, budget), line in self._lines.items():
            if budget is None:
                self._poked.left += [unit.group.id for unit in line]
            else:
                self._poked.waiting += [unit.group.id for unit in line]
                over_budget += len(line)
        if over_budget and self._budgets is not None:
            batch.result.count("over_budget", over_budget)
            self._poked.again_in = self._budgets.again_in(budget for _, budget in self._lines if budget is not None)
        return self._poked

    def let_go_on(self, poking: Poking) -> None:
        """Have the pokes go on that take too long."""
        self._batch.result.extra["slow"] = len(poking.outstanding)
        self._tools.background.adopt(poking, self._batch, None if self._budgets is None else self._budgets.ended)

    def _hand_over(self, poking: Poking) -> None:
        """Note which groups are about to be poked, then hand them over: as many as keep the slots of a class busy.

        :raises Unreachable: when Redis does not answer; then no group is handed over.
        """
        wanted = {op_classpath: poking.wants_more(op_classpath) for op_classpath, _ in self._lines}
        units: list[PokeUnit] = []
        limited: dict[Budget, list[PokeUnit]] = defaultdict(list)
        for (op_classpath, budget), line in list(self._lines.items()):
            if wanted[op_classpath] and (budget is None or self._may_ask(budget)):
                some = [line.popleft() for _ in range(min(len(line), self._most_of(op_classpath)))]
                (units if budget is None else limited[budget]).extend(some)
                if not line:
                    del self._lines[op_classpath, budget]
        if self._tools.breakers:
            units = self._sift(units)
            limited = {budget: here for budget, some in limited.items() if (here := self._sift(some))}
        if limited and self._budgets is not None:
            units += self._take_budgets(self._budgets, limited)
        if units:
            ids = [unit.group.id for unit in units]
            self._lease.put_in_flight([*poking.outstanding, *ids])
            poking.put(units, ids)

    def _take_budgets(self, budgets: JobBudgets, wanted: dict[Budget, list[PokeUnit]]) -> list[PokeUnit]:
        """Return the groups that their budgets allow; the others wait in their lines again."""
        waiting = Counter({budget: len(some) for budget, some in wanted.items()})
        for (_, budget), line in self._lines.items():
            if budget is not None:
                waiting[budget] += len(line)
        taken = budgets.take(wanted, waiting)
        allowed = {unit.group.id for unit in taken}
        self._put_back(unit for some in wanted.values() for unit in some if unit.group.id not in allowed)
        return taken

    def _most_of(self, op_classpath: str) -> int:
        """Return how many groups of a class are handed over in one go: full calls, where one call answers many."""
        return _MOST_AT_ONCE if self._tools.poker.shared_calls.is_bulk(op_classpath) else self._chunk

    def _ask_budgets(self, units: Sequence[PokeUnit]) -> JobBudgets:
        tools, now = self._tools, self._batch.moment.now
        for op_classpath in {unit.op_classpath for unit in units}:
            tools.poker.imports.find(op_classpath)  # whether one call answers many is known of an imported class
        asker, since = str(self._batch.shard_range), self._held.state.left
        call_of = tools.poker.shared_calls.call_of
        return JobBudgets(tools.budgets, tools.budgets_left, asker, now, since, lambda unit: call_of(unit, now))

    def _line_up(self, units: list[PokeUnit]) -> dict[_Line, deque[PokeUnit]]:
        """Line groups up by class and budget, so that none stands in the way of the others."""
        lines: dict[_Line, list[PokeUnit]] = {}
        budget, budgets = None, self._budgets
        for unit in units if budgets is None else budgets.in_turn(units):
            if budgets is not None:
                budget = budgets.of(unit.backend)
            try:
                lines[unit.op_classpath, budget].append(unit)
            except KeyError:
                lines[unit.op_classpath, budget] = [unit]
        return {key: deque(line) for key, line in lines.items()}

    def _take_back(self, poking: Poking) -> list[PokeUnit]:
        """Have groups wait for a poke of their own that a shared call has left undecided."""
        undecided = poking.take_undecided()
        self._end([unit.group.id for unit in undecided])
        self._put_back(undecided)
        return undecided

    def _put_back(self, units: Iterable[PokeUnit]) -> None:
        """Have groups wait at the head of their lines."""
        for unit in reversed(list(units)):
            budget = None if self._budgets is None else self._budgets.of(unit.backend)
            self._lines.setdefault((unit.op_classpath, budget), deque()).appendleft(unit)

    def _may_hand_over(self) -> bool:
        """Whether a group waits that may be poked now, or in a moment."""
        return any(budget is None or self._may_ask(budget, _SOON) for _, budget in self._lines)

    def _may_ask(self, budget: Budget, soon: float = 0.0) -> bool:
        return self._budgets is not None and self._budgets.may_ask(budget, soon)

    def _end(self, group_ids: Iterable[int]) -> None:
        """Have budgets take note of pokes that have ended."""
        if self._budgets is not None:
            self._budgets.ended(group_ids)

    def _sift(self, units: Sequence[PokeUnit]) -> list[PokeUnit]:
        here, left = sift(self._tools, self._held, self._batch, units)
        self._poked.waiting += left
        return here

    def _take(self, seen: Sequence[Seen]) -> None:
        """Take in what pokes saw."""
        self._chunk = max(self._few, min(2 * number_of(seen), _MOST_AT_ONCE))
        self._end(i for each in seen for i in (each.ids if isinstance(each, NotLanded) else [each.group.id]))
        self._tools.finisher.take(self._batch, seen)


def _wait_after(seen: Sequence[Seen]) -> float:
    """Return how long to wait for more: while pokes of 100 ms go on, a look each millisecond would cost as much."""
    quickest = min([each.seconds for each in seen], default=0.0)
    return min(max(quickest / _PACE, _WAITS[0]), _AFTER_SLOW)
