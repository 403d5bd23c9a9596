"""What the record of ended conditions (table `landing`) adds to a settled row.

The same flushes run in this process with and without it, in turn, so that both meet the machine in the same state.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from unittest import mock

import psutil
from sqlalchemy import delete, func, select

from benchmarks.report import Row, demand
from benchmarks.stage import HOUR, Stage
from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Registered
from sensorpool.settle import flush
from sensorpool.store import settling
from sensorpool.store.schema import landing, poke_group

ROUNDS = 30  # of each kind
GROUPS = 1_000  # in a flush
SENSORS = count()


def run(full: bool) -> Iterator[Row]:  # noqa: ARG001  # its size is what is asked for
    """Measure landed groups with one waiter, with two, and timeouts."""
    with Stage(rescue_interval=HOUR) as stage:
        yield measure(stage, "groups land, one waiter each", Outcome.LANDED, waiters=1)
        yield measure(stage, "groups land, two waiters each", Outcome.LANDED, waiters=2)
        yield measure(stage, "timeouts, one waiter each", Outcome.NOT_LANDED, waiters=1)


def measure(stage: Stage, case: str, outcome: Outcome, *, waiters: int) -> Row:
    """Settle flushes of a thousand groups with the record and without, one after the other."""
    plain = delete(poke_group).where(settling._DELETE_POSTGRES.whereclause).returning(poke_group.c.id).cte("gone")
    without = select(func.count()).select_from(plain)
    used: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * ROUNDS + 2):
        is_recorded = number % 2 == 0
        made = _registered(stage, waiters, timeout=0.0 if outcome is Outcome.NOT_LANDED else HOUR)
        before, rows = _records(stage), len(made)
        statement = settling._DELETE_NOTED if is_recorded else without
        with mock.patch.object(settling, "_DELETE_NOTED", statement):
            seconds = _settled(stage, made, outcome)
        demand(_records(stage) - before == is_recorded * rows // waiters, "the record has another number of rows")
        if number >= 2:  # the first round of each kind prepares its statements
            used[is_recorded].append(1e6 * seconds / rows)
    pairs = [100 * (a / b - 1) for a, b in zip(used[True], used[False], strict=True)]
    quarters = statistics.quantiles(pairs, n=4)
    return {
        "case": case,
        "rows of a flush": GROUPS * waiters,
        "flushes of each kind": ROUNDS,
        "without, µs of CPU a row": statistics.median(used[False]),
        "with, µs of CPU a row": statistics.median(used[True]),
        "more, %": 100 * (statistics.median(used[True]) / statistics.median(used[False]) - 1),
        "half of the pairs, %": f"{quarters[0]:.0f} to {quarters[2]:.0f}",
    }


def _registered(stage: Stage, waiters: int, timeout: float) -> list[Registered]:
    numbers = [next(SENSORS) for _ in range(GROUPS)]
    return stage.pool.register_many(
        {
            "sensor": "benchmarks.sensors.NoOp",
            "poke_context": {"n": n},
            "dag_id": f"dag{n % 50}",
            "task_id": f"task{n}_{waiter}",
            "run_id": "run",
            "timeout": timeout,
        }
        for n in numbers
        for waiter in range(waiters)
    )


def _settled(stage: Stage, made: Sequence[Registered], outcome: Outcome) -> float:
    """Settle what was registered; return the CPU of this process and of PostgreSQL in seconds."""
    database = stage.pool.database
    now = database.read(database.now) + 1
    versions: dict[int, int] = {}
    for instance in made:
        versions[instance.group_id] = versions.get(instance.group_id, 0) + 1
    facts = [Fact(group_id, version, now, outcome) for group_id, version in versions.items()]
    before, began = _of_backends(stage), time.process_time()
    done = flush.flush(database, facts, tick_ms=stage.service.settings.tick_ms)
    seconds = time.process_time() - began + _of_backends(stage) - before
    demand(sum(len(each.settled) for each in done) == len(made), "some were not settled")
    return seconds


def _of_backends(stage: Stage) -> float:
    """Return the CPU of PostgreSQL's processes in seconds, by the scheduler's nanoseconds: a flush takes few ticks."""
    backends = psutil.Process(stage.postgres.pid).children()
    return sum(int(Path(f"/proc/{each.pid}/schedstat").read_text().split()[0]) for each in backends) / 1e9


def _records(stage: Stage) -> int:
    return int(stage.rows(f"SELECT count(*) FROM {landing.name}")[0][0])
