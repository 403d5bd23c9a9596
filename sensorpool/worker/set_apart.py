"""The step that sets suspects apart: they are handed to the lanes of `worker.suspects`, and their job does not wait."""

import time
from typing import NamedTuple

from sensorpool.errors import ClassUnavailable
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.dirty_flags import at_once
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import DueGroup, Report
from sensorpool.poke.poking import Poking
from sensorpool.poke.unit import PokeUnit
from sensorpool.worker import reports
from sensorpool.worker.budgeted import charge
from sensorpool.worker.job_run import JobRun

_STUCK = 0.25  # of a poke's time limit: a class of which no poke has come back for so long hangs

log = logger(__name__)


class Suspects(NamedTuple):
    """The due groups, parted.

    :param others: the groups that are poked in the job.
    :param apart: ids of the suspects that were handed over.
    :param waiting: ids of those that are to be poked once their backend answers again.
    """

    others: list[PokeUnit]
    apart: set[int]
    waiting: list[int]


def suspects(run: JobRun) -> Suspects:
    """Hand the suspects among the due groups over, and part them from the other groups.

    :raises Unreachable: when the database or Redis does not answer.
    """
    units, known = run.loaded.units, run.held.suspects
    _suspect_in_flight(run)
    known.update(run.worker.suspects.mark_again(run.shard_range, known, run.moment.now))
    if not known and not run.worker.poker.cache.crashed:
        return Suspects(units, set(), [])
    found = {unit.group: known.get(unit.group.id) for unit in units if unit.group.crashes or unit.group.id in known}
    if not found:
        return Suspects(units, set(), [])
    group_ids = {group.id for group in found}
    _leave_to_others(run, found, [unit for unit in units if unit.group.id in group_ids])
    waiting = _sift(run, found, units) if run.worker.away else []
    run.tell_failures([group.id for group in found])
    with run.worker.keeper.keeping(run.lease):
        busy = run.worker.suspects.offer(run.shard_range, found, run.held.state.stranded, due=run.moment.now)
    if busy:
        run.result.count("busy", len(busy))
        run.worker.away.forget(busy)
        if woken := {at_once(group_id) for group_id in busy} & set(run.held.late):
            run.worker.leases.dirty_flags.keep(run.shard_range, woken)  # their poke may have looked too early
    if run.worker.budgets:
        poked = [unit for unit in units if unit.group in found and unit.group.id not in busy]
        charge(run.worker.budgets, run.worker.budgets_left, str(run.shard_range), poked)
    others = [unit for unit in units if unit.group.id not in group_ids]
    return Suspects(others, {group.id for group in found}, waiting)


def stuck(run: JobRun, poking: Poking, left: list[PokeUnit]) -> list[int]:
    """Hand the groups over whose class hangs: in its slots they would wait for a long time. Return the other ids.

    :param left: groups that were not poked for want of time.
    :raises Unreachable: when the database or Redis does not answer.
    """
    patience = run.settings.poke_timeout * _STUCK
    hanging = {name for name in {unit.op_classpath for unit in left} if poking.is_stuck(name, patience)}
    if not hanging or not run.lease.is_ours():
        return [unit.group.id for unit in left]
    groups = [unit.group for unit in left if unit.op_classpath in hanging]
    log.warning("a class hangs; its groups are poked apart", op_classpath=min(hanging), groups=len(groups))
    run.suspect([group.id for group in groups], Suspicion.CLASS_HANGS)
    why = dict.fromkeys(groups, Suspicion.CLASS_HANGS)
    run.tell_failures([group.id for group in groups])
    run.worker.suspects.offer(run.shard_range, why, due=run.moment.now)
    run.result.count("apart", len(groups))
    return [unit.group.id for unit in left if unit.op_classpath not in hanging]


def _suspect_in_flight(run: JobRun) -> None:
    """Give each group that a dead holder had in flight a strike; one that is poked alone has had more."""
    in_flight, known = run.held.in_flight, run.held.suspects
    if not in_flight:
        return
    log.warning("a holder died; the groups in its hands are poked apart", groups=len(in_flight))
    group_ids = [group_id for group_id in in_flight if known.get(group_id) is not Suspicion.CRASHED]
    run.suspect(group_ids, Suspicion.DEAD_HOLDER)
    run.held.in_flight = []


def _sift(run: JobRun, found: dict[DueGroup, Suspicion | None], units: list[PokeUnit]) -> list[int]:
    """Take the groups out of the suspects that hang because their backend is away, but for those that ask it.

    A backend that is named by its class does not go away where its groups hang: these are poked apart.

    :returns: ids of the groups to be poked once it answers again.
    :raises Unreachable: when Redis does not answer.
    """
    hanging = [
        unit
        for unit in units
        if (why := found.get(unit.group)) is not None
        and why.hangs
        and unit.backend != unit.op_classpath
        and not run.worker.suspects.has(unit.group.id)
    ]
    sifted = run.sift(hanging)
    wait = {unit.group.id for unit in hanging} - {unit.group.id for unit in sifted.units}
    for group in [each for each in found if each.id in wait]:
        del found[group]
    return sifted.left


def _leave_to_others(run: JobRun, found: dict[DueGroup, Suspicion | None], units: list[PokeUnit]) -> None:
    """Take the groups out of the suspects that this process cannot poke: no child of it could either."""
    refused: list[Report] = []
    tools = run.worker.poker.tools
    for unit in units:
        seen_apart = run.worker.outside.not_here.pop(unit.group.id, None)
        if seen_apart is not None:
            unit.put_off(seen_apart)
            tools.classes.note(unit.op_classpath, unit.why_not() or seen_apart)
        if (why := unit.why_not()) is not None:
            del found[unit.group]
            refused.append(tools.answers.of_exception(unit.group, time.monotonic(), ClassUnavailable(why)))
    reports.take(run, refused)
