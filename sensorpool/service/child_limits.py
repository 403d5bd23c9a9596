"""Celery's limits for the jobs and the memory of a child (``--max-tasks-per-child``, ``--max-memory-per-child``).

Billiard would end a child after a job although the child still pokes groups apart. So this module takes the limits from
billiard, and billiard asks this module after each job instead.

Celery's soft time limit is a signal (SIGUSR1) at which billiard raises an exception, anywhere in a job. A poke may send
the same signal. The exception would lose a group that is on its way to a lane. So the signal means nothing here; jobs
have a hard limit.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import billiard.pool

from sensorpool.errors import SettingsError

_ROOM = 1.25  # a child's limit should be so many times the memory of the main process, of which it is a copy
_NEVER = 2**39  # KB
_SAID = "the child is replaced"

Kilobytes = int


class Limits(NamedTuple):
    """The jobs and the memory after which a child is replaced; None: no limit."""

    jobs: int | None = None
    memory: Kilobytes | None = None

    def reached(self, jobs: int, memory: Kilobytes) -> str | None:
        """Return which limit a child has reached, or None."""
        if self.memory is not None and memory > self.memory:
            return f"it has taken {memory:,} KB of memory, of {self.memory:,}"
        if self.jobs is not None and jobs >= self.jobs:
            return f"it has done {jobs:,} jobs"
        return None

    def too_low(self) -> str | None:
        """Return a warning if a child would be replaced after each job. Runs in a worker's main process."""
        taken = billiard.pool.mem_rss()
        if self.memory is None or self.memory >= _ROOM * taken:
            return None
        return (
            f"max_memory_per_child is {self.memory:,} KB, and a child takes about {taken:,} from its start: it is "
            "replaced after each job; leave it out, or give it several times as much"
        )


def take_over(worker: Any) -> Limits:
    """Take the limits from a Celery worker that is being made.

    :raises SettingsError: when a limit is no number.
    """
    limits = Limits(
        _number("max_tasks_per_child", worker.max_tasks_per_child),
        _number("max_memory_per_child", worker.max_memory_per_child),
    )
    worker.max_tasks_per_child, worker.max_memory_per_child = None, _NEVER
    return limits


def look_after(limits: Limits, is_worn: Callable[[str | None], bool]) -> None:
    """Have billiard ask after each job whether this child is to be replaced; no job is lost then.

    :param is_worn: decides; it is called with the limit that the child has reached, or None.
    """
    memory_of, warn, jobs = billiard.pool.mem_rss, billiard.pool.warning, itertools.count(1)

    def ask() -> Kilobytes:
        taken = max(1, memory_of())
        return _NEVER + 1 if is_worn(limits.reached(next(jobs), taken)) else min(taken, _NEVER)

    def say(text: str, *more: Any) -> None:
        if text != _SAID:  # billiard's warning of too much memory would be wrong
            warn(text, *more)

    billiard.pool.mem_rss = ask
    billiard.pool.MAXMEM_USED_FMT, billiard.pool.warning = _SAID, say


def drop_soft_limit() -> None:
    """Have billiard's signal of a soft time limit interrupt nothing in this child. A process that a poke starts has its
    default again."""
    billiard.pool.soft_timeout_sighandler = lambda *_: None


def _number(name: str, value: Any) -> int | None:
    if not value:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise SettingsError(f"Celery's worker_{name} is no number: {str(value)[:40]!r}") from None
    return number if number > 0 else None
