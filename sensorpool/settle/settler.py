"""The one way to a terminal state: what a commit has settled is counted and told, and no caller has to remember to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from sensorpool.errors import SchemaMismatch, Unreachable
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model import unsettled
from sensorpool.model.states import Ending
from sensorpool.model.values import Fact, Flushed, Milliseconds, Settlement
from sensorpool.settle import flush
from sensorpool.store.database import Database

Result = TypeVar("Result")

log = logger(__name__)


def _nothing(_: object) -> None:
    """Observe nothing: in a process that counts nothing."""


class Settler:
    """Settles, cancels, hands back and fails; observes and delivers after each commit. Safe to share between threads.

    :param deliver: has a flush told to those who wait, without waiting for a broker.
    :param observe: is told of each flush that was committed.
    :param observe_unsettled: is told of how many groups a result could not be written.
    :param tick_ms: the pool's tick.
    :param window: seconds after which a group fails whose result cannot be written.
    """

    def __init__(
        self,
        database: Database,
        deliver: Callable[[Flushed], object],
        observe: Callable[[Flushed], object] = _nothing,
        observe_unsettled: Callable[[int], object] = _nothing,
        *,
        tick_ms: Milliseconds,
        window: float,
    ) -> None:
        self.database = database
        self.deliver = deliver
        self._observe = observe
        self._observe_unsettled = observe_unsettled
        self._tick_ms = tick_ms
        self._window = window

    def settle(
        self, facts: Sequence[Fact], timeouts: bool = True, known: unsettled.Known = unsettled.nothing_known
    ) -> Settlement:
        """Settle facts.

        :param timeouts: false while the clock is in doubt; then nothing times out.
        :param known: returns since when groups are unsettled that were so before; asked only where some are now.
        :raises Unreachable: when the database does not answer; what was not settled is due again.
        """
        ended, causes = self._flush(facts, timeouts)
        if not causes:
            return Settlement(ended, {})
        noted = unsettled.noted(facts, causes, known(causes.keys()))
        if overdue := unsettled.overdue(facts, noted, self._window):
            failed, causes = self._flush(overdue, timeouts)
            ended += failed
            for group_id in {fact.group_id for fact in overdue} - causes.keys():
                del noted[group_id]
        self._observe_unsettled(len(noted))
        return Settlement(ended, noted)

    def cancel(self, reasons: Mapping[int, str]) -> int:
        """Cancel instances, by id, with the reason of each. Those that are not sensing stay as they are.

        :returns: how many ended.
        :raises Unreachable: when the database does not answer; then nothing is cancelled.
        """
        return self._tell(flush.cancel(self.database, reasons))

    def hand_back(self, reasons: Mapping[int, str]) -> int:
        """Have the waiters of instances poke by themselves: see `cancel`."""
        return self._tell(flush.cancel(self.database, reasons, Ending.HANDED_BACK))

    def fail_groupless(self, instances: Sequence[tuple[int, int]]) -> int:
        """Fail instances (id, group id) whose group is gone; one that cannot be written stays, and stops no other.

        :returns: how many ended.
        :raises Unreachable: when the database does not answer; those before are failed.
        """
        try:
            flushed = flush.fail_groupless(self.database, instances)
        except (Unreachable, SchemaMismatch):
            raise
        except Exception as error:
            if len(instances) > 1:
                middle = len(instances) // 2
                return self.fail_groupless(instances[:middle]) + self.fail_groupless(instances[middle:])
            instance_id = instances[0][0]
            log.error(
                "an instance whose group is gone cannot be failed", instance_id=instance_id, error=one_line(error)
            )
            return 0
        return self._tell(flushed)

    def commit(
        self,
        change: Callable[[Connection], Result],
        committed: Callable[[Result], Iterable[Flushed]],
        *,
        again: Callable[[Connection], Result] | None = None,
        kept: Callable[[Connection, Result], bool] | None = None,
    ) -> Result:
        """Run a change that settles beside what else it does, as a registration supersedes lower tries.

        :param committed: is called after the commit; returns what the change has settled.
        :param again: what is run in place of the change after a failed attempt (`Transaction`).
        :param kept: asks whether the result of an attempt whose COMMIT was not answered is there (`Transaction`).
        :raises Unreachable: when the database does not answer.
        """
        done = self.database.transaction(again=again, kept=kept).run(change)
        for flushed in committed(done):
            self._tell(flushed)
        return done

    def _flush(self, facts: Sequence[Fact], timeouts: bool) -> tuple[int, dict[int, str]]:
        """Return how many instances ended, and the groups whose result could not be written, with why not."""
        ended, causes = 0, dict[int, str]()
        for some in flush.in_flushes(facts):
            for flushed in flush.flush(self.database, some, tick_ms=self._tick_ms, timeouts=timeouts):
                ended += self._tell(flushed)
                causes |= flushed.unsettled
        return ended, causes

    def _tell(self, flushed: Flushed) -> int:
        """Count what was committed and have it told; return how many instances ended."""
        failpoint("settle.after_commit")
        self._observe(flushed)
        self.deliver(flushed)
        return len(flushed.settled)
