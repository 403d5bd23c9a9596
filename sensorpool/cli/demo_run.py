"""The demo: sensors that wait for real files, a local HTTP server and SQL rows, which land one after the other.

Two more do not land: the resource of one is withdrawn, and the file of the other never comes. The one-process service
runs on an SQLite file. Every change of state is recorded in a table of the demo's own, and the time of each settle is
compared with the time when its condition came true.
"""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event

from sensorpool.cli.demo_world import CONN_ID, KINDS, World
from sensorpool.client.pool import Pool
from sensorpool.config.defaults import MEMORY
from sensorpool.config.settings import Settings
from sensorpool.service.standalone import Standalone

FAILING = 2  # sensors that are there for their failures
DISTINCT = 0.6  # conditions a sensor: AIP-17 found 40 % of Airbnb's sensors to be duplicates

_AUDIT = """
CREATE TABLE demo_audit (instance_id INTEGER NOT NULL, state TEXT NOT NULL, at INTEGER);
CREATE TRIGGER demo_watch AFTER UPDATE OF state ON sensor_instance WHEN NEW.state <> 'sensing' BEGIN
    INSERT INTO demo_audit VALUES (NEW.id, NEW.state, NEW.settled_at);
END;
"""


@dataclass
class Summary:
    """The result of the demo: all sensors settled, the two more failed, and ``doubled`` and ``lost`` are 0."""

    sensors: int
    groups: int = 0
    settled: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    pokes: int = 0
    pokes_saved: int = 0
    ticks: int = 0
    statements_per_tick: float = 0.0
    latency_p50_s: float = 0.0
    latency_p99_s: float = 0.0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether every sensor was settled exactly once, and those failed that had to."""
        return self.settled == self.sensors and self.failed == FAILING and not self.lost and not self.doubled

    @property
    def saved(self) -> float:
        """The part of the pokes that sharing saved."""
        return self.pokes_saved / max(1, self.pokes + self.pokes_saved)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields with rounded numbers, for printing."""
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass
class Jobs:
    """The sums of the jobs' results."""

    ticks: int = 0
    pokes: int = 0
    saved: int = 0


