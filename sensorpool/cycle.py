"""One job: take the lease of a range, and then load, poke, settle and publish, in this order."""

import time
from collections.abc import Iterator
from itertools import islice

from sqlalchemy import Connection

from sensorpool.failpoint import failpoint
from sensorpool.flush import GROUPS
from sensorpool.infra_window import within_window
from sensorpool.lease import Held, Lease
from sensorpool.load import Loaded, load
from sensorpool.logs import logger
from sensorpool.model import Fact, JobResult, Milliseconds, Report, ShardRange
from sensorpool.poke.poker import Poking
from sensorpool.poke.works import One
from sensorpool.record import Record
from sensorpool.settle import matters
from sensorpool.states import Outcome
from sensorpool.suspects import DEAD_HOLDER, OUT_OF_MEMORY, OVERRAN, SLOW
from sensorpool.worker import Worker

FLUSH_EVERY = 0.1  # seconds
_WAITS = (0.001, 0.05)  # seconds between two looks at the lanes: the first, and the longest
_NOT_LANDED = Outcome.NOT_LANDED
_LONG = 1.0  # seconds: a job does not wait longer for what it has begun

log = logger(__name__)


def run(worker: Worker, shard_range: ShardRange, token: str) -> JobResult:
    """Do the job of one range, and once more for as long as registrations open new groups meanwhile.

    :param token: who we are; another holder sees it.
    :raises Unreachable: when the database or Redis does not answer. What was poked and not settled is due again.
    """
    held = worker.leases.acquire(shard_range, token)
    total = JobResult()
    if isinstance(held, str):
        total.skipped = f"held by {held}"
        worker.metrics.job(total)
        return total
    try:
        failpoint("lease.after")
        ends = time.monotonic() + worker.settings.tick  # others want the process too: then the next tick goes on
        while _Round(worker, shard_range, held, total, ends).run():
            held.note, held.dirty = [], True
    except BaseException:
        held.lease.release()
        raise
    worker.metrics.job(total)
    return total


