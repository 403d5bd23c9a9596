"""What one holder of a range leaves to the next, as text in Redis. It may be lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter

from sensorpool.model.values import Milliseconds

MISSED = 3  # intervals (or ticks of a range) after which a group (or a range) has waited too long
Whole = Annotated[int, Field(ge=0, lt=2**63)]
"""An id, a time or a number, as it is read from Redis."""


def grace(tick: float, poke_timeout: float) -> Milliseconds:
    """Return for how long a group may be past its deadline, beside `MISSED` intervals. The parameters are seconds."""
    return round(1_000 * tick + 2_000 * poke_timeout)


@dataclass(slots=True)
class RangeState:
    """What a holder leaves to the next holder. Times are milliseconds by the database's clock."""

    last: Whole = 0  # the last load; 0: not known
    recent: list[Whole] = field(default_factory=list)  # new groups that have been poked, and will be loaded again
    # due groups that the last job left over, in the order of their turns, each with the time since then; 0: not known
    left: dict[Whole, Whole] = field(default_factory=dict)
    holder: str = ""
    groups: Whole = 0
    pokes: Whole = 0
    lag_ms: Whole = 0
    seconds: float = 0.0
    overdue: Whole = 0  # how many groups in `left` have waited over MISSED intervals; below: the longest such wait
    overdue_ms: Whole = 0
    pool: str = ""  # the pool id: new tables give out the same group ids again; empty: not known

    def leave_over(self, group_ids: Sequence[int], intervals: Mapping[int, Milliseconds], now: Milliseconds) -> None:
        """Set `left` to these groups, the longest left over first, and count the overdue ones.

        :param intervals: the intervals of these groups, which say what is overdue.
        :param now: when the job loaded them.
        """
        before = self.left
        # a time in the future (the clock was put back) would send its group behind all others
        since = {group_id: min(before.get(group_id) or now, now) for group_id in group_ids}
        waited = ((group_id, now - since[group_id]) for group_id in group_ids)
        overdue = [span for group_id, span in waited if span > MISSED * intervals.get(group_id, span)]
        self.overdue, self.overdue_ms = len(overdue), max(overdue, default=0)
        self.left = dict(sorted(since.items(), key=lambda each: each[1]))

    def text(self) -> str:
        """Return the state as text, for `read_state`."""
        return _STATE.dump_json(self).decode()


_STATE = TypeAdapter(RangeState)
_IDS = TypeAdapter(list[Whole])


def read_state(text: str) -> RangeState:
    """Read what a holder left.

    :raises ValueError: when it is not ours.
    """
    return _STATE.validate_json(text) if text else RangeState()


def read_ids(found: str | Sequence[str]) -> list[int]:
    """Read ids of groups: a list as JSON, or one text for each.

    :raises ValueError: when they are not ours.
    """
    if isinstance(found, str):
        return _IDS.validate_json(found) if found else []
    return _IDS.validate_python(list(found))
