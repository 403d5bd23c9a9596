"""A real Airflow with sensors of its own; runs in the environment of airflow3.py. Arguments: KIND SIZE SECONDS."""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.window import (
    Result,
    cpu_of,
    paths,
    resident,
    result,
    transactions,
    watch,
    whole_intervals,
)
from harness.airflow_cluster import COMPONENTS, PATIENCE, AirflowCluster
from harness.until import until

LONG = 3600.0
IDLE = 30.0  # seconds of a window without a sensor
SETTLE = 15.0  # seconds after the start of the last task, until its after-effects are over
FEW = "{} sensors, each poked every {:g} s. What Airflow takes when no sensor waits is taken off, in its favour. "
NOTES = {
    "reschedule": "A worker start a poke, counted by the reschedules in the database. Has a slot only while it pokes.",
    "deferrable_file": "Pokes on the triggerer's event loop: cheap, and nearly nothing in the database. The pokes are "
    "reckoned from the interval, for FileTrigger does not tell them: too many of them, if the loop was late.",
    "deferrable_external": "Asks the API server by way of the triggerer; counted by what its triggers log. This poke "
    "asks for another condition than a file.",
}
# how many sensors, and how often each pokes: a load that a few of them can make and two cores can bear
LOADS = {"reschedule": (120, 60.0), "deferrable_file": (60, 0.05), "deferrable_external": (60, 2.0)}


class Airflow(AirflowCluster):
    """Airflow alone, without a pool, at its usual pace, with the DAGs of the peers."""

    dags = Path(__file__).with_name("dags")
    site = dags

    def __init__(self, folder: Path, interval: float) -> None:
        super().__init__(folder, slots=8, enabled=False)
        self.interval = interval

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the tests, without the settings that make tests quick."""
        return super().environment | {
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "300",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "5",
            "PEER_INTERVAL": str(self.interval),
        }

    def start(self) -> None:
        """Start Airflow, and wait until it is healthy."""
        self.start_servers()
        self.run("airflow", "db", "migrate")
        for name in COMPONENTS:
            if name not in {"pool", "beat"}:
                self.start_component(name)
        until("a healthy Airflow", self.is_healthy, PATIENCE, 0.5)

    def parts(self) -> dict[str, int]:
        """Return the root process of each part."""
        processes = {name: process.pid for name, process in self.processes.items()}
        return processes | {"PostgreSQL": self.postgres.pid, "Redis": self.redis.pid}

    def memory_of_all(self) -> int:
        """Return the resident bytes of Airflow's processes."""
        return resident(*(process.pid for process in self.processes.values()))

    def reschedules(self) -> int:
        """Return how often a task has rescheduled itself."""
        return int(self.rows("SELECT count(*) FROM task_reschedule")[0][0])

    def sleeps(self) -> int:
        """Return how often triggers have logged that they sleep until the next poke."""
        logs = (self.folder / "logs").rglob("*.log*")
        return sum(path.read_text(errors="replace").count("Sleeping for") for path in logs if path.is_file())


def measure(kind: str, size: int, seconds: float) -> Result:
    """Measure waiting sensors of one kind, less the cost of Airflow without sensors."""
    most, interval = LOADS[kind]
    sensors = min(size, most)
    with (
        tempfile.TemporaryDirectory(prefix="sensorpool-peers-") as folder,
        Airflow(Path(folder), interval) as airflow,
    ):
        known = "SELECT 1 FROM dag WHERE dag_id = 'upstream'"
        until("the DAGs", lambda: airflow.rows(known), PATIENCE, 0.5)
        time.sleep(SETTLE)
        database: Callable[[], int] = partial(transactions, airflow.postgres.url)
        idle = watch(IDLE, lambda: cpu_of(airflow.parts()), lambda: 0, database)
        idle_memory = airflow.memory_of_all()
        conditions = paths(airflow.work, sensors)
        if kind == "deferrable_external":
            conditions = [Path(path).name for path in conditions]
        airflow.trigger(kind, "run1", logical_date="2026-01-01T00:00:00Z", given=conditions)
        if kind == "reschedule":
            until("a poke of all", lambda: airflow.reschedules() >= 2 * sensors, LONG, 1.0)
        else:
            waiting = "SELECT count(*) FROM task_instance WHERE state = 'deferred'"
            until("all to wait", lambda: airflow.rows(waiting)[0][0] == sensors, LONG, 1.0)
        time.sleep(SETTLE)
        window = whole_intervals(seconds, interval)
        counts = {"reschedule": airflow.reschedules, "deferrable_external": airflow.sleeps}
        seen = watch(window, lambda: cpu_of(airflow.parts()), counts.get(kind, lambda: 0), database)
        if kind == "deferrable_file":
            seen["pokes"] = round(sensors * seen["window_s"] / interval)
        memory = airflow.memory_of_all()
        ended = airflow.rows("SELECT state, count(*) FROM task_instance WHERE task_id = 'wait' GROUP BY state")
    assert not {state for state, _ in ended} & {"failed", "success"}, ended
    found = result(
        f"Airflow {kind.replace('_', ' ')}",
        f"apache-airflow {version('apache-airflow')}",
        sensors,
        seen,
        shares=False,
        memory=memory,
        asked=size,
        note=FEW.format(sensors, interval) + NOTES[kind],
        idle=idle,
        interval=interval,
    )
    return found | {"idle_memory_bytes": idle_memory}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
