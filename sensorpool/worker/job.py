"""One job: the steps of its rounds in order. Acquire, load, set suspects apart, poke and settle, finish.

Each step is a function that gets what the steps before it have made: a round is a value (`job_run.JobRun`) once its
load is done. What pokes saw is judged in `outcomes`; what is left to other processes is kept in `stranded`.
"""

import time
from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import Connection

from sensorpool.errors import Unreachable
from sensorpool.instrumentation import spans
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.dirty_flags import asked_for
from sensorpool.leases.lease import Acquired, Again, Ending
from sensorpool.leases.range_marks import NO_MARKS
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.wake_ups import GAP
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.unsettled import from_registration
from sensorpool.model.values import NOTHING_TOLD, JobResult, Milliseconds, ShardRange
from sensorpool.settle.infra_window import RangeFailures, moved, outage
from sensorpool.store import loading
from sensorpool.worker import dispatch, load, passing_on, quiet, set_apart
from sensorpool.worker.adaptive import Adaptive, Look
from sensorpool.worker.context import Worker
from sensorpool.worker.dispatch import Share
from sensorpool.worker.job_run import JobRun, Visit
from sensorpool.worker.load import Loaded, Moment
from sensorpool.worker.outcomes import Outcomes
from sensorpool.worker.stranded import Stranded, forget_poked_apart

log = logger(__name__)


def run(worker: Worker, shard_range: ShardRange, token: str) -> JobResult:
    """Do the job of one range: see `run_each`."""
    return run_each(worker, [shard_range], token)[0]


def run_each(worker: Worker, ranges: Sequence[ShardRange], token: str) -> list[JobResult]:
    """Do one job for ranges, each step for all of them, and once more for those that were woken meanwhile.

    Each range has a lease and a state of its own, so another holder may have some of them.

    :param token: names this job; another holder sees it.
    :raises Unreachable: when the database or Redis does not answer. What was poked and not settled is due again.
    """
    with spans.span("job", range=" ".join(map(str, ranges))) as span:
        results = _run(worker, ranges, token)
        groups, poked = (sum(values) for values in zip(*((each.groups, each.poked) for each in results), strict=True))
        span.set_attributes({"sensorpool.groups": groups, "sensorpool.poked": poked})
        return results


def _run(worker: Worker, ranges: Sequence[ShardRange], token: str) -> list[JobResult]:
    worker.goes_by(token)
    results = {shard_range: JobResult() for shard_range in ranges}
    visits: list[Visit] = []
    for shard_range, held in zip(ranges, _acquire(worker, ranges, token), strict=True):
        if isinstance(held, str):
            results[shard_range].skipped = f"held by {held}"
        else:
            visits.append(Visit(shard_range, held, results[shard_range]))
    try:
        failpoint("lease.after")
        worker.away.look()
        worker.wrong_calls.exchange()
        # other ranges want the process too: what is new after that is poked in the next tick
        ends = time.monotonic() + worker.settings.job_span
        while visits:
            visits = _round(worker, visits, ends)
    except BaseException as error:
        for visit in visits:
            _give_back(worker, visit.held, error)
        raise
    worker.metrics.shared(worker.poker.shared_calls.taken())
    for result in results.values():
        worker.metrics.job(result)
    return [*results.values()]


def _acquire(worker: Worker, ranges: Sequence[ShardRange], token: str) -> list[Acquired | str]:
    try:
        return worker.leases.acquire_each(ranges, token)
    except Unreachable:
        with suppress(Unreachable):  # Redis may have given some of the leases, and its answer be lost
            for shard_range in ranges:
                worker.leases.free(shard_range, token)
        raise


def _give_back(worker: Worker, held: Acquired, error: BaseException) -> None:
    """Give a lease back after an error."""
    with suppress(Unreachable):
        worker.leases.poked_apart.keep(held.lease.shard_range, held.poked_apart)
        if held.late:  # whether they were poked is not known
            worker.leases.dirty_flags.keep(held.lease.shard_range, held.late)
    if worker.is_struck(error) or held.in_flight:  # what a dead holder had in flight is not suspect yet
        held.lease.give_up()
    else:
        held.lease.release()


