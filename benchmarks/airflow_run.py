"""Sensors of a real Airflow in the pool: the cost of their wait, and the delay of their end.

Run in the environment of `make e2e`::

    .venv-e2e/bin/python -m benchmarks.airflow_run             # 1,000 sensors over 10 DAGs, 40 % duplicates
    .venv-e2e/bin/python -m benchmarks.airflow_run --at-once   # 500 that hold already when they register

Airflow's transactions are counted by PostgreSQL; the pool has a database of its own here. The sensors that reschedule
themselves are counted in the same run, less what Airflow does when no sensor waits.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import click
import psutil

from benchmarks.airflow_apart import ClusterApart
from harness.until import until

HERE = Path(__file__).parent / "airflow"
SENSOR = "flags.FlagSensor"
HOURS = 3 * 3600.0
WINDOW = 120.0  # seconds that are measured while all sensors only wait


class Bench(ClusterApart):
    """Airflow with its scheduler at its usual pace, and meters."""

    dags = HERE / "dags"
    site = HERE / "site"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the tests, without the settings that make tests quick."""
        return super().environment | {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1"}

    def pokes(self) -> int:
        """Return how often a sensor was poked."""
        counted = self.work / "pokes"
        return counted.stat().st_size // 2 if counted.exists() else 0

    def rows_written(self) -> int:
        """Return how many rows of Airflow's database have been written."""
        row = self.rows(
            "SELECT tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = 'postgres'"
        )
        return int(row[0][0])

    def memory(self, name: str) -> float:
        """Return the resident memory of a component and its children, in MiB."""
        parent = psutil.Process(self.processes[name].pid)
        return sum(process.memory_info().rss for process in [parent, *parent.children(recursive=True)]) / 2**20

    def cpu(self, name: str) -> float:
        """Return the seconds of CPU that a component and its living children have used."""
        parent = psutil.Process(self.processes[name].pid)
        family = [parent, *parent.children(recursive=True)]
        return sum(sum(process.cpu_times()[:4]) for process in family)

    def count(self, dag_ids: str, state: str) -> int:
        """Count waiting tasks in a state."""
        row = self.rows(
            "SELECT count(*) FROM task_instance WHERE dag_id LIKE :dag_ids AND task_id = 'wait' AND state = :state",
            dag_ids=dag_ids,
            state=state,
        )
        return int(row[0][0])


def measure(bench: Bench, what: str, sensors: int) -> dict[str, float]:
    """Measure one window: transactions and CPU a second."""
    cpu = {name: bench.cpu(name) for name in bench.processes}
    transactions, written = bench.transactions(), bench.rows_written()
    pokes, began = bench.pokes(), time.monotonic()
    bench.sleep_until(began + WINDOW)
    seconds = time.monotonic() - began
    found = {"sensors": sensors, "transactions_s": (bench.transactions() - transactions) / seconds}
    found["rows_written_s"] = (bench.rows_written() - written) / seconds
    found |= {f"cpu_{name}": round((bench.cpu(name) - cpu[name]) / seconds, 4) for name in bench.processes}
    found["pokes_per_10_s"] = (bench.pokes() - pokes) / seconds * 10
    click.echo(f"{what}: {json.dumps(found)}")
    return found


def waiting(sensors: int) -> None:
    """Let sensors wait, and land them."""
    with tempfile.TemporaryDirectory(prefix="sensorpool-bench-") as folder:
        bench = Bench(Path(folder), slots=8, sensors_enabled=SENSOR, exclude="native_*", poke_interval=10)
        with bench:
            until("DAGs", lambda: len(bench.rows("SELECT 1 FROM dag WHERE dag_id LIKE 'bench_%'")) == 10, 120)
            idle = measure(bench, "idle", 0)
            memory = bench.memory("triggerer")
            rescheduling = min(60, sensors)
            bench.trigger("native_bench_reschedule", "run1", flags=[f"r{n}" for n in range(rescheduling)])
            until(
                "rescheduling", lambda: bench.count("native_%", "up_for_reschedule") >= 0.9 * rescheduling, HOURS, 1.0
            )
            native = measure(bench, "mode=reschedule, 60 s", rescheduling)
            for number in range(rescheduling):
                (bench.work / f"r{number}").write_text("land")
            until(
                "the end of those", lambda: bench.run_state("native_bench_reschedule", "run1") == "success", HOURS, 1.0
            )

            distinct = round(sensors * 0.6)
            names = [f"f{n % distinct}" for n in range(sensors)]
            began = time.monotonic()
            for number in range(10):
                bench.trigger(f"bench_{number}", "run1", flags=names[number::10])
            until("deferral of all", lambda: bench.count("bench_%", "deferred") == sensors, HOURS, 1.0)
            click.echo(f"all deferred after {time.monotonic() - began:.0f} s (a worker start each)")
            pooled = measure(bench, "pooled, 10 s", sensors)
            slots = bench.count("bench_%", "running") + bench.count("bench_%", "queued")
            grown = bench.memory("triggerer") - memory
            true_at = {}
            for name in sorted(set(names)):
                (bench.work / name).write_text("land")
                true_at[name] = time.time()
                time.sleep(60 / distinct)
            until("success of all", lambda: bench.count("bench_%", "success") == sensors, HOURS, 1.0)
            rows = bench.rows(
                "SELECT t.dag_id, t.map_index, extract(epoch FROM t.end_date) FROM task_instance t "
                "WHERE t.dag_id LIKE 'bench_%' AND t.task_id = 'wait' AND t.state = 'success'"
            )
            after = sorted(
                float(end) - true_at[names[int(dag_id.removeprefix("bench_")) :: 10][index]]
                for dag_id, index, end in rows
            )
            states = dict(bench.pool_rows("SELECT state, count(*) FROM sensorpool.sensor_instance GROUP BY state"))

            def a_minute(window: dict[str, float], what: str) -> float:
                return round(60 / window["sensors"] * (window[what] - idle[what]), 3)

            summary = {
                "sensors": sensors,
                "distinct": distinct,
                "worker_slots_while_waiting": slots,
                "triggerer_mib": round(grown, 1),
                "pokes_per_interval": round(pooled["pokes_per_10_s"]),
                "native_pokes_per_interval": sensors,
                "true_to_success_p50_s": round(statistics.median(after), 2),
                "true_to_success_p99_s": round(after[int(len(after) * 0.99)], 2),
                "airflow_transactions_per_sensor_minute": a_minute(pooled, "transactions_s"),
                "airflow_transactions_per_sensor_minute_reschedule": a_minute(native, "transactions_s"),
                "airflow_rows_written_per_sensor_minute": a_minute(pooled, "rows_written_s"),
                "airflow_rows_written_per_sensor_minute_reschedule": a_minute(native, "rows_written_s"),
                "states": states,
            }
            click.echo(json.dumps(summary, indent=2))


def at_once(sensors: int) -> None:
    """Run sensors whose conditions hold when they register, ended directly and resumed, three runs each."""
    with tempfile.TemporaryDirectory(prefix="sensorpool-bench-") as folder:
        bench = Bench(Path(folder), slots=8, sensors_enabled=SENSOR, first_poke="pool")
        with bench:
            names = [f"f{n}" for n in range(sensors)]
            for name in names:
                (bench.work / name).write_text("land")
            for dag_id in ("direct", "called_back"):
                for number in range(1, 4):
                    began = time.monotonic()
                    bench.trigger(dag_id, f"run{number}", flags=names)
                    run = f"run{number}"
                    until(
                        "the end",
                        lambda d=dag_id, r=run: bench.run_state(d, r) in {"success", "failed"},  # type: ignore[misc]
                        HOURS,
                        1.0,
                    )
                    states = bench.rows(
                        "SELECT state, count(*) FROM task_instance WHERE dag_id = :d AND run_id = :r "
                        "AND task_id = 'wait' GROUP BY state",
                        d=dag_id,
                        r=run,
                    )
                    pooled = bench.pool_rows(
                        "SELECT state, count(*) FROM sensorpool.sensor_instance "
                        f"WHERE dag_id = '{dag_id}' AND run_id = '{run}' GROUP BY state"
                    )
                    seconds = time.monotonic() - began
                    click.echo(f"{dag_id} {run}: tasks {dict(states)}, instances {dict(pooled)}, {seconds:.0f} s")


@click.command()
@click.option("--sensors", type=click.IntRange(min=10), default=None)
@click.option("--at-once", "holding", is_flag=True, help="Conditions hold already when the sensors register.")
def main(sensors: int | None, holding: bool) -> None:
    """Run the benchmark."""
    if holding:
        at_once(sensors or 500)
    else:
        waiting(sensors or 1000)


if __name__ == "__main__":
    main()
