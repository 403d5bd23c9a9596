"""One job: the steps of its rounds in order. Acquire, load, set suspects apart, poke and settle, finish.

Each step is a function that gets what the steps before it have made: a round is a value (`job_run.JobRun`) once its
load is done. What pokes saw is judged in `outcomes`; what is left to other processes is kept in `stranded`.
"""

import time
from contextlib import suppress

from sqlalchemy import Connection

from sensorpool.errors import Unreachable
from sensorpool.instrumentation import spans
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.dirty_flags import asked_for
from sensorpool.leases.lease import Acquired, Again
from sensorpool.leases.range_state import RangeState
from sensorpool.leases.wake_ups import GAP
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.unsettled import from_registration
from sensorpool.model.values import NOTHING_TOLD, JobResult, Milliseconds, ShardRange
from sensorpool.settle.infra_window import RangeFailures, moved, outage
from sensorpool.store import loading
from sensorpool.worker import dispatch, load, passing_on, set_apart
from sensorpool.worker.adaptive import Adaptive, Look
from sensorpool.worker.context import Worker
from sensorpool.worker.dispatch import Poked
from sensorpool.worker.job_run import JobRun, Visit
from sensorpool.worker.load import Loaded, Moment
from sensorpool.worker.outcomes import Outcomes
from sensorpool.worker.stranded import Stranded, forget_poked_apart

log = logger(__name__)


def run(worker: Worker, shard_range: ShardRange, token: str) -> JobResult:
    """Do the job of a range, and once more if the range was woken meanwhile.

    :param token: names this job; another holder sees it.
    :raises Unreachable: when the database or Redis does not answer. What was poked and not settled is due again.
    """
    with spans.span("job", range=str(shard_range)) as span:
        result = _run(worker, shard_range, token)
        span.set_attributes({"sensorpool.groups": result.groups, "sensorpool.poked": result.poked})
        return result


def _run(worker: Worker, shard_range: ShardRange, token: str) -> JobResult:
    worker.goes_by(token)
    held = _acquire(worker, shard_range, token)
    if isinstance(held, str):
        return JobResult(skipped=f"held by {held}")
    visit = Visit(shard_range, held, JobResult())
    try:
        failpoint("lease.after")
        worker.away.look()
        worker.wrong_calls.exchange()
        # other ranges want the process too: what is new after that is poked in the next tick
        ends = time.monotonic() + worker.settings.job_span
        while (again := _round(worker, visit, ends)) is not None:
            _make_ready(held, again)
    except BaseException as error:
        _give_back(worker, held, error)
        raise
    worker.metrics.shared(worker.poker.shared_calls.taken())
    worker.metrics.job(visit.result)
    return visit.result


def _acquire(worker: Worker, shard_range: ShardRange, token: str) -> Acquired | str:
    try:
        return worker.leases.acquire(shard_range, token)
    except Unreachable:
        with suppress(Unreachable):  # Redis may have given the lease, and its answer be lost
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


def _round(worker: Worker, visit: Visit, ends: float) -> Again | None:
    """Do one round; return `Again` if the range became dirty meanwhile, and is held still.

    :param ends: when no further round is begun, by the monotonic clock.
    """
    began = time.monotonic()
    lost_turn = _before_load(worker, visit)
    moment, loaded = _load(worker, visit)
    if loaded is None:
        return _pass_on_idle(worker, visit, ends)
    failpoint("load.after")
    job_run = _begin(worker, visit, began, moment, loaded)
    suspects = set_apart.suspects(job_run)
    if not worker.suspects.is_retired:  # or they have lost their turn once more
        worker.leases.suspects.mark_each(visit.shard_range, lost_turn)
    with spans.span("poke", groups=len(loaded.units)):
        poked = dispatch.poke(job_run, suspects.others)
    if not visit.held.lease.is_ours():
        log.warning("the lease was lost; groups that were not poked are due again", shard_range=str(visit.shard_range))
        visit.result.extra["lost_lease"] = True
        return None
    return _finish(job_run, poked, suspects, ends)


