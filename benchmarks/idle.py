"""The pool's cost while nothing is due, and with few sensors: above bare servers, an idle Celery worker and beat."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.report import Row
from benchmarks.stage import UNTIL_QUIET, Stage, less, tree_seconds
from harness.service import kill_tree
from harness.until import until

HOUR = 3600.0
CASES = {"nothing waits": (0, HOUR), "200 sensors, every hour": (200, HOUR), "200 sensors, every 10 s": (200, 10.0)}
_FLOOR = """
from celery import Celery

app = Celery("floor", broker={broker!r})
app.conf.update(worker_send_task_events=True, task_ignore_result=True, worker_disable_prefetch=True)
"""


def run(full: bool) -> Iterator[Row]:
    """Measure a window of each case, at the default settings of the product."""
    window = 180.0 if full else 60.0
    floor = measure_floor(window)
    yield floor
    for case, (sensors, interval) in CASES.items():
        row = measure(case, sensors, interval, window)
        yield row | {"above the floor, % of one core": row["one core, %"] - floor["one core, %"]}


def measure(case: str, sensors: int, interval: float, window: float) -> Row:
    """Measure a pool in which so many sensors wait."""
    with Stage(poke_interval=interval) as stage:
        stage.pool.register_many(
            {
                "sensor": "benchmarks.sensors.NoOp",
                "poke_context": {"n": n},
                "poke_interval": interval,
                "dag_id": "dag",
                "task_id": f"task{n}",
                "run_id": "run",
            }
            for n in range(sensors)
        )
        stage.vacuum()
        stage.start()
        until("a poke of each", lambda: stage.counters()["poked"] >= sensors, 60, 0.5)
        time.sleep(UNTIL_QUIET)
        before, counted, began = stage.cpu(), stage.counters(), time.monotonic()
        time.sleep(window)
        used, seconds = less(stage.cpu(), before), time.monotonic() - began
        used.pop("client")
        return {
            "case": case,
            "one core, %": 100 * sum(used.values()) / seconds,
            "by part, % of one core": {name: round(100 * value / seconds, 3) for name, value in used.items()},
            "pokes a second": (stage.counters()["poked"] - counted["poked"]) / seconds,
        }


def measure_floor(window: float) -> Row:
    """Measure the same servers with a Celery worker and beat that have nothing to do."""
    with Stage() as stage:
        (stage.folder / "floor.py").write_text(_FLOOR.format(broker=stage.redis.url))
        worker = _celery(stage.folder, "worker", "--concurrency=1")
        beat = _celery(stage.folder, "beat")
        try:
            until("the child of the worker", lambda: len(psutil.Process(worker.pid).children()) > 0)
            time.sleep(UNTIL_QUIET)
            processes = {
                "beat": psutil.Process(beat.pid),
                "workers": psutil.Process(worker.pid),
                "PostgreSQL": psutil.Process(stage.postgres.pid),
                "Redis": psutil.Process(stage.redis.pid),
            }
            before, began = {name: tree_seconds(process) for name, process in processes.items()}, time.monotonic()
            time.sleep(window)
            seconds = time.monotonic() - began
            used = less({name: tree_seconds(process) for name, process in processes.items()}, before)
        finally:
            kill_tree(beat)
            kill_tree(worker)
        return {
            "case": "floor: an idle Celery worker and beat, bare servers",
            "one core, %": 100 * sum(used.values()) / seconds,
            "by part, % of one core": {name: round(100 * value / seconds, 3) for name, value in used.items()},
        }


def _celery(folder: Path, kind: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "celery", "-A", "floor", kind, *options]
    with (folder / f"floor-{kind}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
