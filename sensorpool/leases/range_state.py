"""What one holder of a range leaves to the next, as text in Redis: lost at any time, or written over by anybody."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any

from sensorpool.model.values import Milliseconds

_HIGHEST = 253_402_300_799_999  # milliseconds: the end of the year 9999, far more than there will be ids
MISSED = 3  # intervals (or ticks of a range) after which somebody has waited for too long
_GARBLED = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(slots=True)
class RangeState:
    """What a holder leaves to the next one. Times in milliseconds by the database's clock."""

    last: Milliseconds = 0  # the last load; 0: not known
    recent: list[int] = field(default_factory=list)  # new groups that were poked already and will be loaded again
    left: list[int] = field(default_factory=list)  # due groups that the last job did not get round to
    infra: dict[int, Milliseconds] = field(default_factory=dict)  # group id: infrastructure failures since
    holder: str = ""
    groups: int = 0
    pokes: int = 0
    lag_ms: Milliseconds = 0
    seconds: float = 0.0
    stranded: dict[int, Milliseconds] = field(default_factory=dict)  # group id: no process could poke it since
    passes: int = 0  # how often the range was passed on for these
    resumed: Milliseconds = 0  # when the range was looked at again after an outage
    left_since: dict[int, Milliseconds] = field(default_factory=dict)  # since when groups in `left` have been left over
    overdue: int = 0  # how many of these have waited for intervals, and for how long the first of them
    overdue_ms: Milliseconds = 0
    pool: str = ""  # whose ids these are: they are given out again where the tables are made anew; empty: not known

    def in_turn(self, left: Sequence[int], intervals: Mapping[int, Milliseconds], now: Milliseconds) -> list[int]:
        """Return groups that a job leaves over, those first that have been so for longest, and note since when.

        :param intervals: of these groups; with them those are counted that are overdue.
        :param now: when the job loaded them.
        """
        before = self.left_since
        # a time to come, by a clock that was put back since, would let all others have their turn first
        self.left_since = {group_id: min(before.get(group_id, now), now) for group_id in left}
        again = ((group_id, now - before[group_id]) for group_id in left if group_id in before)
        overdue = [waited for group_id, waited in again if waited > MISSED * intervals.get(group_id, waited)]
        self.overdue, self.overdue_ms = len(overdue), max(overdue, default=0)
        return sorted(left, key=self.left_since.__getitem__)

    def text(self) -> str:
        """Return it as `read_state` reads it."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        # as runs of one time, for there may be many groups: [since, how many of `left`], ...; 0: not known
        times = groupby(self.left_since.get(group_id, 0) for group_id in self.left) if self.left_since else ()
        found["left_since"] = [[since, sum(1 for _ in run)] for since, run in times]
        return json.dumps(found, separators=(",", ":"))


def read_state(text: str) -> RangeState:
    """Read what a holder left; a state that cannot be read counts as lost, whole."""
    try:
        found = json.loads(text) if text else {}
        left = [_whole(group_id) for group_id in found.get("left", ())]
        return RangeState(
            last=_whole(found.get("last", 0)),
            recent=[_whole(group_id) for group_id in found.get("recent", ())],
            left=left,
            infra={_whole(group_id): _whole(since) for group_id, since in found.get("infra", {}).items()},
            holder=str(found.get("holder", "")),
            groups=_whole(found.get("groups", 0)),
            pokes=_whole(found.get("pokes", 0)),
            lag_ms=_whole(found.get("lag_ms", 0)),
            seconds=float(found.get("seconds", 0.0)),
            stranded={_whole(group_id): _whole(since) for group_id, since in found.get("stranded", {}).items()},
            passes=_whole(found.get("passes", 0)),
            resumed=_whole(found.get("resumed", 0)),
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
    """Read since when groups have been left over; nothing is known where the runs are not those of these groups.

    :raises ValueError: when they are none.
    """
    found: dict[int, Milliseconds] = {}
    place = 0
    for since, count in runs:
        run = group_ids[place : place + _whole(count)]
        if _whole(since):
            found |= dict.fromkeys(run, _whole(since))
        place += _whole(count)
    return found if place == len(group_ids) else {}


def _whole(value: Any) -> int:
    """Read an id or a time.

    :raises ValueError: when it is none that a database can be asked with, or a clock can say.
    """
    number = int(value)
    if not 0 <= number <= _HIGHEST:
        raise ValueError(f"{number} is no id, and no time")
    return number
