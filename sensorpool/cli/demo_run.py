"""The demo: sensors that wait for real files, a local HTTP server and SQL rows, which land one after the other.

It runs the one-process service on an SQLite file, records every change of state in a table of its own, and compares the
time of each settle with the time when its condition came true.
"""

import json
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event

from sensorpool.cli.demo_world import CONN_ID, KINDS, World
from sensorpool.client.pool import Pool
from sensorpool.config.defaults import MEMORY
from sensorpool.config.settings import Settings
from sensorpool.service.standalone import Standalone

DISTINCT = 0.6  # conditions a sensor: AIP-17 found 40 % of Airbnb's sensors to be duplicates

_AUDIT = """
CREATE TABLE demo_audit (instance_id INTEGER NOT NULL, state TEXT NOT NULL, at INTEGER);
CREATE TRIGGER demo_watch AFTER UPDATE OF state ON sensor_instance WHEN NEW.state <> 'sensing' BEGIN
    INSERT INTO demo_audit VALUES (NEW.id, NEW.state, NEW.settled_at);
END;
"""


@dataclass
class Summary:
    """The result of the demo. ``doubled`` and ``lost`` must be 0."""

    sensors: int
    groups: int = 0
    settled: int = 0
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
        """Whether every sensor was settled exactly once."""
        return self.settled == self.sensors and not self.lost and not self.doubled

    def as_dict(self) -> dict[str, Any]:
        """Return the fields with rounded numbers, for printing."""
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


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
        self._waiters = list(range(count)) + [chance.randrange(count) for _ in range(sensors - count)]
        self._statements = 0

    def run(self, progress: Callable[[int, int, int], None]) -> Summary:
        """Run the demo; ``progress`` is called with the numbers of true conditions, settled instances, and pokes."""
        os.environ[f"SENSORPOOL_CONN_{CONN_ID}"] = self._world.connection
        started = time.monotonic()
        try:
            with Standalone(self._settings) as service:
                event.listen(service.worker.database.engine, "before_cursor_execute", self._count_statement)
                self._watch_states()
                jobs = _count_jobs(service)
                pool = Pool(self._settings)
                self._register(pool)
                self._land(jobs, progress)
                pool.close()
                self._sum_up(jobs)
        finally:
            self._world.close()
        self.summary.seconds = time.monotonic() - started
        return self.summary

    def _register(self, pool: Pool) -> None:
        registrations = []
        for number, place in enumerate(self._waiters):
            condition = self.conditions[place]
            key = {"dag_id": f"demo_{number % 10}", "task_id": f"wait_{number}", "run_id": "demo"}
            registrations.append(
                {"op_classpath": condition.op_classpath, "poke_context": condition.poke_context, **key}
            )
        instances = pool.register_many(registrations)
        for place, instance in zip(self._waiters, instances, strict=True):
            self.conditions[place].instances.append(instance.id)
        self.summary.groups = len({instance.group_id for instance in instances})

    def _land(self, jobs: "Jobs", progress: Callable[[int, int, int], None]) -> None:
        """Make the conditions true one after the other, and wait until all instances are settled."""
        started = time.monotonic()
        pending = sorted(self.conditions, key=lambda condition: condition.lands_after)
        give_up_at = started + self._seconds + 60
        true = 0
        while time.monotonic() < give_up_at:
            passed = time.monotonic() - started
            while true < len(pending) and pending[true].lands_after <= passed:
                pending[true].make_true()
                pending[true].true_at = time.time()
                true += 1
            settled = len(self._audit())
            progress(true, settled, jobs.pokes)
            if true == len(pending) and settled >= self.summary.sensors:
                return
            time.sleep(0.05)

    def _sum_up(self, jobs: "Jobs") -> None:
        summary = self.summary
        seen: dict[int, int] = {}
        settled_at: dict[int, float] = {}
        for instance_id, state, at in self._audit():
            seen[instance_id] = seen.get(instance_id, 0) + 1
            if state == "success":
                settled_at[instance_id] = at / 1000
        summary.settled = len(settled_at)
        summary.lost = summary.sensors - len(seen)
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


@dataclass
class Jobs:
    """The sums of the jobs' results."""

    ticks: int = 0
    pokes: int = 0
    saved: int = 0


def _count_jobs(service: Standalone) -> Jobs:
    """Add up the results of the service's jobs, which Flower would show."""
    jobs, lock = Jobs(), threading.Lock()
    count = service.worker.metrics.job

    def add(result: Any) -> None:
        count(result)
        if not result.skipped:
            with lock:
                jobs.ticks += 1
                jobs.pokes += result.poked
                jobs.saved += result.saved

    service.worker.metrics.job = add  # type: ignore[method-assign]
    return jobs


def as_json(summary: Summary) -> str:
    """Return a summary as one JSON object on one line."""
    return json.dumps(summary.as_dict())
