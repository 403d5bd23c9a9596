"""The settler: the one way to a terminal state. It counts and publishes each committed result for its callers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from sensorpool.errors import SchemaMismatch, Unreachable
from sensorpool.instrumentation import spans
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.instrumentation.logs import logger
from sensorpool.instrumentation.redaction import one_line
from sensorpool.model.states import Ending, Outcome
from sensorpool.model.values import Fact, Flushed, Milliseconds
from sensorpool.settle import flush
from sensorpool.store.database import Database

Result = TypeVar("Result")

_SURE = frozenset({Outcome.LANDED, Outcome.SKIP})  # outcomes that the end of a service does not bring about

log = logger(__name__)


def _nothing(_: object) -> None:
    """Observe nothing, in a process without metrics."""


def _goes_on() -> bool:
    """Stand in for a process that nothing tells to end."""
    return False


class Settler:
    """Settles, cancels, hands back and fails; observes and delivers after each commit. Safe to share between threads.

    :param deliver: has a committed flush published, without waiting for a broker.
    :param observe: is called with each committed flush.
    :param observe_unsettled: is called with the number of groups whose result could not be written.
    :param is_ending: whether the process was told to end. What ends a service often ends the commands and connections
        of its pokes too: then only `_SURE` outcomes are settled, and the other groups are due again, here or elsewhere.
    :param tick_ms: the pool's tick in milliseconds.
    """

    def __init__(
        self,
        database: Database,
        deliver: Callable[[Flushed], object],
        observe: Callable[[Flushed], object] = _nothing,
        observe_unsettled: Callable[[int], object] = _nothing,
        *,
        is_ending: Callable[[], bool] = _goes_on,
        tick_ms: Milliseconds,
    ) -> None:
        self.database = database
        self.deliver = deliver
        self._observe = observe
        self._observe_unsettled = observe_unsettled
        self._is_ending = is_ending
        self._tick_ms = tick_ms

    def settle(self, facts: Sequence[Fact], timeouts: bool = True) -> int:
        """Settle facts; return how many instances ended.

        :param timeouts: False while the clock is in doubt; then no instance times out.
        :raises Unreachable: when the database does not answer; the groups that were not settled are due again.
        """
        if any(fact.outcome not in _SURE for fact in facts) and self._is_ending():
            facts = [fact for fact in facts if fact.outcome in _SURE]
        ended = unsettled = 0
        with spans.span("settle", facts=len(facts)):
            for some in flush.in_flushes(facts):
                for flushed in flush.flush(self.database, some, tick_ms=self._tick_ms, timeouts=timeouts):
                    ended += self._tell(flushed)
                    unsettled += len(flushed.unsettled)
        if unsettled:
            self._observe_unsettled(unsettled)
        return ended

    def cancel(self, reasons: Mapping[int, str]) -> int:
        """Cancel instances, by id, each with its reason. An instance that is not sensing stays as it is.

        :returns: how many were cancelled.
        :raises Unreachable: when the database does not answer; then nothing is cancelled.
        """
        return self._tell(flush.cancel(self.database, reasons))

    def hand_back(self, reasons: Mapping[int, str]) -> int:
        """Have the waiters of instances poke by themselves: see `cancel`."""
        return self._tell(flush.cancel(self.database, reasons, Ending.HANDED_BACK))

    def fail_groupless(self, instances: Sequence[tuple[int, int]]) -> int:
        """Fail instances (id, group id) without a group; an instance that cannot be written stays, and the rest go on.

        :returns: how many failed.
        :raises Unreachable: when the database does not answer; earlier instances have failed.
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
        """Run a change that also settles instances, as a registration supersedes lower tries.

        :param committed: is called after the commit; returns the flushes of the change.
        :param again: is run in place of the change after a failed attempt (`Transaction`).
        :param kept: is asked after a COMMIT without an answer whether the result is in the database (`Transaction`).
        :raises Unreachable: when the database does not answer.
        """
        done = self.database.transaction(again=again, kept=kept).run(change)
        for flushed in committed(done):
            self._tell(flushed)
        return done

    def _tell(self, flushed: Flushed) -> int:
        """Count a committed flush and have it published; return how many instances ended."""
        failpoint("settle.after_commit")
        self._observe(flushed)
        self.deliver(flushed)
        return len(flushed.settled)
