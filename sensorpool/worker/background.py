"""The pokes that this process makes outside of jobs: those that outlived their job, and those in child processes.

A note in Redis names the groups, so that no job pokes them as well (`leases.background_notes`). One thread takes the
reports to the finisher, and renews the notes.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.background_notes import Isolated
from sensorpool.leases.lease import Leases
from sensorpool.leases.poke_log import Record
from sensorpool.leases.range_state import MISSED
from sensorpool.model.not_landed import each_report
from sensorpool.model.trouble import HEALTHY
from sensorpool.model.values import DueGroup, JobResult, Report, ShardRange
from sensorpool.poke.child import Suspect
from sensorpool.poke.isolated_lane import IsolatedLane
from sensorpool.poke.lane import drained
from sensorpool.poke.poking import Poking
from sensorpool.poke.unit import PokeUnit
from sensorpool.store import loading
from sensorpool.store.database import Database
from sensorpool.worker.clock_watch import ClockWatch
from sensorpool.worker.finisher import Batch, Finisher
from sensorpool.worker.load import Moment

NOTED_FOR = 3  # heartbeats that a note holds
_LOOK_EVERY, _IDLE = 0.05, 0.25  # seconds between two looks at what is poked; the same where nothing is
_AGAIN = 1.0  # seconds after a note that was not written
_CLOSING = 1.0  # seconds that the thread has to end

log = logger(__name__)

_Ended = Callable[[Collection[int]], None]


@dataclass(frozen=True, slots=True)
class _Waits:
    """A group in the background.

    :param since: since when it waits for its poke, by the monotonic clock.
    """

    batch: Batch
    group: DueGroup
    is_isolated: bool
    since: float


class Background:
    """What one process pokes outside of jobs. Safe to share between threads.

    :param rest: is called when the pokes that outlived a job have ended (`Watchdog.rest`).
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        leases: Leases,
        clock: ClockWatch,
        finisher: Finisher,
        rest: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._database = database
        self._leases = leases
        self._clock = clock
        self._finisher = finisher
        self._rest = rest
        self._renew_every = settings.heartbeat  # seconds
        self._renew_at = self._note_at = 0.0  # when notes are renewed, and may be written, by the monotonic clock
        self._waits: dict[int, _Waits] = {}  # by the id of the group
        self._offered: set[int] = set()  # the groups of these that the lanes have taken
        self._stale: set[ShardRange] = set()  # whose note is to be written
        self._going_on: dict[Poking, _Ended | None] = {}  # pokes that outlived their job
        self._reports: deque[Report] = deque()  # of pokes in children
        # those that hang must not hold up the others
        self._hanging = IsolatedLane(settings, self._reports.extend, settings.hanging_concurrency)
        self._dying = IsolatedLane(settings, self._reports.extend)
        self._is_retired = False
        self._thread = BackgroundThread("poke-background", self._look_after)
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # so that no note replaces a newer one

    def has(self, group_id: int) -> bool:
        """Whether a group is poked here, or waits for it."""
        return group_id in self._waits

    @property
    def is_busy(self) -> bool:
        """Whether any group is poked here, or waits for it."""
        return bool(self._waits)

    def start(self) -> None:
        """Start the thread, before a job pokes: without it nobody would take what pokes see after the job.

        :raises RuntimeError: when the process can start no more threads.
        """
        self._thread.start()

    def adopt(self, poking: Poking, batch: Batch, ended: _Ended | None = None) -> None:
        """Let pokes go on that take too long for their job.

        :param ended: is told of groups whose poke has ended, on another thread; may raise `Unreachable`.
        :raises Unreachable: when Redis does not answer; the pokes go on all the same.
        """
        groups = [unit.group for unit in list(poking.outstanding.values())]
        own = self._own(batch, groups, is_isolated=False)
        with self._lock:
            self._going_on[poking] = ended
            self._waits |= own
        self._note(batch.shard_range)

    def isolate(self, batch: Batch, units: Sequence[PokeUnit]) -> bool:
        """Have groups poked in child processes. Waits for nothing.

        :returns: whether they are; else this process ends soon, and takes none.
        :raises Unreachable: when the database or Redis does not answer; then none is poked.
        :raises RuntimeError: when a lane can start no thread; then some may be poked in vain.
        """
        if self._is_retired:
            return False
        rows = self._database.read(loading.groups, [unit.group.id for unit in units])
        own = self._own(batch, [group for group, *_ in rows], is_isolated=True)
        suspects: dict[bool, list[Suspect]] = {True: [], False: []}
        for group, op_classpath, poke_context, _ in rows:
            trouble = batch.troubles.get(group.id, HEALTHY)
            suspects[trouble.strikes == 0].append(Suspect(group, op_classpath, poke_context, trouble.is_alone))
        with self._lock:
            self._waits |= own
        try:
            self._note(batch.shard_range)
            self._hanging.offer(suspects[True])
            self._dying.offer(suspects[False])
        except BaseException:
            self._forget(own)
            raise
        with self._lock:
            self._offered |= own.keys() & self._waits.keys()  # some may have been reported since
        return True

    def retire(self) -> None:
        """Begin no further poke in a child; groups that wait are poked at once by another job."""
        self._is_retired = True
        self._give_back([*self._hanging.retire(), *self._dying.retire()])

    def close(self) -> None:
        """End the children, and look after the pokes no more; groups in the children are poked by another job."""
        self._is_retired = True
        self._thread.close(_CLOSING)  # first: it would take the groups for lost
        self._give_back([*self._hanging.close(), *self._dying.close()])

    def give_back(self) -> None:
        """Have all groups poked by another job: this process ends, and its pokes with it."""
        self._give_back(list(self._waits))

    def _own(self, batch: Batch, groups: Iterable[DueGroup], *, is_isolated: bool) -> dict[int, _Waits]:
        now = time.monotonic()
        record = Record(batch.moment.now)
        own = Batch(batch.shard_range, batch.moment, batch.troubles, JobResult(), record)
        return {group.id: _Waits(own, group, is_isolated, now) for group in groups}

    def _look_after(self) -> None:
        while not self._thread.wait(_LOOK_EVERY if self._waits or self._going_on else _IDLE):
            try:
                self._take()
            except Unreachable as error:
                log.warning("results of pokes are lost; their groups are due again", error=str(error))
            except Exception:
                log.exception("results of pokes are lost; their groups are due again")
            try:
                self._write_notes(time.monotonic())
            except Unreachable as error:
                log.warning("notes on pokes outside of jobs were not written", error=str(error))

    def _write_notes(self, now: float) -> None:
        """Renew the notes once a heartbeat, and write those that have changed.

        :raises Unreachable: when Redis does not answer; then they are written a little later.
        """
        if now < self._note_at:
            return
        self._note_at = now + _AGAIN
        if now >= self._renew_at:
            self._stale.update(each.batch.shard_range for each in list(self._waits.values()))
        for shard_range in list(self._stale):
            self._note(shard_range)
        self._note_at = now
        if now >= self._renew_at:
            self._renew_at = now + self._renew_every

    def _take(self) -> None:
        """Take what pokes have seen since the last look to the finisher."""
        for poking, ended in list(self._going_on.items()):
            was_idle, before = poking.is_idle, set(poking.outstanding)
            try:
                self._finish(each_report(poking.step()))
                undecided = poking.take_undecided()  # by a slow shared call
                again = [unit.group.id for unit in undecided]
                if ended is None:
                    poking.put(undecided, again)
                else:  # a job asks their budgets
                    self._give_back(again)
                if was_idle and (lost := poking.forget_lost()):
                    log.warning("an error kept groups from being poked; they are due again", groups=len(lost))
                    self._forget(lost)
            finally:
                if ended is not None and (done := before - poking.outstanding.keys()):
                    with suppress(Unreachable):
                        ended(done)
                if poking.is_over:
                    with self._lock:
                        del self._going_on[poking]
                    poking.end()
                    self._rest()
        # what the lanes have given up is due again; a lane reports a group before it lets go of it
        gone = {each for each in list(self._offered) if not self._hanging.has(each) and not self._dying.has(each)}
        reports = drained(self._reports)
        self._forget(gone.difference(report.group.id for report in reports))
        self._finish(reports)

    def _finish(self, reports: Sequence[Report]) -> None:
        """Settle what pokes saw, and note that they have ended."""
        by_batch: dict[Batch, list[Report]] = defaultdict(list)
        for report in reports:
            if (found := self._waits.get(report.group.id)) is not None:
                by_batch[found.batch].append(report)
        try:
            for batch, own in by_batch.items():
                now = self._database.read(self._database.now)
                batch.moment = Moment(now, time.monotonic(), self._clock.trusts(now))
                batch.record = Record(now)
                self._finisher.take(batch, own)
                self._finisher.flush(batch)
                self._leases.poke_log.keep(batch.shard_range, batch.record, now)
                self._leases.waking.keep(batch.shard_range, batch.take_not_here())
        finally:
            self._forget(report.group.id for report in reports)

    def _give_back(self, group_ids: Sequence[int]) -> None:
        """Have groups poked at once by another job."""
        by_range: dict[ShardRange, list[int]] = defaultdict(list)
        for group_id in group_ids:
            if (found := self._waits.get(group_id)) is not None:
                by_range[found.batch.shard_range].append(group_id)
        self._forget(group_ids)
        try:
            for shard_range, own in by_range.items():
                self._leases.waking.keep(shard_range, own)
                self._note(shard_range)
        except Unreachable as error:
            log.warning("groups could not be given back; they are poked one interval late", error=str(error))

    def _forget(self, group_ids: Iterable[int]) -> None:
        with self._lock:
            for group_id in group_ids:
                self._offered.discard(group_id)
                if (found := self._waits.pop(group_id, None)) is not None:
                    self._stale.add(found.batch.shard_range)

    def _note(self, shard_range: ShardRange) -> None:
        """Write the note of a range.

        :raises Unreachable: when Redis does not answer; then it is written with the next renewal.
        """
        with self._writing:
            with self._lock:
                self._stale.discard(shard_range)
                own = {i: each for i, each in self._waits.items() if each.batch.shard_range == shard_range}
            slow = [group_id for group_id, each in own.items() if not each.is_isolated]
            isolated = {group_id: each for group_id, each in own.items() if each.is_isolated}
            try:
                span = NOTED_FOR * self._settings.heartbeat
                self._leases.note_background(shard_range, slow, self._isolated(isolated), span)
            except Unreachable:
                self._stale.add(shard_range)
                raise

    def _isolated(self, waits: dict[int, _Waits]) -> Isolated:
        now, limit = time.monotonic(), self._settings.poke_timeout
        waited = {group_id: now - each.since for group_id, each in waits.items() if now - each.since > limit}
        overdue = [g for g, span in waited.items() if span - limit > MISSED * waits[g].group.poke_interval / 1000]
        return Isolated(list(waits), len(waited), len(overdue), round(max(waited.values(), default=0) * 1000))
