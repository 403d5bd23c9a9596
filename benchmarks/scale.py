"""Workers and shards: is the work spread evenly, and what is the cost of too many shards?"""

import time
from collections.abc import Iterator

from benchmarks.report import Row, demand
from benchmarks.stage import Stage, less, tree_seconds
from harness.until import until

GROUPS, INTERVAL, WINDOW = 20_000, 5.0, 20.0


def run(full: bool) -> Iterator[Row]:
    """Measure 20,000 no-op groups every 5 s, by number of workers and of shards."""
    quick = [(1, 1), (1, 64), (2, 8)]
    for workers, shards in [(1, 1), (1, 8), (1, 64), (1, 256), (2, 8), (2, 64), (4, 64)] if full else quick:
        yield measure(workers, shards)


def measure(workers: int, shards: int) -> Row:
    """Measure a window."""
    with Stage(workers=workers, shards=shards, tick=5.0, poke_interval=INTERVAL) as stage:
        stage.pool.register_many(
            {
                "sensor": "benchmarks.sensors.NoOp",
                "poke_context": {"n": n},
                "dag_id": "dag",
                "task_id": f"task{n}",
                "run_id": "run",
            }
            for n in range(GROUPS)
        )
        stage.vacuum()
        stage.start()
        until("a poke of each", lambda: stage.counters()["poked"] >= GROUPS, 60, 0.5)
        time.sleep(INTERVAL)
        before, counted, began = stage.cpu(), stage.counters(), time.monotonic()
        each_before = [tree_seconds(child) for child in stage.children()]
        time.sleep(WINDOW)
        used, seconds = less(stage.cpu(), before), time.monotonic() - began
        each = [tree_seconds(child) - was for child, was in zip(stage.children(), each_before, strict=True)]
        pokes = stage.counters()["poked"] - counted["poked"]
        demand(pokes >= 0.7 * GROUPS * WINDOW / INTERVAL, f"only {pokes} pokes")
        used.pop("client")
        states = [state for _, state in stage.pool.leases.look(stage.pool.ranges)]
        sizes = sorted(state.pokes for state in states)
        return {
            "case": f"{workers} workers, {shards} shards",
            "pokes a second": pokes / seconds,
            "CPU of a poke, µs": 1e6 * sum(used.values()) / pokes,
            "CPU, % of one core": {name: round(100 * value / seconds, 2) for name, value in used.items()},
            "by worker, % of one core": [round(100 * value / seconds, 2) for value in each],
            "pokes of a range, least / most": [sizes[0], sizes[-1]],
            "longest job, s": max(state.seconds for state in states),
        }
