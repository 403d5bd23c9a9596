"""What can be seen of a run of a DAG when it is over: two runs that ought to end alike are compared by it."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.cluster import Cluster

MODES = ("native", "pooled", "worker", "scheduler")  # the name of a DAG begins with one of them


@dataclass
class Seen:
    """What can be seen of a run."""

    states: dict[tuple[str, int], tuple[str | None, int]]
    xcoms: dict[tuple[str, int, str], Any]
    callbacks: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    emails: int = 0
    asset_events: int = 0


def look(cluster: Cluster, dag_id: str, run_id: str) -> Seen:
    """Look at a run; the mode is taken out of its values."""
    xcoms = {
        (row[0], row[1], row[2]): row[3]
        for row in cluster.rows(
            "SELECT task_id, map_index, key, value FROM xcom WHERE dag_id = :dag_id AND run_id = :run_id",
            dag_id=dag_id,
            run_id=run_id,
        )
    }
    found = Seen(cluster.states(dag_id, run_id), {key: _without_mode(value) for key, value in xcoms.items()})
    for note in cluster.notes():
        if note["kind"] == "callback" and note["dag_id"] == dag_id:
            place = note["task_id"], note["map_index"], note["try_number"]
            found.callbacks[note["callback"], note["exception"], *place] += 1
        if note["kind"] == "email" and f"{dag_id}." in note["subject"]:
            found.emails += 1
    found.asset_events = cluster.rows(
        "SELECT count(*) FROM asset_event WHERE source_dag_id = :dag_id AND source_run_id = :run_id",
        dag_id=dag_id,
        run_id=run_id,
    )[0][0]
    return found


def _without_mode(value: Any) -> Any:
    text = json.dumps(value)
    for mode in MODES:
        text = text.replace(f"{mode}_", "")
    return json.loads(text)
