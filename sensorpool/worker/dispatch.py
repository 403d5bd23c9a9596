"""The step that pokes: groups go to the lanes class by class, and reports are taken and settled until none is left."""

import time
from collections.abc import Iterator
from itertools import islice

from sensorpool.model.not_landed import number_of
from sensorpool.model.suspicion import Suspicion
from sensorpool.poke.poker import Poking
from sensorpool.poke.unit import PokeUnit
from sensorpool.settle.flush import GROUPS
from sensorpool.worker import reports, set_apart
from sensorpool.worker.job_run import JobRun

FLUSH_EVERY = 0.1  # seconds
_WAITS = (0.001, 0.05)  # seconds between two looks at the lanes: the first, and the longest
_MOST_AT_ONCE = 5_000  # groups of a class that are handed over in one go
_LONG = 1.0  # seconds: a job does not wait longer for pokes that have begun


def poke(run: JobRun, units: list[PokeUnit]) -> list[int]:
    """Poke groups and settle what they saw; return the ids of those that there was no time for.

    Pokes that take longer than their job go on by themselves.

    :raises Unreachable: when the database or Redis does not answer.
    """
    if not units:
        reports.settle(run)  # the step before may have left facts
        return []
    worker = run.worker
    worker.watchdog.guard()
    poking = worker.poker.begin()
    try:
        return _poke_in_turn(run, poking, units)
    except BaseException:
        poking.withdraw()
        raise
    finally:
        if slow := list(poking.outstanding):
            run.result.extra["slow"] = len(slow)
            run.held.suspects.update(dict.fromkeys(slow, Suspicion.SLOW))
            worker.slow_pokes.adopt(run.shard_range, poking, run.infra, run.moment.now)
        else:
            poking.end()
            worker.watchdog.rest()


def _poke_in_turn(run: JobRun, poking: Poking, units: list[PokeUnit]) -> list[int]:
    settings, lease, outcomes = run.settings, run.lease, run.outcomes
    chunk, wait = 2 * settings.poke_concurrency, _WAITS[0]
    lines = _line_up(units)
    flushed_at, renewed_at = time.monotonic(), run.began
    # counted from here on: some groups are poked however long the load took
    stop_at, patience = flushed_at + settings.job_span, min(_LONG, settings.tick / 2)
    step = run.worker.watchdog.job.step
    while lines or poking.outstanding:
        step()
        here = time.monotonic()
        if here - renewed_at >= settings.heartbeat:
            renewed_at = here
            lease.extend()
        if not lease.is_ours() or here > stop_at:
            break
        if lines:
            _hand_over(run, poking, lines, chunk)
        seen = poking.step()
        reports.take(run, seen)
        chunk = max(2 * settings.poke_concurrency, min(2 * number_of(seen), _MOST_AT_ONCE))
        if outcomes.facts and (here - flushed_at >= FLUSH_EVERY or len(outcomes.facts) >= GROUPS):
            reports.settle(run)
            flushed_at = time.monotonic()
        if not seen and poking.is_held_up(patience):
            break
        wait = _WAITS[0] if seen else min(wait * 1.5, _WAITS[1])
        if poking.outstanding:
            time.sleep(wait)
    left = poking.withdraw() + [unit for line in lines.values() for unit in line]
    reports.take(run, poking.step())  # what has ended since the last look is not slow
    reports.settle(run)
    return set_apart.stuck(run, poking, left)


def _hand_over(run: JobRun, poking: Poking, lines: dict[str, Iterator[PokeUnit]], chunk: int) -> None:
    """Note which groups are about to be poked, then hand them to the lanes: as many as keep the slots of a class busy.

    :raises Unreachable: when Redis does not answer; then no group is handed over.
    """
    units: list[PokeUnit] = []
    for op_classpath, line in list(lines.items()):
        if poking.wants_more(op_classpath):
            some = list(islice(line, chunk))
            units += some
            if len(some) < chunk:
                del lines[op_classpath]
    if units:
        group_ids = [unit.group.id for unit in units]
        run.lease.put_in_flight([*poking.outstanding, *group_ids])
        poking.put(units, group_ids)


def _line_up(units: list[PokeUnit]) -> dict[str, Iterator[PokeUnit]]:
    """Line groups up by class, so that a slow class does not stand in the way of the others."""
    lines: dict[str, list[PokeUnit]] = {}
    for unit in units:
        try:
            lines[unit.op_classpath].append(unit)
        except KeyError:
            lines[unit.op_classpath] = [unit]
    return {op_classpath: iter(line) for op_classpath, line in lines.items()}
