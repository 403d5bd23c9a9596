"""The values that the verbs hand to each other. Values that come by the thousand are tuples, which cost least."""

import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from sensorpool.model.states import Ending, Outcome, State

LONGEST_SPAN = 10 * 365 * 86_400.0  # seconds
Milliseconds = int
"""Times are milliseconds since 1970 UTC by the database's clock; spans are milliseconds too."""
Span = float | timedelta
"""A span of time as callers give it: seconds, or a timedelta."""


@dataclass(frozen=True, slots=True)
class PokeReturnValue:
    """A poke's return value instead of a boolean: done or not, and a value for XCom (as Airflow's class)."""

    is_done: bool
    xcom_value: Any = None

    def __bool__(self) -> bool:
        return self.is_done


_begin_of = attrgetter("shard_min")
_FRESH = "-"  # the dag_id of a key without a DAG


class Key(NamedTuple):
    """The key of a waiter: AIP-17's key of a task instance, and its try. Plain Celery users may leave it to `fresh`."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1
    try_number: int = 1

    @classmethod
    def fresh(cls, operator: str) -> "Key":
        """Make a key that no other waiter has."""
        return cls(dag_id=_FRESH, task_id=operator[-250:], run_id=uuid.uuid4().hex)

    @property
    def is_fresh(self) -> bool:
        """Whether `fresh` has made it."""
        return self.dag_id == _FRESH

    @property
    def task(self) -> tuple[str, str, str, int]:
        """The task instance without its try."""
        return (self.dag_id, self.task_id, self.run_id, self.map_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One sensor to register: the condition, the waiter, and how to wait.

    :param sensor: a class path (``pkg.mod.Class`` or ``pkg.mod:Class``), the class itself, a sensor object whose class
        names its constructor's arguments in ``poke_context_fields``, or a path of a file (``pathlib.Path``).
    :param poke_context: the JSON object of the constructor's arguments; None for a sensor object.
    :param on_settled: a Celery signature (or chain, group, chord) that is sent, with the result as its first argument,
        when the instance is settled.
    :param on_success: the same, sent when it landed.
    :param on_failure: the same, sent when it ended otherwise.
    :param external_id: the waiter's id in its own system: in Airflow, the id of the try of the task instance.
    :param logical_date: the logical date of the waiter's DAG run, with a time zone.
    :param family: the name of the series that the condition belongs to, as yesterday's and today's partition do: what
        is usual in it is known of its earlier landings. Default: the condition is a series of its own.
    :param backend: the name of what its pokes ask, for budgets and outages. Default: what ``backend_of`` of its class
        returns, else the Airflow connection or the host in its context, else its class.
    :param location: the URL of what it waits for (``s3://bucket/folder/name``; a folder ends with a slash), for
        wake-ups. Default: what ``location_of`` of its class returns, else none.
    """

    sensor: object
    poke_context: Mapping[str, Any] | None = None
    key: Key | None = None
    poke_interval: Span | None = None
    timeout: Span | None = None
    execution_timeout: Span | None = None
    soft_fail: bool = False
    silent_fail: bool = False
    never_fail: bool = False
    exponential_backoff: bool = False
    max_wait: Span | None = None
    on_settled: Mapping[str, Any] | None = None
    on_success: Mapping[str, Any] | None = None
    on_failure: Mapping[str, Any] | None = None
    external_id: str | None = None
    logical_date: datetime | None = None
    family: str | None = None
    backend: str | None = None
    location: str | None = None


class Registered(NamedTuple):
    """A registered sensor instance. ``created`` is false if the same key and try existed already.

    ``opened`` is true if no other instance waited for the same condition.
    """

    id: int
    group_id: int
    hashcode: int
    shardcode: int
    state: State
    created: bool
    key: Key
    opened: bool = False


