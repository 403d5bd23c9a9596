"""The parts that all peers share: the load, the measured window, and its figures."""

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.stage import Cpu, less, tree_seconds

INTERVAL = 10.0  # the default seconds between two pokes
DISTINCT = 0.6  # 40 % of the sensors wait for the same condition as another one

Result = dict[str, Any]


def paths(folder: Path, size: int) -> list[str]:
    """Return the file of each sensor; no file ever comes."""
    distinct = distinct_of(size)
    return [str(folder / f"never-{n % distinct}") for n in range(size)]


def distinct_of(size: int) -> int:
    """Return the number of conditions of so many sensors."""
    return max(1, round(size * DISTINCT))


def whole_intervals(seconds: float, interval: float = INTERVAL) -> float:
    """Return a window of whole intervals, of at least so many seconds."""
    return interval * max(1, math.ceil(seconds / interval))


def cpu_of(parts: Mapping[str, int]) -> Cpu:
    """Return the CPU seconds of the process trees so far, and of the client, which is this process."""
    return {name: tree_seconds(psutil.Process(pid)) for name, pid in parts.items()} | {"client": sum(os.times()[:2])}


def resident(*pids: int) -> int:
    """Return the resident bytes of process trees; shared memory counts once."""
    total = 0
    for pid in pids:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
    return total


def transactions(url: str) -> int:
    """Return how many transactions a PostgreSQL database has seen."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def watch(
    seconds: float, cpu: Callable[[], Cpu], pokes: Callable[[], int], database: Callable[[], int] | None = None
) -> Result:
    """Let one window pass, and return its work and its costs."""
    transactions_before = database() if database else 0
    pokes_before, cpu_before, began = pokes(), cpu(), time.monotonic()
    time.sleep(seconds)
    cpu_after, took = cpu(), time.monotonic() - began
    return {
        "window_s": round(took, 2),
        "pokes": pokes() - pokes_before,
        "cpu_s": less(cpu_after, cpu_before),
        "transactions": database() - transactions_before if database else None,
    }


def result(
    peer: str,
    version: str,
    sensors: int,
    seen: Result,
    *,
    shares: bool,
    memory: int,
    asked: int,
    note: str,
    interval: float = INTERVAL,
    idle: Result | None = None,
) -> Result:
    """Return the figures of a window.

    :param shares: whether one poke serves all sensors with the same condition.
    :param memory: bytes of the peer's own processes, without its database and broker.
    :param interval: seconds between two pokes of a sensor.
    :param asked: the number of sensors that was asked for.
    :param idle: a window of the same peer without sensors, whose costs are subtracted.
    """
    distinct = distinct_of(sensors)
    used, sent = dict(seen["cpu_s"]), seen["transactions"]
    if idle:
        share = seen["window_s"] / idle["window_s"]
        used = {name: value - idle["cpu_s"].get(name, 0.0) * share for name, value in used.items()}
        sent = None if sent is None else sent - idle["transactions"] * share
    total, pokes = sum(used.values()), seen["pokes"]
    if not pokes:
        raise RuntimeError(f"{peer} poked nothing in {seen['window_s']} s")
    rounds = pokes / (distinct if shares else sensors)
    found = {
        "peer": peer,
        "version": version,
        "sensors": sensors,
        "distinct": distinct,
        "interval_s": interval,
        "window_s": seen["window_s"],
        "rounds": round(rounds, 2),
        "pokes": pokes,
        "cpu_s": {name: round(value, 4) for name, value in used.items()},
        "cpu_us_per_poke": round(total / pokes * 1e6, 1),
        "cpu_us_per_unique_poke": round(total / (distinct * rounds) * 1e6, 1),
        "memory_bytes": memory,
        "extrapolated": sensors < asked,
        "note": note,
    }
    if idle:
        found["idle_cpu_s_per_s"] = round(sum(idle["cpu_s"].values()) / idle["window_s"], 4)
    if sent is not None:
        found["db_transactions_per_poke"] = round(sent / pokes, 4)
        found["db_transactions_per_sensor_minute"] = round(sent / sensors / seen["window_s"] * 60, 4)
    return found
