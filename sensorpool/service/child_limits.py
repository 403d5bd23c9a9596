"""Celery's limits to the jobs and the memory of a child (``--max-tasks-per-child``, ``--max-memory-per-child``).

Billiard's own end a child after a job whatever it still does, and what it pokes apart ends with it. So its limits are
taken from it, and it asks here after each job instead.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import billiard.pool

from sensorpool.errors import SettingsError

_ROOM = 1.25  # times what the main process takes, at least: a child is a copy of it, and works
_NEVER = 2**39  # KB
_SAID = "the child is replaced"

Kilobytes = int


class Limits(NamedTuple):
    """What a child may come to before it is replaced; None: any number."""

    jobs: int | None = None
    memory: Kilobytes | None = None

    def reached(self, jobs: int, memory: Kilobytes) -> str | None:
        """Say which limit a child has reached, if any."""
        if self.memory is not None and memory > self.memory:
            return f"it has taken {memory:,} KB of memory, of {self.memory:,}"
        if self.jobs is not None and jobs >= self.jobs:
            return f"it has done {jobs:,} jobs"
        return None

    def too_low(self) -> str | None:
        """Say in a worker's main process whether a child would be replaced after each job."""
        taken = billiard.pool.mem_rss()
        if self.memory is None or self.memory >= _ROOM * taken:
            return None
        return (
            f"max_memory_per_child is {self.memory:,} KB, and a child takes about {taken:,} from its start: it is "
            "replaced after each job; leave it out, or give it several times as much"
        )


def take_over(worker: Any) -> Limits:
    """Take its limits from a Celery worker that is being made.

    :raises SettingsError: when one is no number.
    """
    limits = Limits(
        _number("max_tasks_per_child", worker.max_tasks_per_child),
        _number("max_memory_per_child", worker.max_memory_per_child),
    )
    worker.max_tasks_per_child, worker.max_memory_per_child = None, _NEVER
    return limits


def look_after(limits: Limits, is_worn: Callable[[str | None], bool]) -> None:
    """Have billiard ask after each job of this child whether it is to be replaced: no job is lost then.

    :param is_worn: decides, knowing which limit the child has reached, if any.
    """
    memory_of, warn, jobs = billiard.pool.mem_rss, billiard.pool.warning, itertools.count(1)

    def ask() -> Kilobytes:
        taken = max(1, memory_of())
        return _NEVER + 1 if is_worn(limits.reached(next(jobs), taken)) else min(taken, _NEVER)

    def say(text: str, *more: Any) -> None:
        if text != _SAID:  # that it takes too much memory would not be true
            warn(text, *more)

    billiard.pool.mem_rss = ask
    billiard.pool.MAXMEM_USED_FMT, billiard.pool.warning = _SAID, say


def _number(name: str, value: Any) -> int | None:
    if not value:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise SettingsError(f"Celery's worker_{name} is no number: {str(value)[:40]!r}") from None
    return number if number > 0 else None
