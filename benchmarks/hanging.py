"""A backend that hangs for a thousand groups: how late they time out, and how late healthy groups are poked."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import psutil

from benchmarks.report import Row, demand, quantiles
from benchmarks.sensors import NEVER, RECORD
from benchmarks.stage import Stage
from harness.until import until

HEALTHY = 50


def run(full: bool) -> Iterator[Row]:
    """Run a sixth of the groups six times as fast; with ``full`` also at full size."""
    yield measure(hanging=160, interval=10.0, poke_timeout=5 / 3, tick=1.0, heartbeat=1.0, lease_ttl=6.0)
    if full:
        yield measure(hanging=1_000, interval=60.0, poke_timeout=10.0, tick=5.0, heartbeat=5.0, lease_ttl=30.0)


def measure(*, hanging: int, interval: float, **settings: float) -> Row:
    """Measure a case. Half of the deadlines come at once after 2.5 intervals, the rest evenly before them."""
    enabled = ",".join(f"benchmarks.sensors.{name}" for name in ("Slow", "NoOp", "Recorded"))
    with Stage(poke_interval=interval, sensors_enabled=enabled, **settings) as stage:
        stage.start()
        record = str(stage.folder / "pokes")
        open(record, "wb").close()
        began = time.time()
        healthy = _register(stage, record, "Slow", HEALTHY, "same class", seconds=0.0, timeout=100 * interval)
        healthy += _register(stage, record, "Recorded", HEALTHY, "other class", seconds=0.0, timeout=100 * interval)
        _register(stage, "", "Slow", hanging // 2, "hangs", seconds=3_600.0, timeout=2.5 * interval)
        for n in range(20):
            timeout = interval * (0.5 + 2 * n / 20)
            _register(stage, "", "Slow", hanging // 40, f"hangs {n}", seconds=3_600.0, timeout=timeout)
        registered, peak = time.time(), _Peak(stage)
        ends = registered + 6 * interval

        def over() -> bool:
            return not stage.rows(
                "SELECT 1 FROM sensor_instance WHERE run_id LIKE 'hangs%' AND state = 'sensing' LIMIT 1"
            )

        until("the end of all that hang", lambda: over() or time.time() > ends + 10 * interval, 30 * interval, 0.5)
        used = stage.cpu()
        peak.stop()
        seconds = time.time() - registered
        rows = stage.rows("SELECT timeout_at, settled_at, state FROM sensor_instance WHERE run_id LIKE 'hangs%'")
        late = [((settled or NEVER * 1000) - timeout) / 1000 / interval for timeout, settled, _ in rows]
        demand({state for _, _, state in rows} == {"failed"}, "all that hang time out")
        gaps = _gaps(record, began, time.time(), interval)
        return {
            "case": f"{hanging} groups that hang, interval {interval:g} s, limit {settings['poke_timeout']:.3g} s",
            "sensors": hanging + len(healthy),
            "deadline to the end, intervals": quantiles(late),
            "ended later than three intervals": sum(each > 3 for each in late),
            "healthy, same class: late, intervals": quantiles(gaps["same class"]),
            "healthy, other class: late, intervals": quantiles(gaps["other class"]),
            "CPU of the workers, % of a core": 100 * used["workers"] / seconds,
            "children apart, most": peak.children,
            "threads, most": peak.threads,
            "memory of all processes, most, MB": peak.memory / 2**20,
        }


def _register(
    stage: Stage, record: str, cls: str, count: int, run_id: str, *, seconds: float, timeout: float
) -> list[int]:
    first = _numbers.setdefault(run_id, 1_000 * len(_numbers))
    made = stage.pool.register_many(
        {
            "sensor": f"benchmarks.sensors.{cls}",
            "poke_context": {"n": first + n, "seconds": seconds, "record": record},
            "timeout": timeout,
            "dag_id": "dag",
            "task_id": f"task{n}",
            "run_id": run_id,
        }
        for n in range(count)
    )
    return [instance.id for instance in made]


_numbers: dict[str, int] = {}


def _gaps(record: str, began: float, ended: float, interval: float) -> dict[str, list[float]]:
    """Return the greatest lateness of each healthy group, in intervals: between two pokes, and before the first."""
    pokes: dict[int, list[float]] = defaultdict(list)
    with open(record, "rb") as file:
        while chunk := file.read(RECORD.size):
            n, at = RECORD.unpack(chunk)
            pokes[n].append(at)
    names = {first: name for name, first in _numbers.items()}
    gaps: dict[str, list[float]] = defaultdict(list)
    for first in (first for first, name in names.items() if "class" in name):
        for n in range(first, first + HEALTHY):
            times = [began, *sorted(pokes[n]), ended]
            longest = max(after - before for before, after in pairwise(times))
            gaps[names[first]].append(max(0.0, longest / interval - 1))
    return gaps


class _Peak:
    """The peak of memory, threads and children of the workers, looked at twice a second."""

    def __init__(self, stage: Stage) -> None:
        self.memory = self.threads = self.children = 0
        self._stage = stage
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        """End the looks."""
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.5):
            memory = threads = children = 0
            for worker in (each for each in self._stage.service.processes if "worker" in str(each.args)):
                for process in [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]:
                    try:
                        memory += process.memory_info().rss
                        threads += process.num_threads()
                        children += "sensorpool.poke.child_main" in process.cmdline()
                    except psutil.NoSuchProcess:
                        continue
            self.memory, self.threads = max(self.memory, memory), max(self.threads, threads)
            self.children = max(self.children, children)
