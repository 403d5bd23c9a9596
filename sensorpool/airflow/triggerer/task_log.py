"""Lines for the log of a task that waits: each change and each error, and one now and then."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sensorpool.client.pool import Pool
from sensorpool.leases.poke_log import Poked, latest_pokes
from sensorpool.model.states import Outcome
from sensorpool.model.times import spell_time

_QUIET = frozenset({Outcome.LANDED, Outcome.NOT_LANDED})
LOOK_EVERY = 60.0  # seconds between two looks at what the pool poked


@dataclass(slots=True)
class _Waiting:
    group_id: int
    shardcode: int
    members: int
    said_at: float
    said: str = ""


class TaskLog:
    """Remembers the last line of each task.

    :param every: seconds between two lines that say that nothing has changed.
    """

    def __init__(self, pool: Pool, every: float) -> None:
        self._pool = pool
        self._every = every
        self._waiting: dict[int, _Waiting] = {}
        self._looked = time.monotonic()

    def forget(self, instance_id: int) -> None:
        """Forget an instance that waits no more."""
        self._waiting.pop(instance_id, None)

    def first_lines(self, rows: Iterable[Any]) -> dict[int, str]:
        """Take note of the instances that wait; return the first line of each new one."""
        lines: dict[int, str] = {}
        for row in rows:
            known = self._waiting.get(row.id)
            if known is not None:
                known.members = row.members or 1  # without its group, rescue ends it
                continue
            self._waiting[row.id] = _Waiting(row.group_id, row.shardcode, row.members or 1, time.monotonic())
            lines[row.id] = (
                f"sensorpool: instance {row.id} waits in the pool since {spell_time(row.start_date)}, "
                f"at the latest until {spell_time(row.timeout_at)}{_others(row.members)}"
            )
        return lines

    def lines(self) -> dict[int, str]:
        """Return the next lines, by instance.

        :raises Unreachable: when Redis does not answer.
        """
        now = time.monotonic()
        if now - self._looked < min(LOOK_EVERY, self._every) or not self._waiting:
            return {}
        self._looked = now
        waiting = dict(self._waiting)
        by_range: dict[Any, set[int]] = {}
        for one in waiting.values():
            by_range.setdefault(self._pool.range_of(one.shardcode), set()).add(one.group_id)
        pokes: dict[int, Poked] = {}
        for shard_range, group_ids in by_range.items():
            pokes |= latest_pokes(self._pool.leases.poke_log.records(shard_range), group_ids)
        lines: dict[int, str] = {}
        for instance_id, one in waiting.items():
            line = self._line(one, pokes.get(one.group_id), now)
            if line is not None:
                lines[instance_id] = line
        return lines

    def _line(self, one: _Waiting, poked: Poked | None, now: float) -> str | None:
        said = "" if poked is None or poked.outcome in _QUIET else f"{poked.outcome} {poked.reason or ''}"
        is_due = now - one.said_at >= self._every
        if said == one.said and not is_due:
            return None
        one.said, one.said_at = said, now
        last = "not poked lately" if poked is None else f"last poked at {spell_time(poked.at)}: {poked.outcome}"
        reason = f": {poked.reason}" if poked is not None and poked.reason else ""
        return f"sensorpool: still waits; {last}{reason}{_others(one.members)}"


def _others(members: int | None) -> str:
    match (members or 1) - 1:
        case 0:
            return ""
        case 1:
            return "; one other waits for the same"
        case others:
            return f"; {others} others wait for the same"