def _round(worker: Worker, visits: Sequence[Visit], ends: float) -> list[Visit]:
    """Do one round; return the ranges that take another one: they became dirty meanwhile, and are held still.

    :param ends: when no further round is begun, by the monotonic clock.
    """
    began = time.monotonic()
    lost_turns = [_before_load(worker, visit) for visit in visits]
    moment, loads = _load(worker, visits)
    if any(loads):
        failpoint("load.after")
    again: list[Visit] = []
    shares: list[tuple[Share, set[int]]] = []
    due = 0
    for visit, lost_turn, loaded in zip(visits, lost_turns, loads, strict=True):
        if loaded is None:
            again += _pass_on_idle(worker, visit, ends)
            continue
        if shares and due + len(loaded.units) > quiet.MOST_TOGETHER:
            _send_on(worker, visit)
            continue
        due += len(loaded.units)
        job_run = _begin(worker, visit, began, len(visits), moment, loaded)
        suspects = set_apart.suspects(job_run)
        if not worker.suspects.is_retired:  # or they have lost their turn once more
            worker.leases.suspects.mark_each(visit.shard_range, lost_turn)
        shares.append((Share(job_run, suspects.others, waiting=suspects.waiting), suspects.apart))
    with spans.span("poke", groups=due):
        dispatch.poke([share for share, _ in shares])
    return again + _finish(worker, [(share, apart) for share, apart in shares if _is_ours(share.run)], ends)


def _is_ours(job_run: JobRun) -> bool:
    if job_run.lease.is_ours():
        return True
    log.warning("the lease was lost; groups that were not poked are due again", shard_range=str(job_run.shard_range))
    job_run.result.extra["lost_lease"] = True
    return False


def _send_on(worker: Worker, visit: Visit) -> None:
    """Have another job serve a range: there is too much for one."""
    worker.leases.dirty_flags.put_up(visit.shard_range, visit.held.late)
    worker.leases.poked_apart.keep(visit.shard_range, visit.held.poked_apart)
    visit.held.lease.give_up()
    worker.outbox.nudge(visit.shard_range)
    visit.result.count("sent_on", 1)


# before the load


def _before_load(worker: Worker, visit: Visit) -> dict[int, Suspicion]:
    """Bring what is known of a range up to date; return the suspects that lost their turn."""
    shard_range, held, _ = visit
    _forget_other_tables(worker, shard_range, held)
    lost_turn = _take_lost_turns(held)
    if held.state.stranded:
        held.poked_apart = worker.leases.poked_apart.take(shard_range)
        forget_poked_apart(held.state, held.poked_apart)
    return lost_turn


def _forget_other_tables(worker: Worker, shard_range: ShardRange, held: Acquired) -> None:
    """Forget what is known of the groups of a range if the tables were made anew: their ids mean others now."""
    found, pool_id = held.state.pool, worker.pool_id
    if not found or found == pool_id.get() or pool_id.look_again() in {found, None}:
        return
    log.warning("Redis has the state of a range of other tables; the state is dropped", shard_range=str(shard_range))
    held.state, held.in_flight, held.suspects, held.lost_turn = RangeState(), [], {}, []
    held.unsettled, held.told = {}, NOTHING_TOLD
    worker.leases.forget_groups(shard_range)


def _take_lost_turns(held: Acquired) -> dict[int, Suspicion]:
    """Have the suspects that lost their turn be due whatever the time; return them, each with why it is one."""
    lost = {group_id: held.suspects[group_id] for group_id in held.lost_turn}
    held.state.left += lost
    return lost


# load


def _load(worker: Worker, visits: Sequence[Visit]) -> tuple[Moment, list[Loaded | None]]:
    """Ask for the time, and for what is due in each range; None for a range whose message is a repeated one."""

    def ask(connection: Connection) -> tuple[Moment, list[Loaded | None]]:
        now = worker.database.now(connection)
        moment = Moment(now, time.monotonic(), worker.clock.trusts(now))
        held = {shard_range: held for shard_range, held, _ in visits if not _is_idle(worker, held, now)}
        if not held:
            return moment, [None] * len(visits)
        loads = load.load_each(connection, worker.poker.cache, held, worker.last_loads, now, worker.settings)
        loaded = dict(zip(held, loads, strict=True))
        return moment, [loaded.get(shard_range) for shard_range, _, _ in visits]

    with spans.span("load"), worker.keeper.keeping(*(visit.held.lease for visit in visits)):
        return worker.database.read(ask)


