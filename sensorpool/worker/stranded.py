"""What one process cannot poke is left to the others: since when, and when that counts against a group. No I/O."""

from collections.abc import Collection, Mapping

from sensorpool.config.settings import Settings
from sensorpool.leases.range_state import RangeState
from sensorpool.model.values import Fact, Milliseconds, Report
from sensorpool.settle.decide import matters
from sensorpool.settle.infra_window import from_then_on, left_to_others, turn_of_others
from sensorpool.worker import passing_on


def forget_poked_apart(state: RangeState, poked: Mapping[int, Milliseconds]) -> None:
    """Take the groups out of a range's stranded ones that a process has poked apart since.

    :param poked: when, by group id.
    """
    for group_id, at in poked.items():
        if state.stranded.get(group_id, at + 1) <= at:
            del state.stranded[group_id]
            if at >= state.last and group_id in state.left:
                state.left.remove(group_id)


class Stranded:
    """The groups of a range that one round of a job leaves to other processes.

    :param state: what the last holder left; it names the groups that were stranded before.
    :param trusted: whether deadlines may be judged by the clock.
    """

    def __init__(self, state: RangeState, settings: Settings, *, trusted: bool) -> None:
        self._state = state
        self._settings = settings
        self._trusted = trusted
        self._since: dict[int, Milliseconds] = {}  # of the groups that this round leaves to others

    def leave(self, report: Report, began_at: Milliseconds) -> Fact | None:
        """Leave a group that this process cannot poke to the others; return what that means for it, if anything.

        A group without a process that can poke it ends once the others have had their turn.
        """
        group, settings, state = report.group, self._settings, self._state
        since = from_then_on(state.stranded.get(group.id, began_at), group.registered_at, began_at)
        self._since[group.id] = since
        if not self._trusted:
            return None
        fact = Fact(group.id, group.version, began_at, report.outcome, report.reason)
        turn = turn_of_others(group.poke_interval, settings.tick_ms)
        fact_now = left_to_others(fact, since, settings.infra_failure_window, turn, state.resumed)
        if fact_now is not None and matters(fact_now.outcome, fact_now.began_at, group.next_deadline):
            return fact_now
        return None

    def hand_over(self, not_here: Collection[int], not_poked: Collection[int]) -> float | None:
        """Note in the state what is left to other processes; return in how many seconds the range goes to them, if so.

        :param not_here: stranded groups that the load passed over: this process is known not to poke them.
        :param not_poked: groups that this round did not get round to, or has poked apart.
        """
        state, before = self._state, self._state.stranded
        if not before and not self._since:
            return None
        again = {*not_here, *not_poked}
        state.stranded = {group_id: since for group_id, since in before.items() if group_id in again} | self._since
        if not before.keys() <= state.stranded.keys():
            state.passes = 0  # this process could poke some of them
        return passing_on.span(state, self._settings.tick) if self._since or not_here else None
