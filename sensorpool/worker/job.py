"""One job: the steps of its rounds in order. Acquire, load, part, poke and settle, finish."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation import spans
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Acquired, Leases
from sensorpool.leases.poke_log import Record
from sensorpool.leases.range_state import RangeState
from sensorpool.model.trouble import HEALTHY
from sensorpool.model.values import JobResult, Milliseconds, ShardRange
from sensorpool.poke.unit import PokeUnit
from sensorpool.settle.judge import outage
from sensorpool.store import troubles
from sensorpool.store.late_conditions import UsualLandings
from sensorpool.store.pool_id import PoolId
from sensorpool.worker import adaptive, dispatch, load
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.dispatch import LeftOver, Tools
from sensorpool.worker.finisher import Batch
from sensorpool.worker.later_jobs import LaterJobs
from sensorpool.worker.load import Loaded, Moment
from sensorpool.worker.metrics import Metrics

log = logger(__name__)


class _Parted(NamedTuple):
    """The due groups, parted.

    :param here: groups that are poked in the job.
    :param waiting: ids of groups that are poked once their backend answers again.
    """

    here: list[PokeUnit]
    waiting: list[int]


class Jobs:
    """Runs the jobs of one process. Safe to share between threads.

    :param is_struck: whether an error that ends a job is a signal that a poke may have sent.
    """

    def __init__(
        self,
        tools: Tools,
        leases: Leases,
        clock: ClockWatch,
        pool_id: PoolId,
        metrics: Metrics,
        later_jobs: LaterJobs,
        usual_landings: UsualLandings,
        is_struck: Callable[[BaseException], bool],
    ) -> None:
        self._tools = tools
        self._settings: Settings = tools.settings
        self._leases = leases
        self._clock = clock
        self._pool_id = pool_id
        self._metrics = metrics
        self._later_jobs = later_jobs
        self._usual_landings = usual_landings
        self._is_struck = is_struck

    def run(self, shard_range: ShardRange, token: str) -> JobResult:
        """Do the job of a range, and once more if the range was woken meanwhile.

        :param token: names this job; another holder sees it.
        :raises Unreachable: when the database or Redis does not answer. What was poked and not settled is due again.
        """
        with spans.span("job", range=str(shard_range)) as span:
            result = self._run(shard_range, token)
            self._metrics.job(result)
            span.set_attributes({"sensorpool.groups": result.groups, "sensorpool.poked": result.poked})
            return result

    def _run(self, shard_range: ShardRange, token: str) -> JobResult:
        held = self._acquire(shard_range, token)
        if isinstance(held, str):
            return JobResult(skipped=f"held by {held}")
        result = JobResult()
        try:
            failpoint("lease.after")
            self._tools.breakers.look()
            self._tools.background.start()
            # other ranges want the process too: what is new after that is poked in the next tick
            ends = time.monotonic() + self._settings.job_span
            while (again := self._round(held, result, ends)) is not None:
                held.dirty, held.woken, held.struck, held.background.again = True, again, [], []
        except BaseException as error:
            self._give_back(held, error)
            raise
        for op_classpath, number in self._tools.poker.shared_calls.taken().items():
            self._metrics.count("shared_calls", number, op_classpath)
        return result

    # acquire

    def _acquire(self, shard_range: ShardRange, token: str) -> Acquired | str:
        try:
            held = self._leases.acquire(shard_range, token)
        except Unreachable:
            with suppress(Unreachable):  # Redis may have given the lease, and its answer be lost
                self._leases.free(shard_range, token)
            raise
        if isinstance(held, Acquired):
            self._forget_other_tables(held)
        return held

    def _forget_other_tables(self, held: Acquired) -> None:
        """Forget what Redis knows of a range if the database was recreated; its ids now belong to other groups."""
        found, pool_id, shard_range = held.state.pool, self._pool_id, held.lease.shard_range
        if not found or found == pool_id.get() or pool_id.look_again() in {found, None}:
            return
        log.warning("Redis has the state of a range of another database; it is dropped", shard_range=str(shard_range))
        held.state, held.woken, held.struck, held.background.again = RangeState(), [], [], []
        held.background.busy.clear()
        self._leases.forget_groups(shard_range)

    def _give_back(self, held: Acquired, error: BaseException) -> None:
        """Give a lease back after an error."""
        with suppress(Unreachable):
            if held.woken:  # whether they were poked is not known
                self._leases.waking.keep(held.lease.shard_range, held.woken)
        if self._is_struck(error) or held.struck:  # these have no strike yet
            held.lease.give_up()
        else:
            held.lease.release()

    def _round(self, held: Acquired, result: JobResult, ends: float) -> list[int] | None:
        """Do one round; return which groups are to be poked at once if the range became dirty, and is held still.

        :param ends: when no further round is begun, by the monotonic clock.
        """
        began = time.monotonic()
        moment, loaded = self._load(held)
        if loaded is None:
            return held.lease.finish(held.state, again=time.monotonic() < ends)
        failpoint("load.after")
        result.groups += len(loaded.units)
        if self._settings.adaptive:
            self._pass_over(held, loaded, result)
        batch = Batch(held.lease.shard_range, moment, loaded.troubles, result, Record(moment.now))
        parted = self._part(held, batch, loaded.units)
        with spans.span("poke", groups=len(parted.here)):
            poked = dispatch.poke(self._tools, held, batch, parted.here)
        if not held.lease.is_ours():
            log.warning(
                "the lease was lost; groups that were not poked are due again", shard_range=str(batch.shard_range)
            )
            result.extra["lost_lease"] = True
            return None
        poked.waiting += parted.waiting
        self._leave(held, batch, loaded, poked, began)
        return self._finish(held, batch, poked, ends)

    # load

    def _load(self, held: Acquired) -> tuple[Moment, Loaded | None]:
        """Ask for the time, and for what is due in the range; None for a range whose message is a repeated one."""
        database, shard_range = self._tools.database, held.lease.shard_range

        def ask(connection: Connection) -> tuple[Moment, Loaded | None]:
            now = database.now(connection)
            moment = Moment(now, time.monotonic(), self._clock.trusts(now))
            if self._is_idle(held, now):
                return moment, None
            last = held.state.last if held.state.last <= now else 0  # one in the future counts as lost
            found = load.load(connection, self._tools.poker.cache, shard_range, held, last, now, self._settings)
            return moment, found

        with spans.span("load"):
            moment, loaded = database.read(ask)
            if loaded is not None and loaded.troubles:
                self._allow_for_outage(shard_range, loaded)
            return moment, loaded

    def _is_idle(self, held: Acquired, now: Milliseconds) -> bool:
        """Whether this is a repeated message: the range was looked at less than half a tick ago, and nothing is new."""
        new = held.dirty or held.woken or held.struck or held.background.again
        if new or (self._tools.budgets and held.state.left):
            return False
        return 0 <= now - held.state.last < self._settings.tick_ms // 2

    def _allow_for_outage(self, shard_range: ShardRange, loaded: Loaded) -> None:
        """Have no window count the time in which no job worked on the range."""
        by = outage(loaded.last, loaded.now, self._settings.lease_ttl, self._settings.tick)
        if by:
            database = self._tools.database
            database.run(troubles.move, shard_range, by, loaded.now)
            loaded.troubles = database.read(troubles.of_range, shard_range)

    def _pass_over(self, held: Acquired, loaded: Loaded, result: JobResult) -> None:
        """Take those groups out of a load whose condition never landed so early."""
        before, new_since = len(loaded.units), loaded.last - self._settings.commit_overlap_ms
        # the first poke of a group is made; one in trouble is poked as declared, so that its window is not over by two
        wanted = {*held.state.left, *held.woken, *held.struck, *loaded.troubles}
        wanted.update(unit.group.id for unit in loaded.units if unit.group.registered_at > new_since)
        database, last, now = self._tools.database, loaded.last, loaded.now
        loaded.units = adaptive.sift(database, self._usual_landings, loaded.units, last=last, now=now, wanted=wanted)
        if passed_over := before - len(loaded.units):
            result.count("sparse", passed_over)
            self._metrics.count("sparse", passed_over)

    # part

    def _part(self, held: Acquired, batch: Batch, units: list[PokeUnit]) -> _Parted:
        """Strike and isolate groups, as their troubles say; return the groups that are poked in the job.

        :raises Unreachable: when the database or Redis does not answer.
        """
        busy, background, finisher = held.background.busy, self._tools.background, self._tools.finisher
        if busy or background.is_busy:
            units = self._without_busy(held, batch, units)
        if held.struck:
            struck = set(held.struck)
            finisher.strike(batch, [unit for unit in units if unit.group.id in struck])
            held.struck = []
        if not batch.troubles:
            return _Parted(units, [])
        units = finisher.refuse_quarantined(batch, units)
        apart = [unit for unit in units if batch.troubles.get(unit.group.id, HEALTHY).is_isolated]
        if not apart:
            return _Parted(units, [])
        here = [unit for unit in units if not batch.troubles.get(unit.group.id, HEALTHY).is_isolated]
        waiting: list[int] = []
        if self._tools.breakers:
            apart, waiting = dispatch.sift(self._tools, held, batch, apart)
        if background.isolate(batch, apart):
            batch.result.count("isolated", len(apart))
        else:
            waiting += [unit.group.id for unit in apart]
        return _Parted(here, waiting)

    def _without_busy(self, held: Acquired, batch: Batch, units: list[PokeUnit]) -> list[PokeUnit]:
        """Return the groups of which no poke goes on outside of jobs."""
        busy, has = held.background.busy, self._tools.background.has
        missed = {group_id for unit in units if (group_id := unit.group.id) in busy or has(group_id)}
        if not missed:
            return units
        batch.result.count("busy", len(missed))
        if woken := missed.intersection(held.woken):
            self._leases.waking.keep(batch.shard_range, woken)  # their poke may have looked too early
        return [unit for unit in units if unit.group.id not in missed]

    # finish

    def _leave(self, held: Acquired, batch: Batch, loaded: Loaded, poked: LeftOver, began: float) -> None:
        """Note in the state what the next holder has to know, and the round's figures for operators."""
        state, result, now = held.state, batch.result, loaded.now
        left, not_here = poked.left + poked.waiting, batch.take_not_here()
        may_wait = set(poked.waiting)
        intervals = {u.group.id: u.group.poke_interval for u in loaded.units if left and u.group.id not in may_wait}
        state.leave_over(left, intervals, now)
        state.left |= dict.fromkeys(not_here, 0)
        state.last, state.recent = now, loaded.recent
        result.left += len(poked.left)
        took = time.monotonic() - began
        late = max(0, now - loaded.last - self._settings.tick_ms) if loaded.last else 0
        poking_took = round((batch.last_began - batch.moment.monotonic) * 1000) if batch.last_began else 0
        state.pool = self._pool_id.get() or ""
        state.holder, state.groups, state.pokes = held.lease.token, len(loaded.units), len(batch.record)
        state.lag_ms, state.seconds = late + poking_took, round(took, 3)
        result.seconds += took
        result.lag_seconds = max(result.lag_seconds, state.lag_ms / 1000)

    def _finish(self, held: Acquired, batch: Batch, poked: LeftOver, ends: float) -> list[int] | None:
        """Leave the range to the next holder; return as `_round` whether it is kept for another round."""
        failpoint("finish.before")
        dead, shard_range = held.background.dead, batch.shard_range
        again = held.lease.finish(held.state, again=time.monotonic() < ends, dead=dead)
        failpoint("finish.after")
        with suppress(Unreachable):  # the record is for people
            self._leases.poke_log.keep(shard_range, batch.record, held.state.last)
        if held.woken:  # others that were woken meanwhile sent no job
            self._later_jobs.look_for_woken(shard_range)
        if poked.again_in is not None:
            self._later_jobs.look_again(shard_range, poked.again_in)
        return again
