"""One job: the steps of its rounds in order. Acquire, load, set suspects apart, poke and settle, finish.

Each step is a function that gets what the steps before it have made: a round is a value (`job_run.JobRun`) once its
load is done. What pokes saw is judged in `outcomes`; what is left to other processes is kept in `stranded`.
"""

import time
from functools import partial

from sqlalchemy import Connection

from sensorpool.errors import Unreachable
from sensorpool.instrumentation import spans
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Acquired, Again
from sensorpool.leases.range_marks import NO_MARKS
from sensorpool.leases.range_state import RangeState
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.unsettled import from_registration
from sensorpool.model.values import JobResult, Milliseconds, ShardRange
from sensorpool.settle.infra_window import RangeFailures, moved, outage
from sensorpool.store import loading
from sensorpool.worker import dispatch, passing_on, quiet, set_apart
from sensorpool.worker.context import Worker
from sensorpool.worker.job_run import JobRun
from sensorpool.worker.load import JobTime, Loaded, Moment, load
from sensorpool.worker.outcomes import Outcomes
from sensorpool.worker.stranded import Stranded, forget_poked_apart

log = logger(__name__)


def run(worker: Worker, shard_range: ShardRange, token: str, job_time: JobTime | None = None) -> JobResult:
    """Do the job of one range, and once more for as long as registrations open new groups meanwhile.

    :param token: names this job; another holder sees it.
    :param job_time: the time of a job that serves further ranges.
    :raises Unreachable: when the database or Redis does not answer. What was poked and not settled is due again.
    """
    with spans.span("job", range=str(shard_range)) as span:
        result = _run(worker, shard_range, token, job_time)
        span.set_attributes({"sensorpool.groups": result.groups, "sensorpool.poked": result.poked})
        return result


def _run(worker: Worker, shard_range: ShardRange, token: str, job_time: JobTime | None) -> JobResult:
    worker.goes_by(token)
    held = worker.leases.acquire(shard_range, token)
    result = JobResult()
    if isinstance(held, str):
        result.skipped = f"held by {held}"
        worker.metrics.job(result)
        return result
    try:
        failpoint("lease.after")
        # other ranges want the process too: what is new after that is poked in the next tick
        ends = time.monotonic() + worker.settings.job_span
        while again := _round(worker, shard_range, held, result, ends, job_time):
            held.in_flight, held.lost_turn, held.dirty, held.late = [], [], True, again.late
    except BaseException as error:
        if worker.is_struck(error) or held.in_flight:  # what a dead holder had in flight is not suspect yet
            held.lease.give_up()
        else:
            held.lease.release()
        raise
    worker.metrics.job(result)
    return result


def _round(
    worker: Worker,
    shard_range: ShardRange,
    held: Acquired,
    result: JobResult,
    ends: float,
    job_time: JobTime | None,
) -> Again | None:
    """Do one round; return what it takes to do another one, if the range became dirty meanwhile and is held still.

    :param ends: when no further round is begun, by the monotonic clock.
    """
    began = time.monotonic()
    _forget_other_tables(worker, shard_range, held)
    lost_turn = _take_lost_turns(held)
    if held.state.stranded:
        forget_poked_apart(held.state, worker.leases.poked_apart.take(shard_range))
    found = _load(worker, shard_range, held, job_time)
    if found is None:
        return _pass_on_idle(worker, shard_range, held, ends)
    failpoint("load.after")
    job_run = _begin(worker, shard_range, held, result, began, *found)
    ordinary, apart = set_apart.suspects(job_run)
    if not worker.suspects.is_retired:  # or they have lost their turn once more
        worker.leases.suspects.mark_each(shard_range, lost_turn)
    with spans.span("poke", groups=len(ordinary)):
        left = dispatch.poke(job_run, ordinary)
    if not held.lease.is_ours():
        log.warning("the lease was lost; groups that were not poked are due again", shard_range=str(shard_range))
        result.extra["lost_lease"] = True
        return None
    return _finish(job_run, left, apart, ends)


# before the load


def _forget_other_tables(worker: Worker, shard_range: ShardRange, held: Acquired) -> None:
    """Forget what is known of the groups of a range if the tables were made anew: their ids mean others now."""
    found, pool_id = held.state.pool, worker.pool_id
    if not found or found == pool_id.get() or pool_id.look_again() in {found, None}:
        return
    log.warning("Redis has the state of a range of other tables; the state is dropped", shard_range=str(shard_range))
    held.state, held.in_flight, held.suspects, held.lost_turn, held.unsettled = RangeState(), [], {}, [], {}
    worker.leases.forget_groups(shard_range)


def _take_lost_turns(held: Acquired) -> dict[int, Suspicion]:
    """Have the suspects that lost their turn be due whatever the time; return them, each with why it is one."""
    lost = {group_id: held.suspects[group_id] for group_id in held.lost_turn}
    held.state.left += lost
    return lost


# load


