"""Sensors that wait through an outage, and what must have come of each of them when it is over."""

import json
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

import psutil

from harness import audit
from harness.servers import guard
from sensorpool.model.states import State
from sensorpool.store.database import Database
from tests.e2e import report
from tests.e2e.cluster import Cluster

INTERVAL = 2.0  # seconds; of the DAG and of the cluster
_WRONG = frozenset({"failed", "up_for_retry", "skipped", "upstream_failed", "removed"})

_WITNESS = (
    "CREATE TABLE public.witness (dag_id text, task_id text, run_id text, map_index int, became text)",
    """CREATE FUNCTION public.witness_state() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         INSERT INTO public.witness VALUES (NEW.dag_id, NEW.task_id, NEW.run_id, NEW.map_index, NEW.state);
         RETURN NEW; END $$""",
    """CREATE TRIGGER witness_state AFTER UPDATE ON public.task_instance FOR EACH ROW
         WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION public.witness_state()""",
)


def watch(cluster: Cluster) -> None:
    """Have the database note each change of state: of the pool's instances, and of Airflow's task instances."""
    with _pool_of(cluster) as pool:
        audit.install(pool)
    watch_tasks(cluster)


def watch_tasks(cluster: Cluster) -> None:
    """Have the database note each change of a task's state, in a table ``witness``."""
    cluster.execute(*_WITNESS)


@contextmanager
def _pool_of(cluster: Cluster) -> Iterator[Database]:
    database = Database(cluster.postgres.url, schema="sensorpool", pool_size=1)
    yield database
    database.dispose()


