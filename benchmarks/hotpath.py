"""The CPU of a worker's child by part of the code: a sampling profiler looks at the real child from outside."""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import Row, demand
from benchmarks.sensors import NEVER
from benchmarks.stage import Stage
from harness.until import until

SECONDS = 20
# Paths, or begins of paths. The first one in a stack, from the innermost call outwards, decides its part.
PARTS = {
    "sensorpool/store/loading": "load",
    "sensorpool/worker/load": "load",
    "sensorpool/poke/cache": "load",
    "sensorpool/poke/": "poke",
    "benchmarks/sensors": "poke",
    "sensorpool/settle/": "settle",
    "sensorpool/store/settling": "settle",
    "sensorpool/publish/": "publish",
    "sensorpool/leases/poke_log": "record for show",
    "sensorpool/leases/": "lease and notes",
    "sensorpool/worker/rescue": "rescue",
    "sensorpool/worker/chores/": "rescue",
    "sensorpool/worker/": "cycle",
    "sensorpool/service/": "cycle",
    "celery/": "Celery and idle",
    "billiard/": "Celery and idle",
}


def run(full: bool) -> Iterator[Row]:  # noqa: ARG001  # a profile does not grow
    """Sample no-op pokes at saturation, pokes of 100 ms, and landings."""
    yield measure("no-op, 100,000 groups every second", "NoOp", 100_000, interval=1.0)
    yield measure("100 ms, 2,000 groups every 5 s", "Slow", 2_000, interval=5.0, seconds=0.1)
    yield measure("150 landings a second", "NoOp", 12_000, interval=5.0, landing=True)


def measure(case: str, kind: str, groups: int, *, interval: float, landing: bool = False, **context: float) -> Row:
    """Sample the stacks of the thread that holds the interpreter lock."""
    with Stage(tick=1.0, poke_interval=interval, groups_cached=1_000_000, poke_concurrency=128) as stage:
        from_ = time.time() + 15
        stage.pool.register_many(
            {
                "sensor": f"benchmarks.sensors.{kind}",
                "poke_context": {"n": n, "land_at": from_ + n / 150 if landing else NEVER, **context},
                "dag_id": f"dag{n % 50}",
                "task_id": f"task{n}",
                "run_id": "run",
            }
            for n in range(groups)
        )
        stage.vacuum()
        stage.start()
        until("a poke of each", lambda: stage.counters()["poked"] >= groups, 120, 0.5)
        time.sleep(max(2.0, from_ - time.time()))
        (child,) = stage.children()
        before, poked = child.cpu_times(), stage.counters()["poked"]
        time.sleep(SECONDS)  # without the profiler: it stops the process for each sample
        after, pokes = child.cpu_times(), stage.counters()["poked"] - poked
        with tempfile.NamedTemporaryFile() as found:
            command = [
                "py-spy",
                "record",
                "--pid",
                str(child.pid),
                "--duration",
                str(SECONDS),
                "--gil",
                "--rate",
                "200",
            ]
            profiler = Path(sys.executable).with_name("py-spy")
            done = subprocess.run(
                [str(profiler), *command[1:], "--format", "raw", "--output", found.name],
                capture_output=True,
                text=True,
                check=False,
            )
            demand(done.returncode == 0, f"the profiler: {done.stderr.strip()[-200:]}")
            lines = Path(found.name).read_text().splitlines()
        shares = parts(lines)
        return {
            "case": case,
            "pokes": pokes,
            "CPU of the child in Python, µs a poke": 1e6 * (after.user - before.user) / pokes,
            "CPU of the child in the kernel, µs a poke": 1e6 * (after.system - before.system) / pokes,
            "share of the samples, %": {part: round(100 * share, 1) for part, share in shares},
        }


def parts(lines: list[str]) -> list[tuple[str, float]]:
    """Return the share of each part of the service in samples (a stack and a number on a line)."""
    counted: Counter[str] = Counter()
    for line in lines:
        stack, _, number = line.rpartition(" ")
        counted[part_of(stack.split(";"))] += int(number)
    total = counted.total()
    return [(part, number / total) for part, number in counted.most_common()]


def part_of(stack: list[str]) -> str:
    """Return the part of the service to which a stack belongs."""
    for frame in reversed(stack):
        for mark, part in PARTS.items():
            if mark in frame:
                return part
    return "threads and start"