def _is_idle(worker: Worker, held: Acquired, now: Milliseconds) -> bool:
    """Whether this is a repeated message: the range was looked at less than half a tick ago, and nothing is new."""
    state = held.state
    new = held.dirty or held.late or held.in_flight or (worker.budgets and state.left)
    if new or not 0 <= now - state.last < worker.settings.tick_ms // 2:
        return False
    return not state.stranded or len(worker.poker.cache.not_here(state.stranded)) == len(state.stranded)


def _pass_on_idle(worker: Worker, visit: Visit, ends: float) -> list[Visit]:
    """Leave the range as it is, unless it is dirty; another process may poke the groups that are stranded."""
    shard_range, held, _ = visit
    span = passing_on.again(held.state, worker.settings.tick)
    again = held.lease.finish(held.state, again=time.monotonic() < ends)
    worker.pass_on(shard_range, span)
    return [_once_more(visit, again)] if again else []


def _once_more(visit: Visit, again: Again) -> Visit:
    """Make a range ready for another round."""
    held = visit.held
    held.in_flight, held.lost_turn, held.dirty, held.late, held.poked_apart = [], [], True, again.late, {}
    return visit


def _begin(worker: Worker, visit: Visit, began: float, ranges: int, moment: Moment, loaded: Loaded) -> JobRun:
    """Make the value that the later steps work on."""
    shard_range, held, result = visit
    settings = worker.settings
    if worker.adaptive is not None:
        _pass_over(worker, worker.adaptive, visit, loaded)
    window, state = settings.infra_failure_window, held.state
    infra = RangeFailures(window, state.infra, held.told, held.suspects)
    _allow_for_outage(worker, shard_range, held, loaded, infra)
    if held.unsettled:
        held.unsettled = from_registration(held.unsettled, [unit.group for unit in loaded.units])
    result.groups += len(loaded.units)
    stranded = Stranded(held.state, settings, trusted=moment.trusted)
    limit = settings.overrun_limit
    outcomes = Outcomes(moment, result, infra, stranded, held.unsettled, overrun_limit=limit)
    return JobRun(worker, shard_range, held, result, began, ranges, moment, loaded, infra, stranded, outcomes)


def _pass_over(worker: Worker, adaptive: Adaptive, visit: Visit, loaded: Loaded) -> None:
    """Take those groups out of a load whose condition never landed so early.

    One that fails is poked as declared: a window of failures is over after so many pokes, and not after two.
    """
    before, held = len(loaded.units), visit.held
    new_since = loaded.last - worker.settings.commit_overlap_ms
    wanted = {*held.state.left, *map(abs, held.late), *held.state.infra, *held.told.failing, *held.unsettled}
    loaded.units = adaptive.sift(loaded.units, Look(loaded.last, loaded.now, new_since, wanted))
    if passed_over := before - len(loaded.units):
        visit.result.count("sparse", passed_over)
        worker.metrics.sparse(passed_over)


def _allow_for_outage(
    worker: Worker, shard_range: ShardRange, held: Acquired, loaded: Loaded, infra: RangeFailures
) -> None:
    """Have no window count the time in which no job worked on the range."""
    state, known, now = held.state, held.unsettled, loaded.now
    if not (infra.since or state.stranded or known):
        return
    by = outage(loaded.last, now, worker.settings.lease_ttl, worker.settings.tick)
    state.resumed = now if by else min(state.resumed, now)
    if not by:
        return
    infra.move(by, now)
    state.stranded = {group_id: moved(since, by, now) for group_id, since in state.stranded.items()}
    if known:  # pokes outside of jobs read them too
        held.unsettled = {group_id: each._replace(since=moved(each.since, by, now)) for group_id, each in known.items()}
        worker.leases.unsettled.keep(shard_range, held.unsettled)


# finish


