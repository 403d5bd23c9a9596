"""The settler: the one way to a terminal state. It counts and publishes each committed result for its callers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from sensorpool.instrumentation import spans
from sensorpool.instrumentation.failpoint import failpoint
from sensorpool.model.states import Ending, Outcome
from sensorpool.model.values import Fact, Flushed, Milliseconds
from sensorpool.settle import flush
from sensorpool.store.database import Database

Result = TypeVar("Result")

_SURE = frozenset({Outcome.LANDED, Outcome.SKIP})  # outcomes that the end of a service does not bring about


class Settler:
    """Settles, cancels and hands back; observes and delivers after each commit. Safe to share between threads.

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
        observe: Callable[[Flushed], object] = lambda _: None,
        observe_unsettled: Callable[[int], object] = lambda _: None,
        *,
        is_ending: Callable[[], bool] = lambda: False,
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