class Result(NamedTuple):
    """How the wait of an instance ended.

    ``reason`` says why it did not land; ``xcom_value`` is what its poke returned; ``settled_at`` is by the database's
    clock.
    """

    state: State
    ending: Ending
    reason: str | None
    xcom_value: Any
    settled_at: datetime


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The shardcodes ``shard_min <= s < shard_max``, on which one job works."""

    shard_min: int
    shard_max: int

    def __str__(self) -> str:
        return f"{self.shard_min}-{self.shard_max}"


def shard_ranges(shards: int, shard_code_upper_limit: int) -> list[ShardRange]:
    """Cut ``[0, shard_code_upper_limit)`` into contiguous ranges whose lengths differ by one at most."""
    edges = [i * shard_code_upper_limit // shards for i in range(shards + 1)]
    return [ShardRange(low, high) for low, high in pairwise(edges)]


def range_of(shardcode: int, ranges: Sequence[ShardRange]) -> ShardRange:
    """Return which of all ranges, in their order, has a shardcode, also one that rescue will fold (a lower limit)."""
    code = shardcode % ranges[-1].shard_max
    return ranges[bisect_right(ranges, code, key=_begin_of) - 1]


class DueGroup(NamedTuple):
    """A group as the load reads it. Each change of its row takes the next version, so id and version identify it."""

    id: int
    version: int
    hashcode: int
    members: int
    poke_interval: Milliseconds
    phase: int
    registered_at: Milliseconds
    next_deadline: Milliseconds | None


class Trace(NamedTuple):
    """Where an error of a poke was raised.

    :param signature: equal for errors that were raised from the same lines.
    :param text: the traceback, without secrets; None where the process made too many in that second.
    """

    signature: str
    text: str | None = None


class Report(NamedTuple):
    """What one poke of one group saw.

    :param began: by the monotonic clock.
    :param seconds: the poke's duration.
    :param quiet_for: seconds for which the backend wants to be left alone; None: it did not say so; below 0: the
        failure is the pool's own, and says nothing of the backend.
    :param of_many: whether one call for many groups overran: which group's doing that is, is not known.
    :param own_doing: whether a process that poked this group alone died by itself.
    """

    group: DueGroup
    began: float
    outcome: Outcome
    reason: str | None = None
    xcom_value: str | None = None
    seconds: float = 0.0
    trace: Trace | None = None
    quiet_for: float | None = None
    of_many: bool = False
    own_doing: bool = False


class Fact(NamedTuple):
    """What a poke of group ``group_id`` at ``version`` saw, which began at ``began_at``."""

    group_id: int
    version: int
    began_at: Milliseconds
    outcome: Outcome
    reason: str | None = None
    xcom_value: str | None = None  # JSON text
    overruns_left: int | None = None  # how many more pokes may overrun before waiters are handed back; None: any number
    since: Milliseconds | None = None  # how long it was so: it ends no wait that began later; None: it ends any


class Member(NamedTuple):
    """A sensing instance of a group, as the settle needs it."""

    id: int
    group_id: int
    joined_version: int
    start_date: Milliseconds
    timeout_at: Milliseconds
    next_deadline: Milliseconds
    execution_context: str  # the text of `ExecutionContext`
    takes_back: bool = False  # whether its waiter, outside of the pool, can poke by itself


class Verdict(NamedTuple):
    """The terminal state that an instance takes."""

    instance_id: int
    group_id: int
    state: State
    ending: Ending
    reason: str | None = None
    xcom_value: str | None = None


class Settled(NamedTuple):
    """One settled instance, in the form in which it is published."""

    id: int
    key: Key
    state: State
    ending: Ending
    reason: str | None
    xcom_value: str | None
    settled_at: Milliseconds
    on_settled: str | None


@dataclass(slots=True)
class Flushed:
    """The result of one flush."""

    settled: list[Settled] = field(default_factory=list)
    emptied: list[int] = field(default_factory=list)  # groups that were deleted
    outbox_id: int | None = None
    unsettled: dict[int, str] = field(default_factory=dict)  # groups whose result could not be written, and why


@dataclass(slots=True)
class JobResult:
    """The result of one poke_shard job: the small object that Flower shows."""

    groups: int = 0
    poked: int = 0
    saved: int = 0
    landed: int = 0
    errors: int = 0
    settled: int = 0
    left: int = 0
    seconds: float = 0.0
    lag_seconds: float = 0.0
    skipped: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def count(self, name: str, number: int) -> None:
        """Count what is rarely more than zero, by a name that Flower shows."""
        self.extra[name] = self.extra.get(name, 0) + number

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for Flower: groups, poked, landed, errors, seconds, and the others that are not zero."""
        if self.skipped:
            return {"skipped": self.skipped}
        shown: dict[str, Any] = {name: getattr(self, name) for name in ("groups", "poked", "landed", "errors")}
        shown["seconds"] = round(self.seconds, 3)
        shown.update({name: value for name in ("saved", "settled", "left") if (value := getattr(self, name))})
        return shown | self.extra
