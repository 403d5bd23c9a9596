"""The step that pokes: groups go to the lanes class by class, and reports are taken and settled until none is left."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from sensorpool.errors import Unreachable
from sensorpool.model.not_landed import NotLanded, Seen, number_of
from sensorpool.model.suspicion import Suspicion
from sensorpool.poke.poking import Poking
from sensorpool.poke.unit import PokeUnit
from sensorpool.settle.flush import GROUPS
from sensorpool.store import loading
from sensorpool.worker import reports, set_apart
from sensorpool.worker.budgeted import Budgeted, Turn
from sensorpool.worker.job_run import JobRun

FLUSH_EVERY = 0.1  # seconds
_WAITS = (0.001, 0.05)  # seconds between two looks at the lanes: the first, and the longest
_PACE = 8  # looks at the lanes in the time of a poke, where that is longer than the first wait
_AFTER_SLOW = 0.0125  # seconds: the longest wait after a look that found something
_MOST_AT_ONCE = 5_000  # groups of a class that are handed over in one go
_SOON = 0.1  # seconds: a job waits so long for a budget
_LONG = 1.0  # seconds: a job does not wait longer for pokes that have begun


@dataclass(slots=True)
class Poked:
    """What a dispatch leaves.

    :param left: ids of the groups that there was no time for.
    :param waiting: ids of the groups that wait for their backend.
    :param again_in: seconds until the turn of groups that wait for a budget; None: none waits.
    """

    left: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    again_in: float | None = None


def poke(run: JobRun, units: list[PokeUnit]) -> Poked:
    """Poke groups and settle what the pokes saw. Pokes that take longer than their job go on by themselves.

    :raises Unreachable: when the database or Redis does not answer.
    """
    if not units:
        reports.settle(run)  # the step before may have left facts
        return Poked()
    worker, dispatch = run.worker, _Dispatch(run, units)
    worker.watchdog.guard()
    poking = worker.poker.begin(run.moment.at, worker.budgets.covers if worker.budgets else None)
    try:
        return dispatch.poke_in_turn(poking)
    except BaseException:
        dispatch.forget([*poking.withdraw(), *poking.take_returned()])
        raise
    finally:
        if poking.outstanding:
            dispatch.let_go_on(poking)
        else:
            poking.end()
            worker.watchdog.rest()


class _Dispatch:
    """The dispatch of one round of a job."""

    def __init__(self, run: JobRun, units: list[PokeUnit]) -> None:
        self._run = run
        self._worker = run.worker
        self._poked = Poked()
        self._few = 2 * run.settings.poke_concurrency
        self._chunk = self._few  # groups of a class that are handed over in one go
        self._budgeted = self._budget(units) if self._worker.budgets else None
        if self._budgeted is not None:
            units = self._budgeted.set_apart(self._sift(units) if self._worker.away else units)
        self._lines = _line_up(units)  # the groups that wait, by class

    def poke_in_turn(self, poking: Poking) -> Poked:
        """Poke until no group waits, or time is up."""
        run, settings, wait = self._run, self._run.settings, _WAITS[0]
        flushed_at, renewed_at = time.monotonic(), run.began
        # counted from here on: some groups are poked however long the load took
        stop_at, patience = flushed_at + settings.job_span, min(_LONG, settings.tick / 2)
        while poking.outstanding or self._lines or self._may_ask():
            here = time.monotonic()
            if here - renewed_at >= settings.heartbeat:
                renewed_at = here
                run.lease.extend()
            if here > stop_at or not run.lease.is_ours():
                break
            self._hand_over(poking)
            seen = poking.step()
            self._take(seen)
            returned = poking.take_returned()
            self._put_back(returned)
            facts = len(run.outcomes.facts)
            if facts and (here - flushed_at >= FLUSH_EVERY or facts >= GROUPS):
                reports.settle(run)
                flushed_at = time.monotonic()
            if not (seen or returned) and poking.is_held_up(patience):
                break
            wait = _wait_after(seen) if seen or returned else min(wait * 1.5, _WAITS[1])
            if poking.outstanding or self._worker.budgets:
                time.sleep(wait)
        waiting = poking.withdraw()
        self._put_back(poking.take_returned())
        self._take(poking.step())  # what has ended since the last look is not slow
        reports.settle(run)
        left = waiting + [unit for line in self._lines.values() for unit in line]
        self._poked.left = set_apart.stuck(run, poking, left)
        if (budgeted := self._budgeted) is not None:
            budgeted.ended(unit.group.id for unit in waiting)
            if over_budget := budgeted.waiting:
                self._poked.waiting += over_budget
                run.result.count("over_budget", len(over_budget))
                run.result.count_each("over_budget_of", budgeted.waiting_of_each())
            self._poked.again_in = budgeted.leave()
        return self._poked

    def forget(self, units: Sequence[PokeUnit]) -> None:
        """Note that groups are not poked after all: their budget does not wait for them."""
        if self._budgeted is not None:
            self._budgeted.ended(unit.group.id for unit in units)

    def let_go_on(self, poking: Poking) -> None:
        """Have the pokes go on that take too long."""
        run, slow = self._run, list(poking.outstanding)
        run.result.extra["slow"] = len(slow)
        run.held.suspects.update(dict.fromkeys(slow, Suspicion.SLOW))
        with suppress(Unreachable):  # the state of the range has them, for the job cannot finish either
            run.tell_failures(slow)
        ended = None if self._budgeted is None else self._give_back
        self._worker.slow_pokes.adopt(poking, run.shard_range, slow, run.moment.now, ended)

    def _give_back(self, group_ids: Collection[int]) -> None:
        """Give back what pokes had of a budget that went on after their job.

        :raises Unreachable: when Redis does not answer; then it ends by itself after a while.
        """
        if self._budgeted is not None:
            self._budgeted.ended(group_ids)
            self._budgeted.leave()

    def _hand_over(self, poking: Poking) -> None:
        """Note which groups are about to be poked, then hand them over: as many as keep the slots of a class busy.

        :raises Unreachable: when Redis does not answer; then no group is handed over.
        """
        budgeted, lines = self._budgeted, self._lines
        wanted = {name: poking.wants_more(name) for name in [*lines, *(budgeted.classes() if budgeted else ())]}
        units = [] if budgeted is None else budgeted.take(wanted, self._most_of)
        for op_classpath, line in list(lines.items()):
            if wanted[op_classpath]:
                most = self._most_of(op_classpath)
                some = list(islice(line, most))
                units += some
                if len(some) < most:
                    del lines[op_classpath]
        if units and self._worker.away:
            sifted = self._sift(units)
            if budgeted is not None and len(sifted) < len(units):
                budgeted.ended({unit.group.id for unit in units} - {unit.group.id for unit in sifted})
            units = sifted
        if units:
            ids = [unit.group.id for unit in units]
            self._run.lease.put_in_flight([*poking.outstanding, *ids])
            poking.put(units, ids)

    def _most_of(self, op_classpath: str) -> int:
        """Return how many groups of a class are handed over in one go: full calls, where one call answers many."""
        return _MOST_AT_ONCE if self._worker.poker.is_bulk(op_classpath) else self._chunk

    def _budget(self, units: Sequence[PokeUnit]) -> Budgeted:
        run, worker = self._run, self._worker
        for op_classpath in {unit.op_classpath for unit in units}:
            worker.poker.imports.find(op_classpath)  # whether one call answers many is known of an imported class
        turn = Turn(
            run.loaded.now,
            run.held.state.left_since,
            set(map(abs, run.held.late)),
            lambda group_ids: worker.database.read(loading.dags_of, group_ids),
            lambda unit: worker.poker.call_of(unit, run.loaded.now),
        )
        return Budgeted(worker.budgets, worker.budgets_left, str(run.shard_range), turn)

    def _put_back(self, units: Sequence[PokeUnit]) -> None:
        """Have groups wait for a poke of their own."""
        if units and self._budgeted is not None:
            self._budgeted.put_back(list(units))

    def _may_ask(self) -> bool:
        """Whether a budget may be asked now, or in a moment, for groups that wait."""
        if self._budgeted is None or (at := self._budgeted.next_ask) is None:
            return False
        return at <= time.monotonic() + _SOON

    def _sift(self, units: Sequence[PokeUnit]) -> list[PokeUnit]:
        """Return the groups whose backend is asked now; the others are not poked.

        :raises Unreachable: when Redis does not answer.
        """
        sifted = self._run.sift(units)
        self._poked.waiting += sifted.left
        return sifted.units

    def _take(self, seen: Sequence[Seen]) -> None:
        """Take in what pokes saw."""
        self._chunk = max(self._few, min(2 * number_of(seen), _MOST_AT_ONCE))
        if self._budgeted is not None:
            self._budgeted.ended(
                i for each in seen for i in (each.ids if isinstance(each, NotLanded) else [each.group.id])
            )
        reports.take(self._run, seen)


def _wait_after(seen: Sequence[Seen]) -> float:
    """Return how long to wait for more: while pokes of 100 ms go on, a look each millisecond would cost as much."""
    quickest = min([each.seconds for each in seen], default=0.0)
    return min(max(quickest / _PACE, _WAITS[0]), _AFTER_SLOW)


def _line_up(units: list[PokeUnit]) -> dict[str, Iterator[PokeUnit]]:
    """Line groups up by class, so that a slow class does not stand in the way of the others."""
    lines: dict[str, list[PokeUnit]] = {}
    for unit in units:
        try:
            lines[unit.op_classpath].append(unit)
        except KeyError:
            lines[unit.op_classpath] = [unit]
    return {op_classpath: iter(line) for op_classpath, line in lines.items()}
