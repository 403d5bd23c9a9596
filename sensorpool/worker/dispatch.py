"""The step that pokes: groups go to the lanes class by class, and reports are taken and settled until none is left."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from sensorpool.errors import Unreachable
from sensorpool.model.not_landed import NotLanded, Seen, number_of
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import ShardRange
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


@dataclass(slots=True, eq=False)
class Share:
    """What one range has in a dispatch.

    :param units: its groups to be poked.
    :param waiting: ids of the groups that wait for their backend.
    :param budgeted: the groups whose backend has a budget; None: no budget is set.
    :param again_in: seconds until the turn of groups that wait for a budget; None: none waits.
    """

    run: JobRun
    units: list[PokeUnit]
    left: list[int] = field(default_factory=list)  # ids of the groups that there was no time for
    waiting: list[int] = field(default_factory=list)
    budgeted: Budgeted | None = None
    again_in: float | None = None
    lines: dict[str, Iterator[PokeUnit]] = field(default_factory=dict)  # the groups that wait, by class


def poke(shares: Sequence[Share]) -> None:
    """Poke the groups of a job's ranges and settle what they saw; note which groups there was no time for.

    Pokes that take longer than their job go on by themselves.

    :raises Unreachable: when the database or Redis does not answer.
    """
    some = [share for share in shares if share.units]
    if len(some) < len(shares):  # the step before may have left facts
        reports.settle([share.run for share in shares])
    if not some:
        return
    worker, dispatch = some[0].run.worker, _Dispatch(some)
    worker.watchdog.guard()
    poking = worker.poker.begin(some[0].run.moment.at, worker.budgets.covers if worker.budgets else None)
    try:
        dispatch.poke_in_turn(poking)
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

    def __init__(self, shares: Sequence[Share]) -> None:
        self._shares = shares
        self._runs = [share.run for share in shares]
        first = self._runs[0]
        self._worker, self._settings = first.worker, first.settings
        self._few = 2 * self._settings.poke_concurrency
        self._chunk = self._few  # groups of a class and range that are handed over in one go
        self._owners: dict[int, Share] = {}  # whose a group is; empty: there is one range only
        for share in shares:
            share.lines = _line_up(self._set_apart(share) if self._worker.budgets else share.units)
            if len(shares) > 1:
                self._owners.update((unit.group.id, share) for unit in share.units)
        self._budgeted = [share.budgeted for share in shares if share.budgeted is not None]

    def poke_in_turn(self, poking: Poking) -> None:
        """Poke until no group waits, or time is up."""
        settings, wait = self._settings, _WAITS[0]
        flushed_at, renewed_at = time.monotonic(), self._runs[0].began
        # counted from here on: some groups are poked however long the load took
        stop_at, patience = flushed_at + settings.job_span, min(_LONG, settings.tick / 2)
        while poking.outstanding or any(share.lines for share in self._shares) or self._may_ask():
            here = time.monotonic()
            if here - renewed_at >= settings.heartbeat:
                renewed_at = here
                for run in self._runs:
                    run.lease.extend()
            if here > stop_at or not all(run.lease.is_ours() for run in self._runs):
                break
            self._hand_over(poking)
            seen = poking.step()
            self._take(seen)
            returned = poking.take_returned()
            self._put_back(returned)
            facts = sum([len(run.outcomes.facts) for run in self._runs])
            if facts and (here - flushed_at >= FLUSH_EVERY or facts >= GROUPS):
                reports.settle(self._runs)
                flushed_at = time.monotonic()
            if not (seen or returned) and poking.is_held_up(patience):
                break
            wait = _wait_after(seen) if seen or returned else min(wait * 1.5, _WAITS[1])
            if poking.outstanding or self._worker.budgets:
                time.sleep(wait)
        waiting = poking.withdraw()
        self._put_back(poking.take_returned())
        self._take(poking.step())  # what has ended since the last look is not slow
        reports.settle(self._runs)
        for share in self._shares:
            own = [unit for unit in waiting if self._owners.get(unit.group.id, share) is share]
            left = own + [unit for line in share.lines.values() for unit in line]
            share.left = set_apart.stuck(share.run, poking, left)
            if share.budgeted is not None:
                share.budgeted.ended(unit.group.id for unit in own)
                if over_budget := share.budgeted.waiting:
                    share.waiting += over_budget
                    share.run.result.count("over_budget", len(over_budget))
                    share.run.result.count_each("over_budget_of", share.budgeted.waiting_of_each())
                share.again_in = share.budgeted.leave()

    def forget(self, units: Sequence[PokeUnit]) -> None:
        """Note that groups are not poked after all: their budget does not wait for them."""
        for budgeted in self._budgeted:
            budgeted.ended(unit.group.id for unit in units)

    def let_go_on(self, poking: Poking) -> None:
        """Have the pokes go on that take too long."""
        slow_of: list[tuple[ShardRange, list[int]]] = []
        for share in self._shares:
            if slow := self._own(share, poking.outstanding):
                share.run.result.extra["slow"] = len(slow)
                share.run.held.suspects.update(dict.fromkeys(slow, Suspicion.SLOW))
                with suppress(Unreachable):  # the state of the range has them, for the job cannot finish either
                    share.run.tell_failures(slow)
                slow_of.append((share.run.shard_range, slow))
        ended = self._give_back if self._budgeted else None
        self._worker.slow_pokes.adopt(poking, slow_of, self._runs[0].moment.now, ended)

    def _give_back(self, group_ids: Collection[int]) -> None:
        """Give back what pokes had of a budget that went on after their job.

        :raises Unreachable: when Redis does not answer; then it ends by itself after a while.
        """
        for budgeted in self._budgeted:
            budgeted.ended(group_ids)
            budgeted.leave()

    def _own(self, share: Share, group_ids: Iterable[int]) -> list[int]:
        """Return the groups that are of a range."""
        return [group_id for group_id in group_ids if self._owners.get(group_id, share) is share]

    def _hand_over(self, poking: Poking) -> None:
        """Note which groups are about to be poked, then hand them over: as many as keep the slots of a class busy.

        :raises Unreachable: when Redis does not answer; then no group is handed over.
        """
        taken: list[tuple[Share, list[PokeUnit]]] = []
        names = {name for share in self._shares for name in share.lines}
        names |= {name for share in self._shares if share.budgeted for name in share.budgeted.classes()}
        wanted = {name: poking.wants_more(name) for name in names}
        for share in self._shares:
            units = [] if share.budgeted is None else share.budgeted.take(wanted, self._most_of)
            for op_classpath, line in list(share.lines.items()):
                if wanted[op_classpath]:
                    most = self._most_of(op_classpath)
                    some = list(islice(line, most))
                    units += some
                    if len(some) < most:
                        del share.lines[op_classpath]
            if units and self._worker.away:
                sifted = self._sift(share, units)
                if share.budgeted is not None and len(sifted) < len(units):
                    share.budgeted.ended({unit.group.id for unit in units} - {unit.group.id for unit in sifted})
                units = sifted
            if units:
                taken.append((share, units))
        if not taken:
            return
        ids = [[unit.group.id for unit in units] for _, units in taken]
        in_flight = {
            share.run.shard_range: [*self._own(share, poking.outstanding), *own]
            for (share, _), own in zip(taken, ids, strict=True)
        }
        self._worker.leases.put_in_flight(in_flight)
        for (_, units), own in zip(taken, ids, strict=True):
            poking.put(units, own)

    def _most_of(self, op_classpath: str) -> int:
        """Return how many groups of a class are handed over in one go: full calls, where one call answers many."""
        return _MOST_AT_ONCE if self._worker.poker.is_bulk(op_classpath) else self._chunk

    def _set_apart(self, share: Share) -> list[PokeUnit]:
        """Take the groups apart whose backend has a budget; return the others. Groups that are not asked for none."""
        run, worker = share.run, self._worker
        for op_classpath in {unit.op_classpath for unit in share.units}:
            worker.poker.imports.find(op_classpath)  # whether one call answers many is known of an imported class
        turn = Turn(
            run.loaded.now,
            run.held.state.left_since,
            set(map(abs, run.held.late)),
            lambda group_ids: worker.database.read(loading.dags_of, group_ids),
            lambda unit: worker.poker.call_of(unit, run.loaded.now),
        )
        share.budgeted = Budgeted(worker.budgets, worker.budgets_left, str(run.shard_range), turn)
        return share.budgeted.set_apart(self._sift(share, share.units) if worker.away else share.units)

    def _put_back(self, units: Sequence[PokeUnit]) -> None:
        """Have groups wait for a poke of their own, each in its range."""
        for share in self._shares if units else ():
            if share.budgeted is not None:
                share.budgeted.put_back([unit for unit in units if self._owners.get(unit.group.id, share) is share])

    def _may_ask(self) -> bool:
        """Whether a budget may be asked now, or in a moment, for groups that wait."""
        soon = time.monotonic() + _SOON
        asks = [budgeted.next_ask for budgeted in self._budgeted]
        return any(at is not None and at <= soon for at in asks)

    def _sift(self, share: Share, units: Sequence[PokeUnit]) -> list[PokeUnit]:
        """Return the groups whose backend is asked now; the others are not poked.

        :raises Unreachable: when Redis does not answer.
        """
        sifted = share.run.sift(units)
        share.waiting += sifted.left
        return sifted.units

    def _take(self, seen: Sequence[Seen]) -> None:
        """Take in what pokes saw, each range its own."""
        self._chunk = max(self._few, min(2 * number_of(seen), _MOST_AT_ONCE))
        if not self._owners:
            self._take_of(self._shares[0], seen)
            return
        by_share: dict[Share, list[Seen]] = {}
        for each in seen:
            # the pokes of one value were handed over together, and so are of one range
            group_id = each.ids[0] if isinstance(each, NotLanded) else each.group.id
            by_share.setdefault(self._owners[group_id], []).append(each)
        for share, own in by_share.items():
            self._take_of(share, own)

    @staticmethod
    def _take_of(share: Share, seen: Sequence[Seen]) -> None:
        if share.budgeted is not None:
            share.budgeted.ended(
                i for each in seen for i in (each.ids if isinstance(each, NotLanded) else [each.group.id])
            )
        reports.take(share.run, seen)


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