def _make_ready(held: Acquired, again: Again) -> None:
    """Make a range ready for another round."""
    held.in_flight, held.lost_turn, held.dirty, held.late, held.poked_apart = [], [], True, again.late, {}


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


def _load(worker: Worker, visit: Visit) -> tuple[Moment, Loaded | None]:
    """Ask for the time, and for what is due in the range; None for a range whose message is a repeated one."""
    shard_range, held, _ = visit

    def ask(connection: Connection) -> tuple[Moment, Loaded | None]:
        now = worker.database.now(connection)
        moment = Moment(now, time.monotonic(), worker.clock.trusts(now))
        if _is_idle(worker, held, now):
            return moment, None
        last = worker.last_loads.last(shard_range, held.state, now)
        return moment, load.load(connection, worker.poker.cache, shard_range, held, last, now, worker.settings)

    with spans.span("load"), worker.keeper.keeping(held.lease):
        return worker.database.read(ask)


def _is_idle(worker: Worker, held: Acquired, now: Milliseconds) -> bool:
    """Whether this is a repeated message: the range was looked at less than half a tick ago, and nothing is new."""
    state = held.state
    new = held.dirty or held.late or held.in_flight or (worker.budgets and state.left)
    if new or not 0 <= now - state.last < worker.settings.tick_ms // 2:
        return False
    return not state.stranded or len(worker.poker.cache.not_here(state.stranded)) == len(state.stranded)


def _pass_on_idle(worker: Worker, visit: Visit, ends: float) -> Again | None:
    """Leave the range as it is, unless it is dirty; another process may poke the groups that are stranded."""
    shard_range, held, _ = visit
    span = passing_on.again(held.state, worker.settings.tick)
    again = held.lease.finish(held.state, again=time.monotonic() < ends)
    worker.pass_on(shard_range, span)
    return again


def _begin(worker: Worker, visit: Visit, began: float, moment: Moment, loaded: Loaded) -> JobRun:
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
    return JobRun(worker, shard_range, held, result, began, moment, loaded, infra, stranded, outcomes)


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


def _finish(job_run: JobRun, poked: Poked, suspects: set_apart.Suspects, ends: float) -> Again | None:
    """Leave the range to the next holder; return `Again` if it is kept for another round."""
    worker, held = job_run.worker, job_run.held
    span = _leave(job_run, poked.left, suspects.waiting + poked.waiting, suspects.apart)
    failpoint("finish.before")
    again = held.lease.finish(
        held.state,
        again=time.monotonic() < ends,
        records=job_run.outcomes.record.texts(),
        taken=job_run.infra.taken,
    )
    held.told = NOTHING_TOLD  # the state has it
    failpoint("finish.after")
    worker.pass_on(job_run.shard_range, span)
    if asked_for(held.late):  # others that were woken meanwhile sent no job
        worker.look_for_woken(job_run.shard_range, GAP)
    if poked.again_in is not None:
        worker.look_again(job_run.shard_range, poked.again_in)
    worker.tell_what_is_not_here(job_run.loaded.now)
    return again


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
    state.last, state.recent, state.left = loaded.now, loaded.recent, left
    if state.stranded:
        state.left = [*left, *state.stranded.keys() - set(left)]
    _forget_failures_of_the_gone(job_run)
    state.infra = job_run.infra.since
    _note_figures(job_run)
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


def _note_figures(job_run: JobRun) -> None:
    """Note what the round did, for operators: who did it, how much, how late, and how long it took."""
    worker, outcomes, loaded = job_run.worker, job_run.outcomes, job_run.loaded
    state, result = job_run.held.state, job_run.result
    took = time.monotonic() - job_run.began
    late = max(0, loaded.now - loaded.last - worker.settings.tick_ms) if loaded.last else 0
    poking_took = round((outcomes.last_began - job_run.moment.monotonic) * 1000) if outcomes.last_began else 0
    state.pool = worker.pool_id.get() or ""
    state.holder, state.groups, state.pokes = job_run.lease.token, len(loaded.units), len(outcomes.record)
    state.lag_ms, state.seconds = late + poking_took, round(took, 3)
    result.seconds += took
    result.lag_seconds = max(result.lag_seconds, state.lag_ms / 1000)
