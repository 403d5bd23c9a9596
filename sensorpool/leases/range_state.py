"""What one holder of a range leaves to the next, as text in Redis. It may be lost, or overwritten by other programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any

from sensorpool.model.values import Milliseconds

_HIGHEST = 253_402_300_799_999  # milliseconds: the end of the year 9999; ids stay far below it
MISSED = 3  # intervals (or ticks of a range) after which a group (or a range) has waited too long
_GARBLED = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(slots=True)
class RangeState:
    """What a holder leaves to the next holder. Times are milliseconds by the database's clock."""

    last: Milliseconds = 0  # the last load; 0: not known
    recent: list[int] = field(default_factory=list)  # new groups that have been poked, and will be loaded again
    left: list[int] = field(default_factory=list)  # due groups that the last job left over
    holder: str = ""
    groups: int = 0
    pokes: int = 0
    lag_ms: Milliseconds = 0
    seconds: float = 0.0
    left_since: dict[int, Milliseconds] = field(default_factory=dict)  # group id in `left`: since when it is left over
    overdue: int = 0  # how many groups in `left` have waited over MISSED intervals; below: the longest such wait
    overdue_ms: Milliseconds = 0
    pool: str = ""  # the pool id: new tables give out the same group ids again; empty: not known

    def in_turn(self, left: Sequence[int], intervals: Mapping[int, Milliseconds], now: Milliseconds) -> list[int]:
        """Return the groups that a job leaves over, the longest left over first; set `left_since` and `overdue`.

        :param intervals: the intervals of these groups, which say what is overdue.
        :param now: when the job loaded them.
        """
        before = self.left_since
        # a time in the future (the clock was put back) would send its group behind all others
        self.left_since = {group_id: min(before.get(group_id, now), now) for group_id in left}
        again = ((group_id, now - before[group_id]) for group_id in left if group_id in before)
        overdue = [waited for group_id, waited in again if waited > MISSED * intervals.get(group_id, waited)]
        self.overdue, self.overdue_ms = len(overdue), max(overdue, default=0)
        return sorted(left, key=self.left_since.__getitem__)

    def text(self) -> str:
        """Return the state as text, for `read_state`."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        # runs of one time, because there may be many groups: [since, how many of `left`], ...; 0: not known
        times = groupby(self.left_since.get(group_id, 0) for group_id in self.left) if self.left_since else ()
        values["left_since"] = [[since, sum(1 for _ in run)] for since, run in times]
        return json.dumps(values, separators=(",", ":"))


def read_state(text: str) -> RangeState:
    """Read what a holder left. If any part of it cannot be read, the whole state counts as lost."""
    try:
        found = json.loads(text) if text else {}
        left = [_whole(group_id) for group_id in found.get("left", ())]
        return RangeState(
            last=_whole(found.get("last", 0)),
            recent=[_whole(group_id) for group_id in found.get("recent", ())],
            left=left,
            holder=str(found.get("holder", "")),
            groups=_whole(found.get("groups", 0)),
            pokes=_whole(found.get("pokes", 0)),
            lag_ms=_whole(found.get("lag_ms", 0)),
            seconds=float(found.get("seconds", 0.0)),
            left_since=_read_runs(left, found.get("left_since", ())),
            overdue=_whole(found.get("overdue", 0)),
            overdue_ms=_whole(found.get("overdue_ms", 0)),
            pool=str(found.get("pool", "")),
        )
    except _GARBLED:
        return RangeState()


def read_in_flight(text: str) -> list[int]:
    """Read the ids of the groups in flight; a text that cannot be read names none."""
    try:
        return [_whole(group_id) for group_id in json.loads(text)] if text else []
    except _GARBLED:
        return []


def _read_runs(group_ids: Sequence[int], runs: Iterable[Any]) -> dict[int, Milliseconds]:
    """Read since when groups have been left over; empty where the runs do not fit these groups.

    :raises ValueError: when the runs are malformed.
    """
    left_since: dict[int, Milliseconds] = {}
    place = 0
    for since, count in runs:
        run = group_ids[place : place + _whole(count)]
        if _whole(since):
            left_since |= dict.fromkeys(run, _whole(since))
        place += _whole(count)
    return left_since if place == len(group_ids) else {}


def _whole(value: Any) -> int:
    """Read an id or a time.

    :raises ValueError: when it is negative, or beyond every id and time.
    """
    number = int(value)
    if not 0 <= number <= _HIGHEST:
        raise ValueError(f"{number} is neither an id nor a time")
    return number