class Demo:
    """One run of the demo.

    :param folder: for the pool's database and the files.
    :param sensors: the number of sensors.
    :param seconds: the time in which the conditions come true.
    """

    def __init__(self, folder: Path, sensors: int, seconds: float) -> None:
        self.summary = Summary(sensors)
        self._folder = folder
        self._seconds = seconds
        self._world = World(folder)
        self._database = folder / "pool.db"
        self._settings = Settings.load(
            database_url=f"sqlite:///{self._database}",
            redis_url=MEMORY,
            broker_url=MEMORY,
            shards=4,
            tick=1.0,
            poke_interval=1.0,
            poke_timeout=10.0,
            metrics_port=None,
        )
        chance = random.Random(17)
        count = max(1, round(sensors * DISTINCT))
        self.conditions = [
            self._world.condition(KINDS[number % len(KINDS)], number, chance.uniform(0.5, seconds))
            for number in range(count)
        ]
        self.failing = [self._world.withdrawn(seconds / 3), self._world.forgotten(seconds / 2)]
        self._waiters = list(range(count)) + [chance.randrange(count) for _ in range(sensors - count)]
        self._statements = 0
        self._jobs = Jobs()
        self._started = 0.0

    @contextmanager
    def running(self) -> Iterator[Pool]:
        """Run the service, with all sensors waiting in its pool, until the context is left."""
        os.environ[f"SENSORPOOL_CONN_{CONN_ID}"] = self._world.connection
        self._started = time.monotonic()
        try:
            with Standalone(self._settings) as service:
                event.listen(service.worker.database.engine, "before_cursor_execute", self._count_statement)
                self._watch_states()
                _count_jobs(service, self._jobs)
                with closing(Pool(self._settings)) as pool:
                    self._register(pool)
                    yield pool
        finally:
            self._world.close()

    def land(self, progress: Callable[[int, int, int], None]) -> None:
        """Make the conditions true one after the other, and wait until all sensors have ended.

        :param progress: is called with the numbers of true conditions, ended sensors, and pokes.
        """
        started = time.monotonic()
        pending = sorted([*self.conditions, *self.failing], key=lambda condition: condition.lands_after)
        give_up_at = started + self._seconds + 60
        true = 0
        while time.monotonic() < give_up_at:
            passed = time.monotonic() - started
            while true < len(pending) and pending[true].lands_after <= passed:
                pending[true].make_true()
                pending[true].true_at = time.time()
                true += 1
            settled = len(self._audit())
            progress(true, settled, self._jobs.pokes)
            if true == len(pending) and settled >= self.summary.sensors + FAILING:
                return
            time.sleep(0.05)

    def _register(self, pool: Pool) -> None:
        registrations: list[dict[str, Any]] = []
        for number, place in enumerate(self._waiters):
            condition = self.conditions[place]
            key = {"dag_id": f"demo_{number % 10}", "task_id": f"wait_{number}", "run_id": "demo"}
            registrations.append(
                {"op_classpath": condition.op_classpath, "poke_context": condition.poke_context, **key}
            )
        for condition, task_id in zip(self.failing, ("withdrawn", "forgotten"), strict=True):
            registration: dict[str, Any] = {
                "op_classpath": condition.op_classpath,
                "poke_context": condition.poke_context,
                **{"dag_id": "demo_failing", "task_id": task_id, "run_id": "demo"},
            }
            registrations.append(registration | ({} if condition.timeout is None else {"timeout": condition.timeout}))
        instances = pool.register_many(registrations)
        waited_for = [*(self.conditions[place] for place in self._waiters), *self.failing]
        for condition, instance in zip(waited_for, instances, strict=True):
            condition.instances.append(instance.id)
        self.summary.groups = len({instance.group_id for instance in instances})

    def sum_up(self) -> Summary:
        """Return what came of it."""
        summary, jobs = self.summary, self._jobs
        summary.seconds = time.monotonic() - self._started
        seen: dict[int, int] = {}
        settled_at: dict[int, float] = {}
        for instance_id, state, at in self._audit():
            seen[instance_id] = seen.get(instance_id, 0) + 1
            if state == "success":
                settled_at[instance_id] = at / 1000
        summary.settled = len(settled_at)
        summary.failed = len(seen) - len(settled_at)
        summary.lost = summary.sensors + FAILING - len(seen)
        summary.doubled = sum(1 for times in seen.values() if times > 1)
        summary.pokes, summary.pokes_saved, summary.ticks = jobs.pokes, jobs.saved, jobs.ticks
        summary.statements_per_tick = self._statements / max(1, jobs.ticks)
        late = sorted(
            max(0.0, settled_at[instance_id] - condition.true_at)
            for condition in self.conditions
            for instance_id in condition.instances
            if instance_id in settled_at
        )
        if late:
            summary.latency_p50_s, summary.latency_p99_s = late[len(late) // 2], late[int(len(late) * 0.99)]
        return summary

    def _watch_states(self) -> None:
        connection = sqlite3.connect(self._database, timeout=30)
        connection.executescript(_AUDIT)
        connection.close()

    def _audit(self) -> list[tuple[int, str, int]]:
        connection = sqlite3.connect(self._database, timeout=30)
        try:
            return connection.execute("SELECT instance_id, state, at FROM demo_audit").fetchall()
        finally:
            connection.close()

    def _count_statement(self, *_: Any) -> None:
        self._statements += 1


def _count_jobs(service: Standalone, jobs: Jobs) -> None:
    """Add up the results of the service's jobs, which Flower would show."""
    lock = threading.Lock()
    count = service.worker.metrics.job

    def add(result: Any) -> None:
        count(result)
        if not result.skipped:
            with lock:
                jobs.ticks += 1
                jobs.pokes += result.poked
                jobs.saved += result.saved

    service.worker.metrics.job = add  # type: ignore[method-assign]
