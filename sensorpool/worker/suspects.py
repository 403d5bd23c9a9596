"""Suspects: groups that hung, or were in a dead holder's hands. They are poked apart, until they are cleared.

Nothing waits for them: groups that hang are poked in one lane of child processes, and groups that may crash in another.
Each suspect is marked in Redis, and claimed, so that no job pokes it as well.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from sensorpool.config.settings import Settings
from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.lease import Leases
from sensorpool.model.states import Outcome
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import DueGroup, Milliseconds, Report, ShardRange
from sensorpool.poke.child import Suspect
from sensorpool.poke.isolated_lane import IsolatedLane
from sensorpool.store import loading
from sensorpool.store.database import Database
from sensorpool.worker.held_claims import HeldClaims
from sensorpool.worker.outside_results import OutsideResults, is_strike

log = logger(__name__)


class Suspects:
    """The suspects that this process pokes. Safe to share between threads.

    :param results: settles what their pokes see; called on the threads of the lanes.
    :param goes_on: whether a poke of a group goes on here outside of the lanes.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        leases: Leases,
        claims: HeldClaims,
        results: OutsideResults,
        goes_on: Callable[[int], bool],
    ) -> None:
        self.is_retired = False  # True: no further poke is begun
        self._database = database
        self._leases = leases
        self._claims = claims
        self._results = results
        self._goes_on = goes_on
        self._crashing = IsolatedLane(settings, self._take, self._renew)
        self._hanging = IsolatedLane(settings, self._take, self._renew, settings.hanging_concurrency)
        self._why: dict[int, Suspicion] = {}  # of the groups in the lanes
        self._lock = threading.Lock()

    def offer(
        self,
        shard_range: ShardRange,
        groups: Mapping[DueGroup, Suspicion | None],
        stranded: Collection[int] = frozenset(),
        *,
        due: Milliseconds,
    ) -> list[int]:
        """Have suspects, each with why it is one, poked apart. Waits for nothing.

        :param stranded: groups of the range that are left to other processes; a poke of one is told to the next job.
        :param due: since when they wait for this poke, by the database's clock.
        :returns: the ids of the groups that miss this turn, because a poke of them goes on here or in another process;
            those of all groups, once the lanes have retired.
        :raises Unreachable: when the database or Redis does not answer.
        """
        free = [group.id for group in groups if not self.has(group.id)]
        claimed = self._claims.take(shard_range, free, due)
        whys = {group.id: why or Suspicion.CRASHED for group, why in groups.items()}
        if self.is_retired:
            self._leases.suspects.mark_each(shard_range, {each: whys[each] for each in claimed}, lost_turn=True)
            self._claims.drop(shard_range, claimed)
            return [*whys]
        try:
            if unmarked := [group.id for group, why in groups.items() if why is None]:
                self._leases.suspects.mark(shard_range, unmarked, Suspicion.CRASHED)
            # a mark may have been cleared since the job read it: no other job may poke what is poked here
            self._leases.suspects.restore(shard_range, {each: whys[each] for each in claimed})
            rows = self._database.read(loading.groups, claimed)
        except Unreachable:
            self._claims.drop(shard_range, claimed)
            raise
        self._claims.hold(shard_range, [group.id for group, *_ in rows], due)
        with self._lock:
            self._why.update((group.id, whys[group.id]) for group, *_ in rows)
        self._results.expect_stranded([group.id for group, *_ in rows if group.id in stranded])
        hanging: list[Suspect] = []
        crashing: list[Suspect] = []
        for group, op_classpath, poke_context, _ in rows:
            why = whys[group.id]
            alone = group.crashes > 0 or why is Suspicion.CRASHED
            suspect = Suspect(group, op_classpath, poke_context, alone)
            (hanging if why.hangs and not alone else crashing).append(suspect)
        self._hanging.offer(hanging)
        self._crashing.offer(crashing)
        return list(whys.keys() - set(claimed))

    def mark_again(self, shard_range: ShardRange, known: Collection[int], due: Milliseconds) -> dict[int, Suspicion]:
        """Mark and claim the groups of a range that are poked here, and that Redis does not know: it has lost its data.

        :param known: the groups that Redis knows as suspects.
        :param due: see `offer`.
        :returns: why each group that was marked is one.
        :raises Unreachable: when Redis does not answer.
        """
        lost = [each for each in self._claims.held(shard_range) if each not in known and self.has(each)]
        if not lost:
            return {}
        with self._lock:
            whys = {group_id: self._why.get(group_id, Suspicion.SLOW) for group_id in lost}
        self._leases.suspects.mark_each(shard_range, whys)
        self._claims.take(shard_range, lost, due)
        return whys

    @property
    def in_hand(self) -> int:
        """How many groups are poked apart just now, or wait for it."""
        return len(self._hanging) + len(self._crashing)

    def retire(self) -> None:
        """Begin no further poke; a group whose poke has not begun is due again at once, here or in another process."""
        if not self.is_retired:
            self.is_retired = True
            self._give_back([*self._hanging.retire(), *self._crashing.retire()])

    def close(self) -> None:
        """Give back the groups that are poked apart: they are due again at once, here or in another process."""
        self.is_retired = True
        self._give_back([*self._hanging.close(), *self._crashing.close()])

    @property
    def is_busy(self) -> bool:
        """Whether suspects are poked here."""
        return self.in_hand > 0

    def _give_back(self, group_ids: Sequence[int]) -> None:
        with self._lock:
            whys = {group_id: self._why.pop(group_id) for group_id in group_ids if group_id in self._why}
        try:
            for shard_range, own in self._claims.let_go(whys).items():
                self._leases.suspects.mark_each(shard_range, {each: whys[each] for each in own}, lost_turn=True)
                self._claims.drop(shard_range, own)
        except Unreachable as error:
            log.warning("groups that were poked apart miss a turn", error=str(error))

    def has(self, group_id: int) -> bool:
        """Whether a group is poked apart here, or waits for it, or a poke of it goes on."""
        return self._crashing.has(group_id) or self._hanging.has(group_id) or self._goes_on(group_id)

    def _renew(self, group_ids: Sequence[int]) -> None:
        """Renew the claims on groups that are poked here, and mark a group again whose claim and mark had ended.

        :raises Unreachable: when Redis does not answer.
        """
        self._claims.renew(group_ids, self._restore)

    def _restore(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        with self._lock:
            whys = {group_id: self._why[group_id] for group_id in group_ids if group_id in self._why}
        self._leases.suspects.restore(shard_range, whys)

    def _take(self, reports: Sequence[Report]) -> None:
        """Take what was seen in a child process. A group that died there beside others is poked alone from now on.

        :raises Unreachable: when the database or Redis does not answer; what was not settled is due again.
        """
        hung, struck = set(), {report.group.id for report in reports if is_strike(report)}
        if struck:
            log.warning("a child died or froze; the groups in its hands are poked alone", groups=len(struck))
        with self._lock:
            for report in reports:
                beside = self._why.pop(report.group.id, None) is Suspicion.CLASS_HANGS
                if beside and report.outcome is Outcome.POKE_TIMEOUT:
                    hung.add(report.group.id)
        with self._claims.ending(reports) as by_range:
            for shard_range, own in by_range.items() if struck else ():
                alone = [report.group.id for report in own if report.group.id in struck]
                self._leases.suspects.mark(shard_range, alone, Suspicion.CRASHED)
            self._results.settle(reports, by_range)
            for shard_range, own in by_range.items():  # the group itself hangs, not only its class
                overran = [report.group.id for report in own if report.group.id in hung]
                self._leases.suspects.mark(shard_range, overran, Suspicion.OVERRAN)
