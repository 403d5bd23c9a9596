"""One job: take the lease of a range, and then load, poke, settle and publish, in this order."""

import time
from collections.abc import Iterator
from itertools import islice

from sqlalchemy import Connection

from sensorpool.errors import ClassUnavailable, Unreachable
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Acquired, Again, Lease
from sensorpool.leases.poke_log import Record
from sensorpool.leases.range_state import RangeState
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.unsettled import MOST, from_registration
from sensorpool.model.values import DueGroup, Fact, JobResult, Milliseconds, Report, ShardRange
from sensorpool.poke.poker import Poking
from sensorpool.poke.unit import PokeUnit
from sensorpool.settle.decide import matters
from sensorpool.settle.flush import GROUPS
from sensorpool.settle.infra_window import InfraWindow, from_then_on, left_to_others, moved, outage, turn_of_others
from sensorpool.settle.overruns import counted, is_last
from sensorpool.store import loading
from sensorpool.worker import overruns, passing_on
from sensorpool.worker.context import Worker
from sensorpool.worker.load import Loaded, load

FLUSH_EVERY = 0.1  # seconds
_WAITS = (0.001, 0.05)  # seconds between two looks at the lanes: the first, and the longest
_NOT_LANDED = Outcome.NOT_LANDED
_STUCK = 0.25  # of a poke's time limit: when none of a class has come back for so long, the class hangs
_LONG = 1.0  # seconds: a job does not wait longer for what it has begun

log = logger(__name__)


def run(worker: Worker, shard_range: ShardRange, token: str) -> JobResult:
    """Do the job of one range, and once more for as long as registrations open new groups meanwhile.

    :param token: who we are; another holder sees it.
    :raises Unreachable: when the database or Redis does not answer. What was poked and not settled is due again.
    """
    worker.goes_by(token)
    held = worker.leases.acquire(shard_range, token)
    total = JobResult()
    if isinstance(held, str):
        total.skipped = f"held by {held}"
        worker.metrics.job(total)
        return total
    try:
        failpoint("lease.after")
        ends = time.monotonic() + worker.settings.job_span  # others want the process too: then the next tick goes on
        while again := _Round(worker, shard_range, held, total, ends).run():
            held.in_flight, held.lost_turn, held.dirty, held.late = [], [], True, again.late
    except BaseException:
        held.lease.release()
        raise
    worker.metrics.job(total)
    return total


