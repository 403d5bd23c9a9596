"""Cold processes: one that registers once, and ``sensorpool status``, beside the libraries that they import."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.report import Row, demand
from benchmarks.stage import Stage

SENSORS = 1_000  # of the pool that the processes meet
_KEY = {"dag_id": "warm", "run_id": "run"}
_REGISTER = """
import sensorpool
sensorpool.register("benchmarks.sensors.NoOp", {{"n": {n}}}, dag_id="cold", task_id="task{n}", run_id="run")
"""
_LIBRARIES = """
import sys
import psycopg, pydantic_settings, redis, sqlalchemy
database, store = sys.argv[1:]
with sqlalchemy.create_engine(database).begin() as connection:
    connection.execute(sqlalchemy.text("SELECT 1"))
redis.Redis.from_url(store).ping()
"""


def run(full: bool) -> Iterator[Row]:
    """Measure each kind of process, while a service with a thousand sensors runs."""
    number = 40 if full else 15
    with Stage() as stage:
        stage.pool.register_many(
            {"sensor": "benchmarks.sensors.NoOp", "poke_context": {"n": -n - 1}, "task_id": f"warm{n}"} | _KEY
            for n in range(SENSORS)
        )
        stage.start()
        python = [sys.executable, "-c"]
        servers = (stage.postgres.url, stage.redis.url)
        yield measure(stage, "Python", [[*python, "pass"]] * number)
        yield measure(stage, "the libraries of `status`, connected", [[*python, _LIBRARIES, *servers]] * number)
        yield measure(
            stage, "the same and kombu", [[*python, f"import kombu.messaging\n{_LIBRARIES}", *servers]] * number
        )
        yield measure(stage, "import sensorpool", [[*python, "import sensorpool"]] * number)
        yield measure(stage, "import, one register", [[*python, _REGISTER.format(n=n)] for n in range(number)])
        demand(stage.sensing() == SENSORS + number, f"{stage.sensing()} sensors are there")
        for command in ("status", "health"):
            yield measure(stage, f"sensorpool {command}", [[sys.executable, "-m", "sensorpool", command]] * number)


def measure(stage: Stage, case: str, commands: Sequence[Sequence[str]]) -> Row:
    """Run commands one after the other; return the median of a process. What the servers take for one is little."""
    environment = os.environ | stage.service.environment
    seconds, walls = [], []
    for command in [commands[0], *commands]:  # the first one finds no compiled files
        began = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        demand(process.returncode == 0, f"{command} ended with {process.returncode}")
        seconds.append(used.ru_utime + used.ru_stime)
        walls.append(time.monotonic() - began)
    return {
        "case": case,
        "processes": len(commands),
        "CPU, ms": 1_000 * statistics.median(seconds[1:]),
        "seconds": statistics.median(walls[1:]),
    }