class _Round:
    """One round of one job: one load, and what follows from it."""

    def __init__(self, worker: Worker, shard_range: ShardRange, held: Held, total: JobResult, ends: float) -> None:
        self._worker = worker
        self._settings = worker.settings
        self._range = shard_range
        self._held = held
        self._lease: Lease = held.lease
        self._total = total
        self._ends = ends  # of the job's rounds, by the monotonic clock
        self._facts: list[Fact] = []
        self._renewed = time.monotonic()
        self._last_began = 0.0

    def run(self) -> bool:
        """Do it; return whether the range became dirty meanwhile, so that we hold it for another round."""
        started = time.monotonic()
        loaded = self._worker.database.read(self._load)
        if loaded is None:
            return self._lease.finish(self._held.state, again=self._may_go_on)
        failpoint("load.after")
        self._total.groups += len(loaded.ones)
        ordinary = self._set_suspects_apart(loaded.ones)
        left = self._poke(ordinary)
        if not self._lease.is_ours():
            log.warning("the lease was lost; what was not poked is due again", shard_range=str(self._range))
            self._total.extra["lost_lease"] = True
            return False
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
        self._record = Record(now)
        if self._is_idle(now):
            return None
        return load(connection, worker.poker.cache, self._range, self._held, worker.memory, now, self._settings)

    def _is_idle(self, now: Milliseconds) -> bool:
        """Whether this is a repeated message: the range was looked at less than half a tick ago, and nothing is new."""
        state = self._held.state
        return not (self._held.dirty or self._held.note) and 0 <= now - state.last < self._settings.tick_ms // 2

    def _set_suspects_apart(self, ones: list[One]) -> list[One]:
        """Hand the suspects over to the lanes apart; return the others."""
        if self._held.note:
            log.warning("a holder died; the groups in its hands are poked apart", groups=len(self._held.note))
            self._suspect(self._held.note, DEAD_HOLDER)
        known = self._held.suspects
        if not known and not self._worker.poker.cache.crashed:
            return ones
        suspects = {
            one.group: known.get(one.group.id, "") for one in ones if one.group.crashes or one.group.id in known
        }
        if not suspects:
            return ones
        busy = self._worker.suspects.offer(self._range, suspects)
        if busy:
            self._total.extra["busy"] = self._total.extra.get("busy", 0) + busy
        apart = {group.id for group in suspects}
        return [one for one in ones if one.group.id not in apart]

    def _suspect(self, group_ids: list[int], why: str) -> None:
        """Have groups poked apart from now on, in this job's next round too."""
        self._held.suspects.update(dict.fromkeys(group_ids, why))
        self._worker.leases.suspect(self._range, group_ids, why)

    def _poke(self, ones: list[One]) -> list[int]:
        """Poke the groups; return those that there was no time for. Pokes that take long are left to go on alone."""
        if not ones:
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
                self._held.suspects.update(dict.fromkeys(slow, SLOW))
                self._worker.suspects.adopt(self._range, poking, self._held.state.infra)
            else:
                poking.end()
                self._worker.watchdog.rest()

    def _poke_in_turn(self, poking: Poking, ones: list[One]) -> list[int]:
        settings = self._settings
        chunk, wait = 2 * settings.poke_concurrency, _WAITS[0]
        lines = _by_class(ones)
        flushed_at = time.monotonic()
        # from here on: however long the load took, somebody is poked
        stop_at, patience = flushed_at + settings.tick, min(_LONG, settings.tick / 2)
        while lines or poking.outstanding:
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
        left = poking.withdraw() + [one.group.id for line in lines.values() for one in line]
        self._settle()
        return left

    def _hand_over(self, poking: Poking, lines: dict[str, Iterator[One]], chunk: int) -> None:
        """Note who is about to be poked, then hand them to the lanes: of each class so many as keep its slots busy."""
        ones: list[One] = []
        for op_classpath, line in list(lines.items()):
            if poking.wants_more(op_classpath):
                some = list(islice(line, chunk))
                ones += some
                if len(some) < chunk:
                    del lines[op_classpath]
        if ones:
            ids = [one.group.id for one in ones]
            self._lease.write_note([*poking.outstanding, *ids])
            poking.put(ones, ids)

    def _take(self, reports: list[Report]) -> None:
        """Read reports: count them, and keep the facts that can change anything. Most found nothing, and cost least."""
        if not reports:
            return
        failpoint("poke.after")
        started, now, trusted = self._started, self._now, self._trusted
        infra = self._held.state.infra or self._worker.suspects.infra
        offsets = [int((report.began - started) * 1000) for report in reports]
        self._record.add(reports, offsets)
        self._worker.metrics.poked(reports)
        self._total.poked += len(reports)
        self._total.saved += sum([report.group.members for report in reports]) - len(reports)
        self._last_began = max(self._last_began, reports[-1].began)
        hung: list[int] = []
        greedy: list[int] = []
        for report, offset in zip(reports, offsets, strict=True):
            if report.outcome is _NOT_LANDED and not infra:
                deadline = report.group.next_deadline
                if not trusted or deadline is None or now + offset < deadline:
                    continue
            self._take_one(report, now + offset)
            if report.outcome is Outcome.POKE_TIMEOUT:
                hung.append(report.group.id)
            elif report.outcome is Outcome.CRASHED:
                greedy.append(report.group.id)
        if hung:
            log.warning("pokes overran their limit; they are poked apart from now on", groups=len(hung))
            self._suspect(hung, OVERRAN)
        if greedy:
            log.warning("pokes ran out of memory; they are poked apart from now on", groups=len(greedy))
            self._suspect(greedy, OUT_OF_MEMORY)

    def _take_one(self, report: Report, began_at: Milliseconds) -> None:
        """Keep the fact of a report that saw something, or came after a deadline."""
        group, outcome = report.group, report.outcome
        fact = Fact(group.id, group.version, began_at, outcome, report.reason, report.xcom_value)
        if outcome is Outcome.LANDED:
            self._total.landed += 1
        elif outcome is not _NOT_LANDED:
            self._total.errors += 1
        infra = self._held.state.infra
        if (since := self._worker.suspects.infra.take(group.id)) is not None:
            infra.setdefault(str(group.id), since)
        if outcome is Outcome.INFRA_FAILURE or str(group.id) in infra:
            fact = within_window(fact, infra, self._settings.infra_failure_window)
        if matters(fact.outcome, began_at, group.next_deadline, self._trusted):
            self._facts.append(fact)

    def _settle(self) -> None:
        facts, self._facts = self._facts, []
        if facts:
            self._total.settled += self._worker.settle(facts, self._trusted)

    def _finish(self, loaded: Loaded, left: list[int], started: float) -> bool:
        """Leave the range to the next holder."""
        state, here = self._held.state, time.monotonic()
        late = max(0, loaded.now - loaded.last - self._settings.tick_ms) if loaded.last else 0
        poking_took = round((self._last_began - self._started) * 1000) if self._last_began else 0
        state.last, state.recent, state.left = loaded.now, loaded.recent, left
        state.holder, state.groups, state.pokes = self._lease.token, len(loaded.ones), len(self._record)
        state.lag_ms, state.seconds = late + poking_took, round(here - started, 3)
        oldest = loaded.now - round(2 * self._settings.infra_failure_window * 1000)
        state.infra = {name: since for name, since in state.infra.items() if since > oldest}
        self._total.left += len(left)
        self._total.seconds += here - started
        self._total.lag_seconds = max(self._total.lag_seconds, state.lag_ms / 1000)
        if len(self._record):
            expires = self._record.expires(one.group for one in loaded.ones)
            self._worker.leases.keep_record(self._range, self._record.text(), expires, loaded.now)
        if not left:  # should Redis forget them, they are due again by an older load
            self._worker.memory.remember(self._range, loaded.now)
        failpoint("finish.before")
        dirty = self._lease.finish(state, again=self._may_go_on)
        failpoint("finish.after")
        return dirty


def _by_class(ones: list[One]) -> dict[str, Iterator[One]]:
    """Line groups up by class, for a slow class shall not stand in the way of the others."""
    lines: dict[str, list[One]] = {}
    for one in ones:
        try:
            lines[one.op_classpath].append(one)
        except KeyError:
            lines[one.op_classpath] = [one]
    return {op_classpath: iter(line) for op_classpath, line in lines.items()}
