"""A real Airflow 3.3 on loopback: PostgreSQL, Redis, CeleryExecutor, all components, and the pool beside it.

Airflow and the pool each have a Redis and a PostgreSQL role of their own, so that a test can break only one of them.
"""

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from cryptography.fernet import Fernet
from sqlalchemy import Engine, create_engine, make_url, text

from harness.servers import PostgresServer, RedisServer
from harness.servers.server import LOOPBACK, free_port
from harness.service import kill_tree
from harness.until import until

ROOT = Path(__file__).parents[1]
PATIENCE = 240.0
COMPONENTS = {
    "api-server": ("airflow", "api-server"),
    "scheduler": ("airflow", "scheduler"),
    "dag-processor": ("airflow", "dag-processor"),
    "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
    "celery": ("airflow", "celery", "worker", "--skip-serve-logs"),
    "pool": ("celery", "-A", "sensorpool", "worker", "--concurrency=2", "--loglevel=INFO"),
    "beat": ("celery", "-A", "sensorpool", "beat", "--loglevel=INFO"),
}


class AirflowCluster:
    """Airflow and the pool, on one database: the pool's tables have a schema of their own.

    :param folder: for all files of the run; tasks read and write in its ``work`` (``CLUSTER_WORK`` in their
        environment).
    :param slots: tasks that the Celery worker runs at once.
    :param options: options of the section ``[sensorpool]``.
    """

    dags: ClassVar[Path]  # the folder of the DAGs
    site: ClassVar[Path]  # the packages that are installed beside Airflow; their commands are in ``bin``

    def __init__(self, folder: Path, *, slots: int = 16, **options: object) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        (folder / "logs").mkdir()
        self.postgres, self.redis, self.pool_redis = PostgresServer(), RedisServer(), RedisServer()
        self.port = free_port()
        self.slots = slots
        self.options = {
            "enabled": True,
            "tick": 1,
            "poke_interval": 2,
            "poke_timeout": 2,
            "lease_ttl": 6,
            "heartbeat": 1,
            "rescue_interval": 5,
            "shards": 4,
        } | options
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._secrets = {
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
        }
        self._token = ""
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            kill_tree(process)
        if self._engine is not None:
            self._engine.dispose()
        for server in (self.redis, self.pool_redis, self.postgres):
            server.close()

    @property
    def environment(self) -> dict[str, str]:
        """The one configuration that serves Airflow and the pool."""
        database = make_url(self.postgres.url).set(username="airflow").render_as_string(hide_password=False)
        mine = {
            "AIRFLOW_HOME": str(self.folder / "home"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": self.redis.url,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(self.slots),
            "AIRFLOW__CELERY__WORKER_ENABLE_REMOTE_CONTROL": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{self.port}/execution/",
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": f"http://{LOOPBACK}:{self.port}",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "3600",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__PARALLELISM": "512",
            "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": "2000",
            "AIRFLOW__TRIGGERER__CAPACITY": "5000",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",  # seconds
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",  # with 5, one that is late counts as dead on a busy machine
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.folder / "logs"),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW__SENSORPOOL__DATABASE_URL": self.postgres.url,
            "AIRFLOW__SENSORPOOL__REDIS_URL": self.pool_redis.url,
            "AIRFLOW_CONN_FS_DEFAULT": json.dumps({"conn_type": "fs", "extra": {"path": "/"}}),
            "CLUSTER_WORK": str(self.work),
            "C_FORCE_ROOT": "1",
            "PYTHONPATH": f"{self.site}:{ROOT}",  # this checkout, whatever is installed
            "PATH": f"{self.site / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        ours = {f"AIRFLOW__SENSORPOOL__{name.upper()}": str(value) for name, value in self.options.items()}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SENSORPOOL"))}
        return kept | mine | self._secrets | ours

    def start(self) -> None:
        """Start all servers and components, and wait until they are healthy."""
        self.start_servers()
        self.run("airflow", "db", "migrate")
        self.run("sensorpool", "db", "upgrade")
        for name in COMPONENTS:
            self.start_component(name)
        until("a healthy Airflow", self.is_healthy, PATIENCE, 0.5)
        until("ticks", lambda: self.run("sensorpool", "health", check=False).returncode == 0, PATIENCE, 0.5)

    def start_servers(self) -> None:
        """Start the servers, and make Airflow's role."""
        for server in (self.redis, self.pool_redis, self.postgres):
            server.start()
        self.execute(f"CREATE ROLE airflow LOGIN SUPERUSER PASSWORD '{self.postgres.password}'")

    def start_component(self, name: str, component: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """Start a component under a name; ``component`` says which one, if the name is not a component's own."""
        kind = component or name
        command = [str(Path(sys.executable).parent / COMPONENTS[kind][0]), *COMPONENTS[kind][1:]]
        if kind in {"celery", "pool"}:
            command.append(f"--celery-hostname={name}@%h" if kind == "celery" else f"--hostname={name}@%h")
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment | environment, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
            )
        return self.processes[name]

    def stop_component(self, name: str) -> None:
        """Kill a component and all its children."""
        kill_tree(self.processes.pop(name))

    def run(self, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the cluster's environment."""
        done = subprocess.run(
            [str(Path(sys.executable).parent / command[0]), *command[1:]],
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done

    def is_healthy(self) -> bool:
        """Whether all of Airflow's components report that they are healthy."""
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {(self.folder / f'{name}.log').read_text()[-3000:]}"
        try:
            found = self.api("GET", "/monitor/health", authorised=False)
        except OSError:
            return False
        return all(
            found[name]["status"] == "healthy" for name in ("metadatabase", "scheduler", "triggerer", "dag_processor")
        )

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, authorised: bool = True) -> Any:
        """Call Airflow's public API (v2).

        :raises urllib.error.HTTPError: when the API refuses.
        """
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self.port}/api/v2{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        if authorised:
            if not self._token:
                with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/auth/token", timeout=30) as answer:
                    self._token = json.load(answer)["access_token"]
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = answer.read()
            return json.loads(found) if found else None

    @property
    def database(self) -> Engine:
        """The database of Airflow and the pool."""
        if self._engine is None:
            self._engine = create_engine(self.postgres.url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)
        return self._engine

    def execute(self, *statements: str) -> None:
        """Run statements that change the database."""
        with self.database.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def rows(self, statement: str, **parameters: Any) -> list[Any]:
        """Return the rows of a query."""
        with self.database.connect() as connection:
            return list(connection.execute(text(statement), parameters))

    def trigger(self, dag_id: str, run_id: str, logical_date: str | None = None, **conf: Any) -> None:
        """Start a run of a DAG, as soon as Airflow knows the DAG."""
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": conf}

        def started() -> bool:
            try:
                self.api("POST", f"/dags/{dag_id}/dagRuns", body)
            except urllib.error.HTTPError as error:
                if error.code in {404, 500}:
                    return False
                raise AssertionError(error.read().decode()) from error
            return True

        until(f"a run of {dag_id}", started, PATIENCE, 0.5)

    def put_connection(self, connection: Mapping[str, Any]) -> None:
        """Make a Connection, or replace it."""
        try:
            self.api("POST", "/connections", connection)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
            self.api("PATCH", f"/connections/{connection['connection_id']}", connection)

    def states(self, dag_id: str, run_id: str) -> dict[tuple[str, int], tuple[str | None, int]]:
        """Return state and try of each task instance of a run, by task id and map index."""
        rows = self.rows(
            "SELECT * FROM task_instance WHERE dag_id = :dag_id AND run_id = :run_id", dag_id=dag_id, run_id=run_id
        )
        found = [row._mapping for row in rows]
        return {  # Airflow 3.4 keeps earlier tries beside the current one, and has the map index as `region_index`
            (row["task_id"], row.get("map_index", row.get("region_index"))): (row["state"], row["try_number"])
            for row in found
            if row.get("working_set", True)
        }

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of a run."""
        found = self.rows(
            "SELECT state FROM dag_run WHERE dag_id = :dag_id AND run_id = :run_id", dag_id=dag_id, run_id=run_id
        )
        return str(found[0][0]) if found else ""

    def instances(self, **where: Any) -> list[Any]:
        """Return the pool's instances with these column values."""
        condition = " AND ".join(f"{name} = :{name}" for name in where) or "true"
        return self.rows(f"SELECT * FROM sensorpool.sensor_instance WHERE {condition} ORDER BY id", **where)

    def wait_for(self, what: str, holds: Callable[[], Any], patience: float = PATIENCE, every: float = 0.25) -> Any:
        """Wait until ``holds`` returns a true value, and return it."""
        return until(what, holds, patience, every)

    def sleep_until(self, moment: float) -> None:
        """Sleep until a moment by the monotonic clock."""
        time.sleep(max(0.0, moment - time.monotonic()))
