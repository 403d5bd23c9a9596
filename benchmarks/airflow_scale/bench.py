"""The Airflow of this benchmark, and its meters: CPU, memory and open files by component, transactions."""

import contextlib
from pathlib import Path

import psutil

from benchmarks.airflow_apart import ClusterApart

SITE = Path(__file__).parents[1] / "airflow" / "site"


class Bench(ClusterApart):
    """Airflow at its usual pace, with the pool's defaults."""

    site = SITE

    def __init__(self, folder: Path, **options: object) -> None:
        self.dags = folder / "dags"  # type: ignore[misc]  # each run writes its own
        self.dags.mkdir(parents=True)
        super().__init__(folder / "airflow", slots=8, **options)
        usual = ("tick", "poke_interval", "poke_timeout", "lease_ttl", "heartbeat", "rescue_interval", "shards")
        self.options = {name: value for name, value in self.options.items() if name not in usual}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the tests, without the settings that make tests quick."""
        return super().environment | {
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
            "AIRFLOW__TRIGGERER__CAPACITY": "20000",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "36000",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        }

    def count(self, dag_ids: list[str], run_id: str, state: str) -> int:
        """Count the task instances of a run in a state."""
        row = self.rows(
            "SELECT count(*) FROM task_instance WHERE dag_id = ANY(:dag_ids) AND run_id = :run_id AND state = :state",
            dag_ids=dag_ids,
            run_id=run_id,
            state=state,
        )
        return int(row[0][0])

    def sensing(self, dag_ids: list[str], run_id: str) -> tuple[int, int]:
        """Return how many instances of a run wait in the pool, and for how many conditions."""
        row = self.pool_rows(
            "SELECT count(*), count(DISTINCT group_id) FROM sensorpool.sensor_instance"
            " WHERE dag_id = ANY(:dag_ids) AND run_id = :run_id AND state = 'sensing'",
            dag_ids=dag_ids,
            run_id=run_id,
        )
        return int(row[0][0]), int(row[0][1])

    def cpu(self) -> dict[str, float]:
        """Return the seconds of CPU of each component, with the processes that it has started, and of the servers."""
        used = {name: _cpu(psutil.Process(process.pid)) for name, process in self.processes.items()}
        servers = {"PostgreSQL": self.postgres, "Redis": self.redis, "the pool's Redis": self.pool_redis}
        return used | {name: _cpu(psutil.Process(server.pid)) for name, server in servers.items()}

    def triggerer(self) -> tuple[float, int]:
        """Return the resident memory of the triggerer's processes in KB, and how many files they have open."""
        parent = psutil.Process(self.processes["triggerer"].pid)
        family = [parent, *parent.children(recursive=True)]
        return sum(each.memory_info().rss for each in family) / 1024, sum(each.num_fds() for each in family)


def _cpu(parent: psutil.Process) -> float:
    """Return the CPU of a process, of its children that have ended, and of those that live."""
    used = 0.0
    for process in [parent, *parent.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            used += sum(process.cpu_times()[:4])
    return used
