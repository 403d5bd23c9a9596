"""What `sensorpool savings` says of this Airflow, beside what its workers' logs say: what was, and what it promises.

The same DAGs run twice: in Airflow's own way, and with the pool. What is counted of the first, and foretold for the
second, is compared with the logs of both.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.airflow_scale.bench import Bench
from benchmarks.airflow_scale.dag_files import Way
from benchmarks.airflow_scale.measure import RUN, measure
from benchmarks.report import Row, demand

_START = "DAG bundles loaded"  # each process of a task logs it once
_POKE = "Poking for file"
_EVERY = 0.5  # seconds between two looks at which tasks run


class Held:
    """The time for which tasks of some DAGs hold slots, as it is seen from outside: how many run, twice a second."""

    def __init__(self, bench: Bench, prefix: str) -> None:
        self.seconds = 0.0
        self._bench, self._prefix = bench, prefix
        self._is_over = threading.Event()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count for as long as the context lasts."""
        thread = threading.Thread(target=self._count)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _count(self) -> None:
        last = time.monotonic()
        while not self._is_over.wait(_EVERY):
            statement = "SELECT count(*) FROM task_instance WHERE dag_id LIKE :dags AND state = 'running'"
            [[running]] = self._bench.rows(statement, dags=f"{self._prefix}%")
            now = time.monotonic()
            self.seconds += running * (now - last)
            last = now


def estimate(bench: Bench, native: Way, pooled: Way, sensors: int, dags: int) -> Iterator[Row]:
    """Run sensors natively and with the pool, and compare."""
    case = "estimate"
    seen = {}
    for way in (native, pooled):
        began = time.time()
        held = Held(bench, f"{way.name}_{case}_")
        with held.counting():
            measure(bench, way, case, sensors, dags, sensors)
        seen[way] = {
            "starts": _lines(bench, way, case, _START),
            "pokes": _lines(bench, way, case, _POKE),
            "slot-seconds": round(held.seconds),
        }
    statement = "SELECT coalesce(sum(pokes), 0) FROM sensorpool.landing WHERE ended_at > :began"
    [[by_pool]] = bench.pool_rows(statement, began=1000 * began)  # only sensors of the second way have waited there
    seen[pooled]["pokes"] += int(by_pool)
    url = bench.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    told = json.loads(bench.run("sensorpool", "savings", "--airflow-db", url, "--days", "1", "--json").stdout)
    mine = [row for row in told["by_dag"] if row["dag_id"].startswith(f"{native.name}_{case}_")]
    demand(len(mine) == dags, f"savings tells of {len(mine)} of {dags} DAGs")
    demand(sum(row["tries"] for row in mine) == sensors, "savings does not tell of all tries")
    counted, foretold = _sums(mine), _sums([row["with_pool"] for row in mine])
    for what in counted:
        yield {
            "case": what,
            f"{native.name}: seen from outside": seen[native][what],
            "savings says": counted[what],
            "savings says of a pool": foretold[what],
            "with the pool: seen from outside": seen[pooled][what],
        }


def _sums(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        "starts": sum(row["starts"] for row in rows),
        "pokes": sum(row["pokes"] for row in rows),
        "slot-seconds": round(3600 * sum(row["slot_hours"] for row in rows)),
    }


def _lines(bench: Bench, way: Way, case: str, words: str) -> int:
    """Count lines in the logs of a way's tasks."""
    logs = bench.folder / "logs"
    folders = logs.glob(f"dag_id={way.name}_{case}_*/run_id={RUN}")
    files = [path for folder in folders for path in folder.rglob("*.log") if path.is_file()]
    return sum(path.read_text(errors="replace").count(words) for path in files)