class Outage:
    """A run of a DAG whose sensors wait while something goes wrong.

    :param row: of the fault table, for the report.
    """

    def __init__(self, cluster: Cluster, run_id: str, row: str, dag_id: str = "outage") -> None:
        self.cluster, self.run_id, self.row, self.dag_id = cluster, run_id, row, dag_id

    def start(self, **conf: object) -> None:
        """Start the run."""
        self.cluster.trigger(self.dag_id, self.run_id, **conf)  # type: ignore[arg-type]

    def wait(self) -> None:
        """Start the sensors, and wait until all of them wait in the pool, and their triggers for that."""
        self.start()
        self.cluster.wait_for("all deferred", lambda: Counter(self.states().values()) == {"deferred": 8})
        self.cluster.wait_for("their triggers", lambda: self.lines("waits in the pool since") == 8)

    def land(self) -> None:
        """Let all conditions hold."""
        for number in range(4):
            (self.cluster.work / f"{self.run_id}_direct_{number}").write_text("land")
            (self.cluster.work / f"{self.run_id}_resumed_{number}").write_text(f"xcom {json.dumps(self.run_id)}")

    def states(self) -> dict[tuple[str, int], str | None]:
        """Return the state of each sensor, by task id and map index."""
        found = self.cluster.states(self.dag_id, self.run_id)
        return {key: state for key, (state, _) in found.items() if key[0] != "flags"}

    def instances(self) -> list[Any]:
        """Return the pool's instances."""
        return self.cluster.instances(dag_id=self.dag_id, run_id=self.run_id)

    def lines(self, words: str) -> int:
        """Count lines in the tasks' logs."""
        return self.cluster.lines(self.dag_id, self.run_id, words)

    def has_settled(self) -> bool:
        """Whether the pool's database has the end of each."""
        found = Counter(row.state for row in self.instances())
        return bool(found) and State.SENSING not in found

    def settle(self) -> None:
        """Wait until the pool's database has the end of each."""
        self.cluster.wait_for("all settled", self.has_settled)

    def end_well(self, healed: float, pooled: Set[str] = frozenset({"success"})) -> None:
        """See every task succeed, once.

        :param healed: when what was broken answered again, in seconds since 1970.
        :param pooled: the states that the pool's instances end in.
        """
        self.cluster.wait_for(
            "the end of the run", lambda: self.cluster.run_state(self.dag_id, self.run_id) in {"success", "failed"}
        )
        self.settle()
        row, states = report.row(self.row), self.states()
        row.runs += 1
        became = self._became()
        succeeded = {key for key in states if became[*key, "success"]}
        doubled = {key for key in states if became[*key, "success"] > 1} | self._doubled()
        wrong = sorted((*key, state) for *key, state in became if state in _WRONG)
        row.lost += len(states) - len(succeeded)
        row.doubled += len(doubled)
        row.wrongly_failed += len(wrong)
        row.recovery += self._recovery(healed)
        assert set(states.values()) == {"success"}, states
        assert not doubled
        assert not wrong
        assert row.lost == 0
        tries = {number for _, number in self.cluster.states(self.dag_id, self.run_id).values()}
        assert tries == {1}
        assert {one.state for one in self.instances()} <= pooled
        with _pool_of(self.cluster) as pool:
            found = audit.read(pool)
        assert not found.doubled
        assert not found.changed
        assert not set(found.still_sensing) & {one.id for one in self.instances()}

    def _became(self) -> Counter[tuple[str, int, str]]:
        rows = self.cluster.rows(
            "SELECT * FROM public.witness WHERE dag_id = :dag_id AND run_id = :run_id",
            dag_id=self.dag_id,
            run_id=self.run_id,
        )
        return Counter((row.task_id, row.map_index, row.became) for row in rows if row.task_id != "flags")

    def _doubled(self) -> set[tuple[str, int]]:
        """Look at the callbacks and XComs of those who have some; return who has more than one."""
        called = Counter(
            (note["task_id"], note["map_index"])
            for note in self.cluster.notes()
            if note["kind"] == "callback" and note["run_id"] == self.run_id and note["dag_id"] == self.dag_id
        )
        rows = self.cluster.rows(
            "SELECT task_id, map_index, value FROM public.xcom"
            " WHERE dag_id = :dag_id AND run_id = :run_id AND task_id <> 'flags'",
            dag_id=self.dag_id,
            run_id=self.run_id,
        )
        pushed = Counter((row.task_id, row.map_index) for row in rows)
        resumed = {key for key in self.states() if key[0].startswith("resumed")}
        assert set(called) == (set(self.states()) if self.dag_id == "fleet_called_back" else resumed)
        assert set(pushed) == resumed
        assert all(self.run_id in str(row.value) for row in rows), rows
        return {key for counted in (called, pushed) for key, times in counted.items() if times > 1}

    def _recovery(self, healed: float) -> Iterator[float]:
        rows = self.cluster.rows(
            "SELECT extract(epoch FROM end_date) FROM public.task_instance"
            " WHERE dag_id = :dag_id AND run_id = :run_id AND task_id <> 'flags' AND end_date IS NOT NULL",
            dag_id=self.dag_id,
            run_id=self.run_id,
        )
        return (max(0.0, float(row[0]) - healed) / INTERVAL for row in rows)


@contextmanager
def airflow_without_database(cluster: Cluster) -> Iterator[None]:
    """Airflow's database takes no connections of Airflow's; the pool's own go on, on the same server."""
    cluster.execute(
        "ALTER ROLE airflow NOLOGIN",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'airflow'",
    )
    try:
        yield
    finally:
        cluster.execute("ALTER ROLE airflow LOGIN")


@contextmanager
def frozen(cluster: Cluster, component: str) -> Iterator[None]:
    """A component and all its children stand still: connections stay open, and nothing answers."""
    processes = guard.freeze([psutil.Process(cluster.processes[component].pid)])
    try:
        yield
    finally:
        guard.thaw(processes)


def has_beaten_since(cluster: Cluster, moment: float) -> bool:
    """Whether scheduler and triggerer have each written a heartbeat since a moment (seconds since 1970).

    One that a lost database ends may take seconds to end: until then it counts as healthy, by its last heartbeat.
    """
    statement = "SELECT count(DISTINCT job_type) FROM public.job WHERE extract(epoch FROM latest_heartbeat) > :moment"
    kinds = "job_type IN ('SchedulerJob', 'TriggererJob') AND state = 'running'"
    return int(cluster.rows(f"{statement} AND {kinds}", moment=moment)[0][0]) == 2


def revive(cluster: Cluster) -> list[str]:
    """Start again what has ended by itself, as a service manager does; return what that was."""
    ended = [name for name, process in cluster.processes.items() if process.poll() is not None]
    for name in ended:
        cluster.start_component(name)
    return ended
