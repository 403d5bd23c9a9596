"""The stage of a benchmark: PostgreSQL, Redis, beat and prefork workers of the real service, and their meters.

The CPU of all of them counts, and the client's where it takes part.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import psutil
from sqlalchemy import text

from harness.servers import PostgresServer, RedisServer
from harness.service import Service, children, kill_tree
from harness.until import until
from sensorpool.client.pool import Pool
from sensorpool.config.settings import Settings
from sensorpool.model.states import State
from sensorpool.store.migrate import upgrade

ROOT = Path(__file__).parents[1]
HOUR = 3600.0
UNTIL_QUIET = 25.0  # seconds: the first jobs are over, and beat has read the roster again
# settings of a usual server of this size
POSTGRES = {"shared_buffers": "1GB", "max_wal_size": "4GB", "track_io_timing": "off"}

Cpu = dict[str, float]  # seconds by part: beat, worker, PostgreSQL, Redis, client


class Stage:
    """The service on servers of its own.

    :param workers: worker processes, of one child each.
    :param settings: settings of the service, over the product's defaults.
    """

    def __init__(self, *, workers: int = 1, **settings: Any) -> None:
        self._workers = workers
        self._settings: dict[str, Any] = {
            "sensors_enabled": ",".join(
                [f"benchmarks.sensors.{name}" for name in ("NoOp", "AsyncNoOp", "ManyNoOp", "Slow", "AsyncSlow")]
                + [f"sensorpool.sensors.{name}" for name in ("PathSensor", "HttpSensor", "SqlSensor")]
            ),
            **{name: value for name, value in PRODUCT.items() if name not in settings},
        } | settings
        self._stack = ExitStack()

    def vacuum(self) -> None:
        """Do what PostgreSQL does once after so many new rows: else it falls into the one window and not the other."""
        with self.pool.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM (ANALYZE)"))

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sensorpool-bench-")))
            self.postgres = stack.enter_context(PostgresServer(POSTGRES))
            self.redis = stack.enter_context(RedisServer())
            upgrade(self.postgres.url)
            self.service = Service(self.folder, self.postgres.url, self.redis.url, **self._settings)
            # a prefork child may take all the memory that the sensors of the benchmark need
            self.service.environment |= {
                "PYTHONPATH": str(ROOT),
                "SENSORPOOL_CONFIG_MODULE": "benchmarks.celery_settings",
            }
            stack.callback(self.service.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @property
    def pool(self) -> Pool:
        """The pool of clients."""
        return self.service.pool

    def start(self, **environment: str) -> None:
        """Start workers and one beat, and wait for the first job of each range."""
        for _ in range(self._workers):
            self.service.worker(concurrency=1, **environment)
        self.service.beat(**environment)
        until("the first look at every range", self.service.is_ready, HOUR, 0.2)

    def stop(self) -> None:
        """End the workers and beat; the servers run on."""
        for process in self.service.processes:
            kill_tree(process)
        self.service.processes.clear()

    def restart_workers(self) -> float:
        """Replace the workers and beat; return when the new ones were started (monotonic)."""
        self.stop()
        self.service.pool.leases.store.client.flushdb()
        began = time.monotonic()
        for _ in range(self._workers):
            self.service.worker(concurrency=1)
        self.service.beat()
        return began

    # meters

    def cpu(self) -> Cpu:
        """Return the CPU seconds of each part so far, including ended children."""
        used: Cpu = {"beat": 0.0, "workers": 0.0}
        for process in self.service.processes:
            if process.poll() is None:
                part = "beat" if "beat" in str(process.args) else "workers"
                used[part] += tree_seconds(psutil.Process(process.pid))
        used["PostgreSQL"] = tree_seconds(psutil.Process(self.postgres.pid))
        used["Redis"] = tree_seconds(psutil.Process(self.redis.pid))
        used["client"] = sum(os.times()[:2])
        return used

    def children(self) -> list[psutil.Process]:
        """Return the workers' children, which poke."""
        return [
            child for process in self.service.processes if "worker" in str(process.args) for child in children(process)
        ]

    def memory(self) -> int:
        """Return the resident bytes of all children."""
        return sum(child.memory_info().rss for child in self.children())

    def counters(self) -> dict[str, int]:
        """Return the workers' counts so far: pokes, groups, landed, jobs, skipped."""
        return read_jobs(self.folder)

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        """Collect the statements that PostgreSQL runs in this context. Not while CPU is measured: it logs them."""
        found: list[str] = []
        self._log_statements("all")
        place = self.postgres.log.stat().st_size
        yield found
        self._log_statements("none")
        with self.postgres.log.open(errors="replace") as log:
            log.seek(place)
            for line in log:
                for mark in ("LOG:  statement: ", "LOG:  execute "):
                    if mark in line:
                        statement = line.split(mark, 1)[1].strip()
                        if statement.split(" ", 1)[0] not in {"BEGIN", "COMMIT", "ROLLBACK", "ALTER"}:
                            found.append(statement)

    def _log_statements(self, which: str) -> None:
        engine = self.pool.database.engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"ALTER SYSTEM SET log_statement = '{which}'"))
            connection.execute(text("SELECT pg_reload_conf()"))
        time.sleep(0.5)

    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Return the rows of a query."""
        return list(self.pool.database.read(lambda c: c.execute(text(statement), values).all()))

    def states(self) -> dict[str, int]:
        """Count the instances by state."""
        return {row[0]: row[1] for row in self.rows("SELECT state, count(*) FROM sensor_instance GROUP BY state")}

    def groups(self) -> int:
        """Count the groups."""
        return int(self.rows("SELECT count(*) FROM poke_group")[0][0])

    def sensing(self) -> int:
        """Count the sensing instances."""
        return self.states().get(str(State.SENSING), 0)


# the defaults of `Settings`, which the fast profile of the tests overrides
_OVERRIDDEN = (
    "shards",
    "tick",
    "poke_interval",
    "poke_timeout",
    "lease_ttl",
    "heartbeat",
    "rescue_interval",
    "log_level",
)
PRODUCT: dict[str, Any] = {name: getattr(Settings(), name) for name in _OVERRIDDEN}


def tree_seconds(root: psutil.Process) -> float:
    """Return the CPU seconds of a process and of all its descendants, including ended ones."""

    def own(process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system + times.children_user + times.children_system)

    return own(root) + sum(own(child) for child in root.children(recursive=True))


def less(after: Mapping[str, float], before: Mapping[str, float]) -> Cpu:
    """Return the difference of two measurements."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


def read_jobs(folder: Path) -> dict[str, int]:
    """Add up the figures of the jobs in the workers' logs."""
    total = {"jobs": 0, "poked": 0, "landed": 0, "errors": 0, "settled": 0, "left": 0}
    for path in folder.glob("worker-*.log"):
        with path.open(errors="replace") as log:
            for line in log:
                if "message=poked" not in line and '"poked"' not in line and " poked " not in line:
                    continue
                total["jobs"] += 1
                for name in ("poked", "landed", "errors", "settled", "left"):
                    place = line.rfind(f" {name}=")
                    if place >= 0:
                        total[name] += int(line[place + len(name) + 2 :].split(" ", 1)[0].split("}")[0])
    return total


def write_json(path: Path, found: object) -> None:
    """Write a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, sort_keys=True, default=str) + "\n")
