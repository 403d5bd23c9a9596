"""Lines for the log of a task that waits: one for each change and each error, and a regular one."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sensorpool.client.pool import Pool
from sensorpool.leases.poke_log import Poked, latest_pokes
from sensorpool.model.states import Outcome
from sensorpool.model.words import spell_time

_QUIET = frozenset({Outcome.LANDED, Outcome.NOT_LANDED})
READ_EVERY = 60.0  # seconds between two reads of the poke log


@dataclass(slots=True)
class _Waiting:
    group_id: int
    shardcode: int
    members: int
    logged_at: float
    logged: str = ""


class TaskLog:
    """Makes the lines, and remembers the last one of each task.

    :param every: seconds between two lines without a change.
    """

    def __init__(self, pool: Pool, every: float) -> None:
        self._pool = pool
        self._every = every
        self._waiting: dict[int, _Waiting] = {}
        self._read_at = time.monotonic()

    def forget(self, instance_id: int) -> None:
        """Forget an instance that no longer waits."""
        self._waiting.pop(instance_id, None)

    def first_lines(self, rows: Iterable[Any]) -> dict[int, str]:
        """Note the instances that wait; return the first line of each new one."""
        lines: dict[int, str] = {}
        for row in rows:
            known = self._waiting.get(row.id)
            if known is not None:
                known.members = row.members or 1  # without its group, which rescue cleans up
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
        if now - self._read_at < min(READ_EVERY, self._every) or not self._waiting:
            return {}
        self._read_at = now
        waiting = dict(self._waiting)
        by_range: dict[Any, set[int]] = {}
        for waiter in waiting.values():
            by_range.setdefault(self._pool.range_of(waiter.shardcode), set()).add(waiter.group_id)
        pokes: dict[int, Poked] = {}
        for shard_range, group_ids in by_range.items():
            pokes |= latest_pokes(self._pool.leases.poke_log.records(shard_range), group_ids)
        lines: dict[int, str] = {}
        for instance_id, waiter in waiting.items():
            line = self._line(waiter, pokes.get(waiter.group_id), now)
            if line is not None:
                lines[instance_id] = line
        return lines

    def _line(self, waiter: _Waiting, poked: Poked | None, now: float) -> str | None:
        outcome = "" if poked is None or poked.outcome in _QUIET else f"{poked.outcome} {poked.reason or ''}"
        is_due = now - waiter.logged_at >= self._every
        if outcome == waiter.logged and not is_due:
            return None
        waiter.logged, waiter.logged_at = outcome, now
        last = "not poked lately" if poked is None else f"last poked at {spell_time(poked.at)}: {poked.outcome}"
        reason = f": {poked.reason}" if poked is not None and poked.reason else ""
        return f"sensorpool: still waits; {last}{reason}{_others(waiter.members)}"


def _others(members: int | None) -> str:
    match (members or 1) - 1:
        case 0:
            return ""
        case 1:
            return "; one other waits for the same"
        case others:
            return f"; {others} others wait for the same"