def _finish(worker: Worker, shares: Sequence[tuple[Share, set[int]]], ends: float) -> list[Visit]:
    """Leave the ranges to the next holders; return those that are kept for another round.

    :param shares: with the ids of the groups that are poked outside of the job.
    """
    if not shares:
        return []
    spans_on: list[float | None] = []
    for share, apart in shares:
        spans_on.append(_leave(share.run, share.left, share.waiting, apart))
    failpoint("finish.before")
    endings = [
        Ending(
            share.run.lease,
            share.run.held.state,
            NO_MARKS if apart else quiet.outlook(share.run),
            share.run.outcomes.record.texts(),
            share.run.infra.taken,
        )
        for share, apart in shares
    ]
    again = worker.leases.finish(endings, again=time.monotonic() < ends)
    for share, _ in shares:
        share.run.held.told = NOTHING_TOLD  # the state has it
    failpoint("finish.after")
    for (share, _), span in zip(shares, spans_on, strict=True):
        worker.pass_on(share.run.shard_range, span)
        if asked_for(share.run.held.late):  # others that were woken meanwhile sent no job
            worker.look_for_woken(share.run.shard_range, GAP)
        if share.again_in is not None:
            worker.look_again(share.run.shard_range, share.again_in)
    worker.tell_what_is_not_here(shares[0][0].run.loaded.now)
    kept = [(share.run, more) for (share, _), more in zip(shares, again, strict=True) if more is not None]
    return [_once_more(Visit(run.shard_range, run.held, run.result), more) for run, more in kept]


def _leave(job_run: JobRun, no_time: list[int], waiting: list[int], apart: set[int]) -> float | None:
    """Note in the state what the next holder has to know; return in how many seconds the range is passed on, if so.

    :param no_time: groups that there was no time for.
    :param waiting: groups that wait for their backend; they are left over too, and never overdue.
    :param apart: groups that are poked outside of the job.
    """
    worker, shard_range, outcomes, loaded = job_run.worker, job_run.shard_range, job_run.outcomes, job_run.loaded
    state, result = job_run.held.state, job_run.result
    left = no_time + waiting
    span = job_run.stranded.hand_over(loaded.not_here, apart.union(left))
    if left or state.left_since:
        may_wait = set(waiting)
        units = [unit for unit in loaded.units if unit.group.id not in may_wait] if may_wait else loaded.units
        left = state.in_turn(left, {unit.group.id: unit.group.poke_interval for unit in units}, loaded.now)
    looked_at, state.quiet_until = state.looked_at, 0
    state.last, state.recent, state.left = loaded.now, loaded.recent, left
    if state.stranded:
        state.left = [*left, *state.stranded.keys() - set(left)]
    _forget_failures_of_the_gone(job_run)
    state.infra = job_run.infra.since
    _note_figures(job_run, looked_at)
    result.left += len(no_time)
    if outcomes.written:
        worker.leases.unsettled.keep(shard_range, {}, outcomes.written)
    if not left:  # should Redis forget them, they are due again by an older load
        worker.last_loads.remember(shard_range, loaded.now)
    return span


def _forget_failures_of_the_gone(job_run: JobRun) -> None:
    """Forget the failures of groups that are gone. One that is there is poked again, however long its interval."""
    worker, infra, now = job_run.worker, job_run.infra, job_run.moment.now
    if not (failing := infra.may_be_gone(now)):
        return
    try:
        there = worker.database.read(loading.there, failing)
    except Unreachable:
        return
    infra.forget(set(failing) - there)


def _note_figures(job_run: JobRun, looked_at: Milliseconds) -> None:
    """Note what the round did, for operators: who did it, how much, how late, and how long it took.

    :param looked_at: until when the range was looked at before, or quiet.
    """
    worker, outcomes, loaded = job_run.worker, job_run.outcomes, job_run.loaded
    state, result = job_run.held.state, job_run.result
    took = (time.monotonic() - job_run.began) / job_run.ranges
    late = max(0, loaded.now - max(loaded.last, looked_at) - worker.settings.tick_ms) if loaded.last else 0
    poking_took = round((outcomes.last_began - job_run.moment.monotonic) * 1000) if outcomes.last_began else 0
    state.pool = worker.pool_id.get() or ""
    state.holder, state.groups, state.pokes = job_run.lease.token, len(loaded.units), len(outcomes.record)
    state.lag_ms, state.seconds = late + poking_took, round(took, 3)
    result.seconds += took
    result.lag_seconds = max(result.lag_seconds, state.lag_ms / 1000)
