"""The Airflow of this suite, with what a company has installed beside it."""

import json
import urllib.error
import urllib.parse
from http import HTTPStatus
from pathlib import Path
from typing import Any

from harness.airflow_cluster import AirflowCluster

HERE = Path(__file__).parent


class Cluster(AirflowCluster):
    """Airflow and the pool, with the suite's DAGs."""

    dags = HERE / "dags"
    site = HERE / "site"  # sensors, callbacks, an e-mail back end

    @property
    def environment(self) -> dict[str, str]:
        """As of any Airflow, with the company's e-mail."""
        return super().environment | {"AIRFLOW__EMAIL__EMAIL_BACKEND": "company.send_email"}

    def log_of(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> list[str]:
        """Return the lines of a task's log, as its page in Airflow shows them; none before its try has begun."""
        path = f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id)}/taskInstances/{task_id}/logs/{try_number}"
        try:
            found = self.api("GET", f"{path}?map_index={map_index}&full_content=true")
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return []
        return [str(line) for line in found["content"]]  # the exception of a line stands beside its event

    def lines(self, dag_id: str, run_id: str, words: str) -> int:
        """Count lines in the logs of a run's tasks, as they lie in the folder: there may be no API server to ask."""
        folder = self.folder / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}"
        return sum(path.read_text(errors="replace").count(words) for path in folder.rglob("*.log*") if path.is_file())

    def notes(self) -> list[dict[str, Any]]:
        """Return what the company's sensors and callbacks noted."""
        return [json.loads(path.read_text()) for path in sorted((self.work / "notes").glob("*.json"))]
