"""The Airflow whose sensors begin without a worker: `start = scheduler` is a setting of all of it."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster import HERE, Cluster


class Starting(Cluster):
    """Airflow and the pool, with the DAGs of sensors that begin without a worker."""

    password = "opensesame"
    dags = HERE / "start"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of all components, with a Connection."""
        connection = {"conn_type": "generic", "login": "there", "password": self.password}
        return super().environment | {"AIRFLOW_CONN_STORE": json.dumps(connection)}

    def by_task(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state of each task of a run."""
        return {task_id: state for (task_id, _), (state, _) in self.states(dag_id, run_id).items()}

    def begun_on_workers(self, dag_id: str, run_id: str = "") -> set[str]:
        """Return the tasks of a DAG, or of a run, that a worker has begun; the log of a trigger has another name."""
        return {_task_of(log) for log in self._logs(dag_id, run_id) if ".trigger." not in log.name}

    def reasons_to_begin(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return what the triggers of a run have logged of why their tasks begin on workers."""
        texts = {_task_of(log): log.read_text(errors="replace") for log in self._logs(dag_id, run_id)}
        return {task_id: text[-2_000:] for task_id, text in texts.items() if "starts on a worker" in text}

    def say(self, name: str, what: str) -> None:
        """Have a condition do something: the file is there at once, with all of its text."""
        path: Path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(what)
        path.with_suffix(".new").rename(path)

    def _logs(self, dag_id: str, run_id: str) -> Iterator[Path]:
        folder = self.folder / "logs" / f"dag_id={dag_id}"
        return (folder / f"run_id={run_id}" if run_id else folder).rglob("attempt=*.log*")


def _task_of(log: Path) -> str:
    return log.parent.name.removeprefix("task_id=")
