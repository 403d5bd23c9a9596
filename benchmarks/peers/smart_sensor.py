"""The original Smart Sensor of Airflow 2.3.4: the unmodified operator, one process, on PostgreSQL."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.peers.environments import environment, version
from benchmarks.peers.window import (
    INTERVAL,
    Result,
    cpu_of,
    distinct_of,
    paths,
    resident,
    result,
    transactions,
    watch,
    whole_intervals,
)
from benchmarks.stage import POSTGRES
from harness.servers import PostgresServer
from harness.service import kill_tree
from harness.until import until

SCRIPT = Path(__file__).with_name("smart_sensor_run.py")
PATIENCE = 1800.0
ROUND = "seconds to execute"  # in the log line at the end of a round
NOTE = (
    "one operator process and its database; the scheduler and the worker that Airflow runs it with are not counted, "
    "which is in its favour. Its steady round is one query and no write. Serial pokes."
)


def measure(size: int, seconds: float) -> Result:
    """Measure steady rounds; the first round, which opens a log for each sensor, is reported apart."""
    python = environment("smart_sensor")
    with tempfile.TemporaryDirectory(prefix="sensorpool-peers-") as name, PostgresServer(POSTGRES) as postgres:
        folder = Path(name)
        counted = folder / "pokes"
        counted.touch()
        settings = {
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.url.replace("+psycopg", "+psycopg2"),
            "AIRFLOW__SMART_SENSOR__USE_SMART_SENSOR": "True",
            "AIRFLOW__SMART_SENSOR__SENSORS_ENABLED": "PathExists",
            "PEER_POKES": str(counted),
            "PYTHONWARNINGS": "ignore",
        }
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "PYTHON"))} | settings
        (folder / "paths").write_text("\n".join(paths(folder, size)))
        log = folder / "log"

        def start(*command: str) -> subprocess.Popen[bytes]:
            with log.open("ab") as output:
                return subprocess.Popen(
                    [str(python), *command], env=variables, cwd=folder, stdout=output, stderr=subprocess.STDOUT
                )

        def rounds() -> int:
            return log.read_text(errors="replace").count(ROUND)

        for command in (["-m", "airflow", "db", "init"], [str(SCRIPT), "register", str(folder / "paths")]):
            process = start(*command)
            try:
                if process.wait(PATIENCE):
                    raise RuntimeError(f"{command} failed: {log.read_text(errors='replace')[-3000:]}")
            finally:
                kill_tree(process)

        database_before = cpu_of({"PostgreSQL": postgres.pid})["PostgreSQL"]
        process = start(str(SCRIPT), "run", str(INTERVAL))
        try:
            parts = {"operator": process.pid, "PostgreSQL": postgres.pid}
            # the import of Airflow is no part of a round: it is over at the first poke
            until("its first poke", lambda: counted.stat().st_size or process.poll() is not None, PATIENCE)
            loaded = cpu_of({"operator": process.pid})["operator"]
            until("its first round", lambda: rounds() or process.poll() is not None, PATIENCE, 0.2)
            if process.poll() is not None:
                raise RuntimeError(f"it ended: {log.read_text(errors='replace')[-3000:]}")
            used = cpu_of(parts)
            cold = used["operator"] - loaded + used["PostgreSQL"] - database_before
            until("a steady round", lambda: rounds() >= 2, PATIENCE, 0.2)
            time.sleep(1)  # windows begin and end between two rounds
            seen = watch(
                whole_intervals(seconds),
                lambda: cpu_of(parts),
                lambda: counted.stat().st_size,
                lambda: transactions(postgres.url),
            )
            memory = resident(process.pid)
        finally:
            kill_tree(process)
        found = result(
            "Smart Sensor",
            f"apache-airflow {version(python, 'apache-airflow')}",
            size,
            seen,
            shares=True,
            memory=memory,
            asked=size,
            note=NOTE,
        )
        return found | {
            "cold_cpu_s": round(cold, 3),
            "cold_cpu_us_per_unique_poke": round(cold / distinct_of(size) * 1e6),
        }
