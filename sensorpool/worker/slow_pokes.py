"""Pokes that take long go on after their job has ended, so that the job can give its range back.

The group of such a poke is marked as suspect in Redis, and claimed, so that no job pokes it as well. A thread takes the
reports.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.background import BackgroundThread
from sensorpool.instrumentation.logs import logger
from sensorpool.leases.dirty_flags import at_once
from sensorpool.leases.lease import Leases
from sensorpool.model.not_landed import each_report
from sensorpool.model.suspicion import Suspicion
from sensorpool.model.values import Milliseconds, ShardRange
from sensorpool.poke.poking import Poking
from sensorpool.poke.renewal import Renewal
from sensorpool.poke.unit import PokeUnit
from sensorpool.poke.watchdog import Watchdog
from sensorpool.worker.held_claims import HeldClaims
from sensorpool.worker.outside_results import OutsideResults

_LOOK_EVERY = 0.05  # seconds
_CLOSING = 1.0  # seconds that the thread has to take what is there

log = logger(__name__)

_Ended = Callable[[Collection[int]], None]


class SlowPokes:
    """The pokes that go on in this process after their job. Safe to share between threads.

    :param heartbeat: seconds between two renewals of their claims.
    """

    def __init__(
        self, leases: Leases, claims: HeldClaims, results: OutsideResults, watchdog: Watchdog, heartbeat: float
    ) -> None:
        self._leases = leases
        self._claims = claims
        self._results = results
        self._watchdog = watchdog
        self._renewal = Renewal(heartbeat)
        self._going_on: dict[Poking, _Ended | None] = {}  # each with who is told of pokes that have ended
        self._thread = BackgroundThread("poke-on", self._look_after)
        self._lock = threading.Lock()

    def adopt(
        self,
        poking: Poking,
        shard_range: ShardRange,
        group_ids: Sequence[int],
        now: Milliseconds,
        ended: _Ended | None = None,
    ) -> None:
        """Let pokes go on that take too long for their job; the watchdog is on guard until they have ended.

        :param group_ids: the groups that are being poked.
        :param ended: is told of groups whose poke has ended, on another thread; it may raise `Unreachable`.
        :raises Unreachable: when Redis does not answer; the pokes go on all the same.
        """
        try:  # the marks come first, for the thread may clear a group at once
            self._leases.suspects.mark(shard_range, group_ids, Suspicion.SLOW)
            self._claims.take(shard_range, group_ids, now)
        finally:
            self._claims.hold(shard_range, group_ids, now)
            with self._lock:
                self._going_on[poking] = ended
                self._thread.start()

    def has(self, group_id: int) -> bool:
        """Whether a poke of a group goes on."""
        with self._lock:
            return any(group_id in poking.outstanding for poking in self._going_on)

    @property
    def is_busy(self) -> bool:
        """Whether any poke goes on."""
        with self._lock:
            return bool(self._going_on)

    def close(self) -> None:
        """Look after the pokes no more."""
        self._thread.close(_CLOSING)

    def give_back(self) -> None:
        """Have groups whose pokes go on poked by another process at once: this process ends, and its pokes with it."""
        with self._lock:
            left = [group_id for poking in self._going_on for group_id in list(poking.outstanding)]
        try:
            for shard_range, own in self._claims.let_go(left).items():
                whys = dict.fromkeys(own, Suspicion.SLOW)
                self._leases.suspects.mark_each(shard_range, whys, lost_turn=True)
                self._claims.drop(shard_range, own)
        except Unreachable as error:
            log.warning("groups of slow pokes miss a turn", error=str(error))

    def _look_after(self) -> None:
        """Take the reports of the pokes that go on, until no poke goes on."""
        while going_on := self._still_going_on():
            for poking in going_on:
                self._take(poking)
            self._renew(going_on)
            if self._thread.wait(_LOOK_EVERY):
                return

    def _still_going_on(self) -> list[Poking]:
        with self._lock:
            if not self._going_on:
                self._thread.retire()  # under the lock: the next `adopt` starts another thread
            return list(self._going_on)

    def _take(self, poking: Poking) -> None:
        tell = self._going_on[poking]
        before = set() if tell is None else set(poking.outstanding)
        try:
            was_idle = poking.is_idle
            if reports := each_report(poking.step()):
                with self._claims.ending(reports) as by_range:
                    self._results.settle(reports, by_range)
            self._leave(poking.take_returned())
            if was_idle and (lost := poking.forget_lost()):
                log.warning("an error kept groups from being poked; they are due again", groups=len(lost))
                for shard_range, own in self._claims.let_go(lost).items():
                    self._claims.drop(shard_range, own)
        except Unreachable as error:
            log.warning("the results of slow pokes are lost; their groups are due again", error=str(error))
        except Exception:
            log.exception("the results of slow pokes are lost; their groups are due again")
        if tell is not None and (ended := before - poking.outstanding.keys()):
            with suppress(Unreachable):
                tell(ended)
        if poking.is_over:
            with self._lock:
                del self._going_on[poking]
            poking.end()
            self._watchdog.rest()

    def _leave(self, units: Sequence[PokeUnit]) -> None:
        """Leave groups to jobs: their shared call was slow, and each needs a poke of its own, as its budget allows."""
        for shard_range, own in self._claims.let_go(unit.group.id for unit in units).items():
            self._leases.dirty_flags.keep(shard_range, map(at_once, own))
            self._leases.suspects.clear(shard_range, own)
            self._claims.drop(shard_range, own)

    def _renew(self, going_on: list[Poking]) -> None:
        group_ids = (group_id for poking in going_on for group_id in list(poking.outstanding))
        self._renewal.if_due(lambda: self._claims.renew(group_ids, self._restore))

    def _restore(self, shard_range: ShardRange, group_ids: Sequence[int]) -> None:
        self._leases.suspects.restore(shard_range, dict.fromkeys(group_ids, Suspicion.SLOW))