def _load(
    worker: Worker, shard_range: ShardRange, held: Acquired, job_time: JobTime | None
) -> tuple[Moment, Loaded] | None:
    """Ask for the time, and for what is due; None if this is a repeated message."""

    def ask_time(connection: Connection) -> Moment:
        now = worker.database.now(connection)
        return Moment(now, time.monotonic(), worker.clock.trusts(now))

    def ask(connection: Connection) -> tuple[Moment, Loaded] | None:
        moment = (job_time or JobTime()).moment(partial(ask_time, connection))
        if _is_idle(worker, held, moment.now):
            return None
        cache, last_loads = worker.poker.cache, worker.last_loads
        return moment, load(connection, cache, shard_range, held, last_loads, moment.now, worker.settings)

    with spans.span("load"), worker.keeper.keeping(held.lease):
        return worker.database.read(ask)


def _is_idle(worker: Worker, held: Acquired, now: Milliseconds) -> bool:
    """Whether this is a repeated message: the range was looked at less than half a tick ago, and nothing is new."""
    state = held.state
    new = held.dirty or held.late or held.in_flight
    if new or not 0 <= now - state.last < worker.settings.tick_ms // 2:
        return False
    return not state.stranded or len(worker.poker.cache.not_here(state.stranded)) == len(state.stranded)


def _pass_on_idle(worker: Worker, shard_range: ShardRange, held: Acquired, ends: float) -> Again | None:
    """Leave the range as it is; another process may poke the groups that are stranded."""
    span = passing_on.again(held.state, worker.settings.tick)
    again = held.lease.finish(held.state, again=time.monotonic() < ends)
    worker.pass_on(shard_range, span)
    return again


def _begin(
    worker: Worker,
    shard_range: ShardRange,
    held: Acquired,
    result: JobResult,
    began: float,
    moment: Moment,
    loaded: Loaded,
) -> JobRun:
    """Make the value that the later steps work on."""
    settings = worker.settings
    infra = worker.infra.of_range(held.state.infra)
    _allow_for_outage(worker, shard_range, held, loaded, infra)
    if held.unsettled:
        held.unsettled = from_registration(held.unsettled, [unit.group for unit in loaded.units])
    result.groups += len(loaded.units)
    stranded = Stranded(held.state, settings, trusted=moment.trusted)
    limit, process = settings.overrun_limit, worker.process
    outcomes = Outcomes(moment, result, infra, stranded, held.unsettled, overrun_limit=limit, process=process)
    return JobRun(worker, shard_range, held, result, began, moment, loaded, infra, stranded, outcomes)


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


def _finish(job_run: JobRun, left: list[int], apart: set[int], ends: float) -> Again | None:
    """Leave the range to the next holder.

    :param left: groups that there was no time for.
    :param apart: groups that are poked outside of the job.
    """
    worker, shard_range, outcomes, loaded = job_run.worker, job_run.shard_range, job_run.outcomes, job_run.loaded
    state, result = job_run.held.state, job_run.result
    span = job_run.stranded.hand_over(loaded.not_here, apart.union(left))
    if left or state.left_since:
        left = state.in_turn(left, {unit.group.id: unit.group.poke_interval for unit in loaded.units}, loaded.now)
    looked_at, state.quiet_until = state.looked_at, 0
    state.last, state.recent, state.left = loaded.now, loaded.recent, left
    if state.stranded:
        state.left = [*left, *state.stranded.keys() - set(left)]
    _forget_failures_of_the_gone(job_run)
    state.infra = job_run.infra.since
    _note_figures(job_run, looked_at)
    result.left += len(left)
    if len(outcomes.record):
        worker.leases.poke_log.keep(shard_range, outcomes.record.texts(), loaded.now)
    if outcomes.written:
        worker.leases.unsettled.keep(shard_range, {}, outcomes.written)
    if not left:  # should Redis forget them, they are due again by an older load
        worker.last_loads.remember(shard_range, loaded.now)
    failpoint("finish.before")
    outlook = NO_MARKS if apart else quiet.outlook(job_run)
    again = job_run.lease.finish(state, again=time.monotonic() < ends, outlook=outlook)
    failpoint("finish.after")
    worker.pass_on(shard_range, span)
    worker.tell_what_is_not_here(loaded.now)
    return again


def _forget_failures_of_the_gone(job_run: JobRun) -> None:
    """Forget the failures of groups that are gone. One that is there is poked again, however long its interval."""
    worker, infra, now = job_run.worker, job_run.infra, job_run.moment.now
    worker.infra.forget_ended(now)
    if not (long_known := infra.long_known(now)):
        return
    try:
        there = worker.database.read(loading.there, long_known)
    except Unreachable:
        return
    infra.forget(set(long_known) - there)


def _note_figures(job_run: JobRun, looked_at: Milliseconds) -> None:
    """Note what the round did, for operators: who did it, how much, how late, and how long it took.

    :param looked_at: until when the range was looked at before, or quiet.
    """
    worker, outcomes, loaded = job_run.worker, job_run.outcomes, job_run.loaded
    state, result, took = job_run.held.state, job_run.result, time.monotonic() - job_run.began
    late = max(0, loaded.now - max(loaded.last, looked_at) - worker.settings.tick_ms) if loaded.last else 0
    poking_took = round((outcomes.last_began - job_run.moment.monotonic) * 1000) if outcomes.last_began else 0
    state.pool = worker.pool_id.get() or ""
    state.holder, state.groups, state.pokes = job_run.lease.token, len(loaded.units), len(outcomes.record)
    state.lag_ms, state.seconds = late + poking_took, round(took, 3)
    result.seconds += took
    result.lag_seconds = max(result.lag_seconds, state.lag_ms / 1000)
