"""The terms on which all processes of one pool must agree, and the roster's entry of a live worker."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sensorpool.model.values import Milliseconds, ShardRange, shard_ranges

_GARBLED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
_MOST_SHARDS = 1_000_000  # the most that an entry may name


@dataclass(frozen=True, slots=True)
class Terms:
    """The pool that a worker serves, and how it cuts the shardcodes into ranges."""

    pool_id: str
    shards: int
    shard_code_upper_limit: int

    @property
    def ranges(self) -> list[ShardRange]:
        """The shard ranges of a worker with these terms."""
        return shard_ranges(self.shards, self.shard_code_upper_limit)

    def __str__(self) -> str:
        return f"{self.pool_id}:{self.shards}:{self.shard_code_upper_limit}"


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker in the roster.

    :param at: when the worker wrote its entry last, by the clock of Redis.
    :param tick: seconds.
    :param queues: the queues from which it takes jobs; None: not known, before it takes some.
    :param no_metrics: why it serves no metrics, where it should.
    """

    name: str
    terms: Terms
    at: Milliseconds
    tick: float  # seconds
    version: str
    queues: tuple[str, ...] | None = None
    no_metrics: str = ""

    def __str__(self) -> str:
        return self.name.rpartition("/")[0] or self.name


def read_worker(name: str, value: str) -> LiveWorker | None:
    """Read an entry of the roster, ``"<at> <terms> <json>"``; None if it cannot be read."""
    try:
        at, terms, more = value.split(" ", 2)
        pool_id, shards, limit = terms.split(":")
        fields: dict[str, Any] = json.loads(more)
        read = Terms(pool_id, int(shards), int(limit))
        if not 1 <= read.shards <= min(read.shard_code_upper_limit, _MOST_SHARDS):
            return None
        queues = tuple(str(queue) for queue in fields["queues"]) if isinstance(fields.get("queues"), list) else None
        no_metrics = fields["no_metrics"] if isinstance(fields.get("no_metrics"), str) else ""
        return LiveWorker(name, read, int(at), float(fields["tick"]), str(fields["version"]), queues, no_metrics)
    except _GARBLED:
        return None


def covering(shard_range: ShardRange, ranges: list[ShardRange]) -> list[ShardRange]:
    """Return the ranges that have shardcodes in common with ``shard_range``."""
    return [r for r in ranges if r.shard_min < shard_range.shard_max and shard_range.shard_min < r.shard_max]


def disagreements(ours: Terms, workers: Sequence[LiveWorker]) -> list[str]:
    """Return a line for each difference between live workers and these terms."""
    problems = []
    foreign = [worker for worker in workers if worker.terms.pool_id != ours.pool_id]
    if foreign:
        theirs = sorted({worker.terms.pool_id for worker in foreign})
        problems.append(
            f"Redis serves the pool {', '.join(theirs)} ({_names(foreign)}), and the database here is that of the pool "
            f"{ours.pool_id}: use the same DATABASE_URL and DATABASE_SCHEMA, or give one of the two pools a NAMESPACE"
        )
    for label, name in (("SHARDS", "shards"), ("SHARD_CODE_UPPER_LIMIT", "shard_code_upper_limit")):
        own = getattr(ours, name)
        others = [w for w in workers if w.terms.pool_id == ours.pool_id and getattr(w.terms, name) != own]
        if others:
            values = ", ".join(str(value) for value in sorted({getattr(w.terms, name) for w in others}))
            problems.append(
                f"{label} is {own} here and {values} at {_names(others)}: "
                "stop all workers and beats, set one value for all, and start them"
            )
    return problems


def untaken(queue: str, workers: Sequence[LiveWorker]) -> list[str]:
    """Return a line if there are workers and none of them takes jobs from a queue."""
    if not workers or any(worker.queues is None or queue in worker.queues for worker in workers):
        return []
    taken = ", ".join(sorted({each for worker in workers for each in worker.queues or ()})) or "none"
    return [
        f"no worker takes jobs from the queue {queue}: {_names(workers)} from {taken}: "
        f"leave -Q and task_default_queue out, or name {queue} among the queues"
    ]


def _names(workers: Sequence[LiveWorker]) -> str:
    shown = sorted(str(worker) for worker in workers)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
