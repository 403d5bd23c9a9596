"""Registration: one at a time, from 8 processes, in bulk, and at midnight."""

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.report import Row, demand
from benchmarks.stage import Cpu, Stage, less
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings


def run(full: bool) -> Iterator[Row]:
    """Measure each way on an empty database, with a running service, as at midnight."""
    yield one_at_a_time(2_000)
    yield bulk(100_000 if full else 20_000, distinct=1.0)
    yield bulk(100_000 if full else 20_000, distinct=0.6)
    yield at_once(20_000)


def one_at_a_time(number: int) -> Row:
    """Register over one connection, one after the other."""
    with Stage() as stage:
        for n in range(100):
            stage.pool.register(**_one(-n - 1))
        before, began = stage.cpu(), time.monotonic()
        for n in range(number):
            stage.pool.register(**_one(n))
        used, seconds = less(stage.cpu(), before), time.monotonic() - began
        return _row("one at a time", stage, number + 100, number, used, seconds)


def bulk(number: int, distinct: float) -> Row:
    """Register with ``register_many``."""
    with Stage() as stage:
        before, began = stage.cpu(), time.monotonic()
        stage.pool.register_many(_one(n, int(n * distinct)) for n in range(number))
        used, seconds = less(stage.cpu(), before), time.monotonic() - began
        return _row(f"{number:,} in bulk, {distinct:.0%} distinct", stage, number, number, used, seconds)


def at_once(number: int) -> Row:
    """Register from 8 processes, one at a time in each, with 40 % duplicates over all, while the service runs."""
    with Stage(workers=1) as stage:
        stage.start()
        settings = stage.service.settings.model_dump()
        before, began = stage.cpu(), time.monotonic()
        context = multiprocessing.get_context("spawn")
        with context.Pool(8) as processes:
            per = number // 8
            client = sum(processes.starmap(_register_some, [(settings, k * per, per) for k in range(8)]))
        used, seconds = less(stage.cpu(), before), time.monotonic() - began
        used["client"] = client
        return _row(f"{number:,} from 8 processes, one at a time", stage, number, number, used, seconds)


def _register_some(settings: dict[str, Any], start: int, number: int) -> float:
    pool = Pool(Settings.load(**settings))
    pool.register(**_one(-start - 1))
    pool.cancel(pool.register(**_one(-start - 1)).id)
    began = time.process_time()
    for n in range(start, start + number):
        pool.register(**_one(n, n * 6 // 10))
    return time.process_time() - began


def _one(n: int, condition: int | None = None) -> dict[str, Any]:
    return {
        "sensor": "benchmarks.sensors.NoOp",
        "poke_context": {"n": n if condition is None else condition},
        "dag_id": f"dag{n % 50}",
        "task_id": f"task{n}",
        "run_id": "run",
    }


def _row(case: str, stage: Stage, expected: int, number: int, used: Cpu, seconds: float) -> Row:
    demand(stage.sensing() == expected, f"{stage.sensing()} of {expected} are there")
    return {
        "case": case,
        "rows": number,
        "CPU of a row, µs": 1e6 * sum(used.values()) / number,
        "by part, µs": {name: round(1e6 * value / number, 1) for name, value in used.items()},
        "rows a second": number / seconds,
        "seconds": seconds,
    }