class _Round:
    """One round of one job: one load, and what follows from it."""

    def __init__(self, worker: Worker, shard_range: ShardRange, held: Acquired, total: JobResult, ends: float) -> None:
        self._worker = worker
        self._settings = worker.settings
        self._range = shard_range
        self._held = held
        self._lease: Lease = held.lease
        self._total = total
        self._ends = ends  # of the job's rounds, by the monotonic clock
        self._facts: list[Fact] = []
        self._apart: set[int] = set()  # groups that are poked outside of this job
        self._stranded: dict[int, Milliseconds] = {}  # groups that this process cannot poke, and nobody since when
        self._renewed = time.monotonic()
        self._last_began = 0.0
        self._cleared: set[int] = set()  # groups that are not unsettled any more

    def run(self) -> Again | None:
        """Do it; where the range became dirty meanwhile, so that we hold it for another round, say so."""
        started = time.monotonic()
        self._forget_another_pool()
        self._infra = InfraWindow(self._settings.infra_failure_window, self._held.state.infra)
        lost = {group_id: self._held.suspects[group_id] for group_id in self._held.lost_turn}
        self._held.state.left += lost  # they are due whatever the time
        self._forget_what_was_poked()
        with self._worker.keeper.keeping(self._lease):
            loaded = self._worker.database.read(self._load)
        if loaded is None:
            span = passing_on.again(self._held.state, self._settings.tick)
            dirty = self._lease.finish(self._held.state, again=self._may_go_on)
            self._worker.pass_on(self._range, span)
            return dirty
        failpoint("load.after")
        self._allow_for_outage(loaded)
        if self._held.unsettled:
            self._held.unsettled = from_registration(self._held.unsettled, [one.group for one in loaded.ones])
        self._total.groups += len(loaded.ones)
        ordinary = self._set_suspects_apart(loaded.ones)
        if not self._worker.suspects.is_retired:  # or they have lost their turn once more
            self._worker.leases.suspects.mark_each(self._range, lost)
        left = self._poke(ordinary)
        if not self._lease.is_ours():
            log.warning("the lease was lost; what was not poked is due again", shard_range=str(self._range))
            self._total.extra["lost_lease"] = True
            return None
        return self._finish(loaded, left, started)

    @property
    def _may_go_on(self) -> bool:
        return time.monotonic() < self._ends

    def _load(self, connection: Connection) -> Loaded | None:
        """Ask for the time, and for what is due; None if this is a repeated message."""
        worker = self._worker
        now = worker.database.now(connection)
        self._trusted = worker.clock.trusts(now)
        self._now, self._started = now, time.monotonic()
        self._record = Record(now, worker.process)
        if self._is_idle(now):
            return None
        return load(connection, worker.poker.cache, self._range, self._held, worker.last_loads, now, self._settings)

    def _forget_another_pool(self) -> None:
        """Forget what is known of groups whose ids are another's by now: the tables were made anew."""
        found, pool_id = self._held.state.pool, self._worker.pool_id
        if not found or found == pool_id.get() or pool_id.look_again() in {found, None}:
            return
        log.warning("what Redis knows of a range is of other tables; it is dropped", shard_range=str(self._range))
        held = self._held
        held.state, held.in_flight, held.suspects, held.lost_turn, held.unsettled = RangeState(), [], {}, [], {}
        self._worker.leases.forget_groups(self._range)

    def _forget_what_was_poked(self) -> None:
        """Take those out of what is left to other processes that one of these has poked apart since."""
        state = self._held.state
        if not state.stranded:
            return
        for group_id, at in self._worker.leases.poked_apart.take(self._range).items():
            if state.stranded.get(group_id, at + 1) <= at:
                del state.stranded[group_id]
                if at >= state.last and group_id in state.left:
                    state.left.remove(group_id)

    def _allow_for_outage(self, loaded: Loaded) -> None:
        """Have no window count the time in which nobody worked on the range."""
        state, known, now = self._held.state, self._held.unsettled, loaded.now
        if not (self._infra or state.stranded or known):
            return
        by = outage(loaded.last, now, self._settings.lease_ttl, self._settings.tick)
        state.resumed = now if by else min(state.resumed, now)
        if not by:
            return
        self._infra.move(by, now)
        state.stranded = {group_id: moved(since, by, now) for group_id, since in state.stranded.items()}
        if known:  # by others too, outside of jobs
            known = {group_id: each._replace(since=moved(each.since, by, now)) for group_id, each in known.items()}
            self._held.unsettled = known
            self._worker.leases.unsettled.keep(self._range, known)

    def _is_idle(self, now: Milliseconds) -> bool:
        """Whether this is a repeated message: the range was looked at less than half a tick ago, and nothing is new."""
        state = self._held.state
        new = self._held.dirty or self._held.late or self._held.in_flight
        if new or not 0 <= now - state.last < self._settings.tick_ms // 2:
            return False
        return not state.stranded or len(self._worker.poker.cache.not_here(state.stranded)) == len(state.stranded)

    def _set_suspects_apart(self, ones: list[PokeUnit]) -> list[PokeUnit]:
        """Hand the suspects over to the lanes apart; return the others."""
        known = self._held.suspects
        if self._held.in_flight:
            log.warning("a holder died; the groups in its hands are poked apart", groups=len(self._held.in_flight))
            # those keep their reason that are poked alone for it
            those = [each for each in self._held.in_flight if known.get(each) is not Suspicion.LATE_CRASHES]
            self._suspect(those, Suspicion.DEAD_HOLDER)
        if not known and not self._worker.poker.cache.crashed:
            return ones
        suspects = {one.group: known.get(one.group.id) for one in ones if one.group.crashes or one.group.id in known}
        if not suspects:
            return ones
        apart = {group.id for group in suspects}
        self._leave_to_others(suspects, [one for one in ones if one.group.id in apart])
        self._apart.update(group.id for group in suspects)
        with self._worker.keeper.keeping(self._lease):
            busy = self._worker.suspects.offer(self._range, suspects, self._held.state.stranded, due=self._now)
        if busy:
            self._total.extra["busy"] = self._total.extra.get("busy", 0) + busy
        return [one for one in ones if one.group.id not in apart]

    def _leave_to_others(self, suspects: dict[DueGroup, Suspicion | None], ones: list[PokeUnit]) -> None:
        """Take those out of the suspects that this process cannot poke: no child of it could either."""
        reports: list[Report] = []
        tools = self._worker.poker.tools
        for one in ones:
            found = self._worker.outside.not_here.pop(one.group.id, None)
            if found is not None:
                one.put_off(found)
                tools.classes.note(one.op_classpath, one.why_not() or found)
            if (why := one.why_not()) is not None:
                del suspects[one.group]
                reports.append(tools.answers.of_exception(one.group, time.monotonic(), ClassUnavailable(why)))
        self._take(reports)

    def _suspect(self, group_ids: list[int], why: Suspicion) -> None:
        """Have groups poked apart from now on, in this job's next round too."""
        self._held.suspects.update(dict.fromkeys(group_ids, why))
        self._worker.leases.suspects.mark(self._range, group_ids, why)

    def _poke(self, ones: list[PokeUnit]) -> list[int]:
        """Poke the groups; return those that there was no time for. Pokes that take long are left to go on alone."""
        if not ones:
            self._settle()  # what became of suspects
            return []
        self._worker.watchdog.guard()
        poking = self._worker.poker.begin()
        try:
            return self._poke_in_turn(poking, ones)
        except BaseException:
            poking.withdraw()
            raise
        finally:
            if slow := list(poking.outstanding):
                self._total.extra["slow"] = len(slow)
                self._held.suspects.update(dict.fromkeys(slow, Suspicion.SLOW))
                self._worker.slow_pokes.adopt(self._range, poking, self._infra, self._now)
            else:
                poking.end()
                self._worker.watchdog.rest()

    def _poke_in_turn(self, poking: Poking, ones: list[PokeUnit]) -> list[int]:
        settings = self._settings
        chunk, wait = 2 * settings.poke_concurrency, _WAITS[0]
        lines = _by_class(ones)
        flushed_at = time.monotonic()
        # from here on: however long the load took, somebody is poked
        stop_at, patience = flushed_at + settings.job_span, min(_LONG, settings.tick / 2)
        step = self._worker.watchdog.job.step
        while lines or poking.outstanding:
            step()
            here = time.monotonic()
            if here - self._renewed >= settings.heartbeat:
                self._renewed = here
                self._lease.extend()
            if not self._lease.is_ours() or here > stop_at:
                break
            if lines:
                self._hand_over(poking, lines, chunk)
            reports = poking.step()
            self._take(reports)
            chunk = max(2 * settings.poke_concurrency, min(2 * len(reports), 5_000))
            if self._facts and (here - flushed_at >= FLUSH_EVERY or len(self._facts) >= GROUPS):
                self._settle()
                flushed_at = time.monotonic()
            if not reports and poking.is_held_up(patience):
                break
            wait = _WAITS[0] if reports else min(wait * 1.5, _WAITS[1])
            if poking.outstanding:
                time.sleep(wait)
        left = poking.withdraw() + [one for line in lines.values() for one in line]
        self._settle()
        return self._set_stuck_apart(poking, left)

    def _set_stuck_apart(self, poking: Poking, left: list[PokeUnit]) -> list[int]:
        """Have those poked apart whose class hangs: in its slots they would wait for a long time. Return the others."""
        patience = self._settings.poke_timeout * _STUCK
        stuck = {name for name in {one.op_classpath for one in left} if poking.is_stuck(name, patience)}
        if not stuck or not self._lease.is_ours():
            return [one.group.id for one in left]
        apart = [one.group for one in left if one.op_classpath in stuck]
        log.warning("a class hangs; its groups are poked apart", op_classpath=min(stuck), groups=len(apart))
        self._suspect([group.id for group in apart], Suspicion.CLASS_HANGS)
        self._worker.suspects.offer(self._range, dict.fromkeys(apart, Suspicion.CLASS_HANGS), due=self._now)
        self._total.extra["apart"] = self._total.extra.get("apart", 0) + len(apart)
        return [one.group.id for one in left if one.op_classpath not in stuck]

    def _hand_over(self, poking: Poking, lines: dict[str, Iterator[PokeUnit]], chunk: int) -> None:
        """Note who is about to be poked, then hand them to the lanes: of each class so many as keep its slots busy."""
        ones: list[PokeUnit] = []
        for op_classpath, line in list(lines.items()):
            if poking.wants_more(op_classpath):
                some = list(islice(line, chunk))
                ones += some
                if len(some) < chunk:
                    del lines[op_classpath]
        if ones:
            ids = [one.group.id for one in ones]
            self._lease.put_in_flight([*poking.outstanding, *ids])
            poking.put(ones, ids)

    def _take(self, reports: list[Report]) -> None:
        """Read reports: count them, and keep the facts that can change anything. Most found nothing, and cost least."""
        if not reports:
            return
        failpoint("poke.after")
        started, now, trusted = self._started, self._now, self._trusted
        watched = self._infra or self._worker.outside.infra or self._held.unsettled
        offsets = [int((report.began - started) * 1000) for report in reports]
        self._record.add(reports, offsets)
        self._worker.metrics.poked(reports)
        self._total.poked += len(reports)
        self._total.saved += sum([report.group.members for report in reports]) - len(reports)
        self._last_began = max(self._last_began, reports[-1].began)
        hung: list[tuple[Report, Milliseconds]] = []
        greedy: list[int] = []
        for report, offset in zip(reports, offsets, strict=True):
            if report.outcome is _NOT_LANDED and not watched:
                deadline = report.group.next_deadline
                if not trusted or deadline is None or now + offset < deadline:
                    continue
            if report.outcome is Outcome.POKE_TIMEOUT:
                hung.append((report, now + offset))
                continue
            if report.outcome is Outcome.CRASHED:  # memory, files or threads ran out: whose doing it is, is not known
                greedy.append(report.group.id)
                self._total.errors += 1
                continue
            self._take_one(report, now + offset)
        if hung:
            log.warning("pokes overran their limit; they are poked apart from now on", groups=len(hung))
            self._suspect([report.group.id for report, _ in hung], Suspicion.OVERRAN)
            in_a_row = overruns.count(self._worker.leases, self._settings, self._range, [report for report, _ in hung])
            for report, began_at in hung:
                self._take_one(report, began_at, in_a_row.get(report.group.id, 0))
        if greedy:
            log.warning(
                "pokes ran out of memory, files or threads; they are poked apart from now on", groups=len(greedy)
            )
            self._suspect(greedy, Suspicion.OUT_OF_MEMORY)

    def _take_one(self, report: Report, began_at: Milliseconds, in_a_row: int = 0) -> None:
        """Keep the fact of a report that saw something, or came after a deadline."""
        group, outcome = report.group, report.outcome
        if outcome is Outcome.CANNOT_POKE:
            self._leave(report, began_at)
            return
        fact = Fact(group.id, group.version, began_at, outcome, report.reason, report.xcom_value)
        if outcome is Outcome.LANDED:
            self._total.landed += 1
        elif outcome is not _NOT_LANDED:
            self._total.errors += 1
        self._infra.take_over(self._worker.outside.infra, group.id, began_at, group.poke_interval)
        if outcome is Outcome.INFRA_FAILURE or group.id in self._infra:
            fact = self._infra.judge(fact, group.poke_interval, group.registered_at)
        if outcome is Outcome.POKE_TIMEOUT:
            fact = counted(fact, in_a_row, self._settings.overrun_limit)
        if is_last(fact) or matters(fact.outcome, began_at, group.next_deadline, self._trusted):
            self._facts.append(fact)
        elif self._held.unsettled.pop(group.id, None):
            self._cleared.add(group.id)  # what could not be written is not so any more

    def _leave(self, report: Report, began_at: Milliseconds) -> None:
        """Leave a group that this process cannot poke to the others, until they have had their turn."""
        group, settings = report.group, self._settings
        self._worker.poker.cache.put_off(group.id, report.reason or "")
        self._total.extra["not_here"] = self._total.extra.get("not_here", 0) + 1
        since = from_then_on(self._held.state.stranded.get(group.id, began_at), group.registered_at, began_at)
        self._stranded[group.id] = since
        fact = Fact(group.id, group.version, began_at, report.outcome, report.reason)
        turn = turn_of_others(group.poke_interval, settings.tick_ms)
        window, resumed = settings.infra_failure_window, self._held.state.resumed
        held = left_to_others(fact, since, window, turn, resumed) if self._trusted else None
        if held is not None and matters(held.outcome, held.began_at, group.next_deadline):
            self._facts.append(held)

    def _settle(self) -> None:
        facts, self._facts = self._facts, []
        if not facts:
            return
        known = self._held.unsettled
        with self._worker.keeper.keeping(self._lease):
            done = self._worker.settler.settle(facts, self._trusted, lambda _: known)
        self._total.settled += done.ended
        if known:
            settled = {fact.group_id for fact in facts if fact.group_id in known} - done.unsettled.keys()
            self._cleared |= settled
            for group_id in settled:
                del known[group_id]
        if done.unsettled:
            self._total.extra["unsettled"] = self._total.extra.get("unsettled", 0) + len(done.unsettled)
            for group_id, each in done.unsettled.items():
                if group_id in known or len(known) < MOST:
                    known[group_id] = each
            self._cleared -= known.keys()
            self._worker.leases.unsettled.keep(self._range, known)

    def _finish(self, loaded: Loaded, left: list[int], started: float) -> Again | None:
        """Leave the range to the next holder."""
        state, here = self._held.state, time.monotonic()
        late = max(0, loaded.now - loaded.last - self._settings.tick_ms) if loaded.last else 0
        poking_took = round((self._last_began - self._started) * 1000) if self._last_began else 0
        span = self._strand(state, loaded, left)
        if left or state.left_since:
            left = state.in_turn(left, {one.group.id: one.group.poke_interval for one in loaded.ones}, loaded.now)
        state.last, state.recent, state.left = loaded.now, loaded.recent, left
        if state.stranded:
            state.left = [*left, *state.stranded.keys() - set(left)]
        state.pool = self._worker.pool_id.get() or ""
        state.holder, state.groups, state.pokes = self._lease.token, len(loaded.ones), len(self._record)
        state.lag_ms, state.seconds = late + poking_took, round(here - started, 3)
        self._forget_failures_of_the_gone(loaded.now)
        state.infra = self._infra.since()
        self._total.left += len(left)
        self._total.seconds += here - started
        self._total.lag_seconds = max(self._total.lag_seconds, state.lag_ms / 1000)
        if len(self._record):
            self._worker.leases.poke_log.keep(self._range, self._record.texts(), loaded.now)
        if self._cleared:
            self._worker.leases.unsettled.keep(self._range, {}, self._cleared)
        if not left:  # should Redis forget them, they are due again by an older load
            self._worker.last_loads.remember(self._range, loaded.now)
        failpoint("finish.before")
        again = self._lease.finish(state, again=self._may_go_on)
        failpoint("finish.after")
        self._worker.pass_on(self._range, span)
        self._worker.tell_what_is_not_here(loaded.now)
        return again

    def _forget_failures_of_the_gone(self, now: Milliseconds) -> None:
        """Forget the failures of groups that are gone. One that is there is poked again, however long its interval."""
        self._worker.outside.infra.forget_ended(now)
        if not (long_known := self._infra.long_known(now)):
            return
        try:
            there = self._worker.database.read(loading.there, long_known)
        except Unreachable:
            return
        self._infra.forget(set(long_known) - there)

    def _strand(self, state: RangeState, loaded: Loaded, left: list[int]) -> float | None:
        """Note what is left to other processes; return in how many seconds to pass the range on to them, if at all."""
        before = state.stranded
        if not before and not self._stranded:
            return None
        again = loaded.not_here.union(left, self._apart)
        state.stranded = {group_id: since for group_id, since in before.items() if group_id in again} | self._stranded
        if not before.keys() <= state.stranded.keys():
            state.passes = 0  # this process could poke some of them
        return passing_on.span(state, self._settings.tick) if self._stranded or loaded.not_here else None


def _by_class(ones: list[PokeUnit]) -> dict[str, Iterator[PokeUnit]]:
    """Line groups up by class, for a slow class shall not stand in the way of the others."""
    lines: dict[str, list[PokeUnit]] = {}
    for one in ones:
        try:
            lines[one.op_classpath].append(one)
        except KeyError:
            lines[one.op_classpath] = [one]
    return {op_classpath: iter(line) for op_classpath, line in lines.items()}
