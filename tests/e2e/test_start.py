"""Sensors that begin without a worker, on an Airflow of their own: `start = scheduler` is a setting of all of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.airflow_cluster import AirflowCluster

RUN = "run1"
FILES = [f"file{number}" for number in range(20)]
ENDS = dict.fromkeys([*FILES, "done", "reschedule", "callback", "delta", "external"], "success") | {
    "group.late": "failed",
    "group.soft": "skipped",
    "bad": "failed",
}


class Starting(AirflowCluster):
    """Airflow and the pool, with the DAG of this test."""

    dags = Path(__file__).parent / "start"
    site = Path(__file__).parent / "site"

    def by_task(self) -> dict[str, str | None]:
        """Return the state of each task."""
        return {task_id: state for (task_id, _), (state, _) in self.states("starts", RUN).items()}

    def worker_logs(self) -> set[str]:
        """Return the tasks that a worker has begun."""
        logs = (self.folder / "logs").rglob("attempt=1.log")
        return {log.parent.name.removeprefix("task_id=") for log in logs}


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starting]:
    with Starting(tmp_path_factory.mktemp("starting") / "airflow", slots=2, start="scheduler") as running:
        yield running


def test_from_the_scheduler_to_the_end_without_a_worker(starting: Starting) -> None:
    starting.trigger("starts", RUN, "2026-01-01T00:00:00Z")
    waiting = {*FILES, "callback", "external"}
    starting.wait_for("all instances", lambda: waiting <= {row.task_id for row in starting.instances(run_id=RUN)})
    before = {(row.task_id, row.id) for row in starting.instances(run_id=RUN)}
    starting.stop_component("triggerer")  # kill -9, while all wait
    starting.start_component("triggerer")
    taken = (
        "SELECT count(*) FROM trigger WHERE triggerer_id = (SELECT max(id) FROM job WHERE job_type = 'TriggererJob')"
    )
    starting.wait_for("the new triggerer", lambda: starting.rows(taken)[0][0] >= len(waiting))
    assert {starting.by_task()[task_id] for task_id in waiting} == {"deferred"}
    assert before <= {(row.task_id, row.id) for row in starting.instances(run_id=RUN)}, "it registers nothing again"
    (starting.work / f"{RUN}.there").touch()
    starting.wait_for("the end", lambda: starting.run_state("starts", RUN) in {"success", "failed"})
    assert starting.by_task() == ENDS
    assert (starting.work / "called").read_text() == "callback"
    assert starting.worker_logs() == {"bad", "reschedule", "callback", "external", "group.late", "group.soft"}
    assert {row.try_number for row in starting.instances(run_id=RUN)} == {1}
    assert not [row for row in starting.instances(run_id=RUN) if row.state == "sensing"]
    versions = "SELECT count(*) FROM dag_version WHERE dag_id = 'starts'"
    assert starting.rows(versions)[0][0] == 1, "each parse makes the same blueprints"
