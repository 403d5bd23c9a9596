"""Sensors that wait together: a run of a DAG of `dags/fleet.py`."""

import os
from collections import Counter
from typing import Any

from tests.e2e.cluster import Cluster

WAITING = int(os.environ.get("SENSORPOOL_TEST_WAITING", "24"))


class Fleet:
    """A run of the DAG ``fleet``."""

    def __init__(self, cluster: Cluster, run_id: str, dag_id: str = "fleet") -> None:
        self.cluster, self.run_id, self.dag_id = cluster, run_id, dag_id
        self.flags: list[str] = []

    def wait(self, count: int = WAITING, distinct: int = 6) -> None:
        """Start sensors, and wait until all of them wait in the pool, and their triggers for that."""
        self.start(count, distinct)
        self.cluster.wait_for(f"{count} deferred", lambda: self.states() == {"deferred": count})
        words = "waits in the pool since"
        self.cluster.wait_for("triggers", lambda: self.cluster.lines(self.dag_id, self.run_id, words) == count)

    def start(self, count: int, distinct: int) -> None:
        """Start sensors."""
        self.flags = [f"{self.run_id}_{number % distinct}" for number in range(count)]
        self.cluster.trigger(self.dag_id, self.run_id, flags=self.flags)

    def states(self) -> Counter[str | None]:
        """Count the sensors' states."""
        found = self.cluster.states(self.dag_id, self.run_id)
        return Counter(state for (task, index), (state, _) in found.items() if task == "wait" and index >= 0)

    def land(self) -> None:
        """Let all conditions hold."""
        for flag in set(self.flags):
            (self.cluster.work / flag).write_text("land")

    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.cluster.run_state(self.dag_id, self.run_id) in {"success", "failed"}

    def pokes(self) -> list[float]:
        """Return when this run's conditions were poked, in seconds since 1970."""
        notes = self.cluster.notes()
        return [note["at"] for note in notes if note["kind"] == "poke" and note["flag"] in self.flags]

    def rows(self) -> list[Any]:
        """Return the rows of this run's sensors in Airflow's database, as they are."""
        return self.cluster.rows(
            "SELECT * FROM public.task_instance WHERE dag_id = :dag_id AND run_id = :run_id ORDER BY id",
            dag_id=self.dag_id,
            run_id=self.run_id,
        )

    def ends_well(self) -> None:
        """Land, and see every sensor succeed."""
        self.land()
        self.cluster.wait_for("success of all", self.is_over)
        assert self.states() == {"success": len(self.flags)}
        assert {row.state for row in self.cluster.instances(run_id=self.run_id)} == {"success"}
