"""Operators within a task's own code: the task runs to its end, as it does without sensorpool.

The cases are those of public reports: apache/airflow #33678, #39413, #41470, #47511 and #56204.
"""

import re
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.seen import Seen, look

RUN = "run1"
POOLED = {"plain", "wrapped", "looks"}
VALUES = {
    "python": "python is here",
    "taskflow": "taskflow is here",
    "group.operator": "group.operator is here",
    "patient": "both are here",
    "rescheduled": "rescheduled is here",
}


@pytest.fixture(scope="module")
def seen(cluster: Cluster) -> dict[str, Seen]:
    """Both runs: each file comes once its sensor waits."""
    found = {}
    for mode in ("native", "pooled"):
        cluster.trigger(f"{mode}_nested", RUN)
        cluster.wait_for(f"the end of {mode}", lambda m=mode: _end(cluster, f"{m}_nested"), patience=480)
        found[mode] = look(cluster, f"{mode}_nested", RUN)
    return found


def test_only_the_task_that_runs_leaves_its_slot(cluster: Cluster, seen: dict[str, Seen]) -> None:
    assert {row.task_id for row in cluster.instances(dag_id="pooled_nested")} == POOLED
    assert not cluster.instances(dag_id="native_nested")


def test_each_task_runs_to_its_end(seen: dict[str, Seen]) -> None:
    native, pooled = _comparable(seen["native"]), _comparable(seen["pooled"])
    for kind, found in native.items():
        assert pooled[kind] == found, kind
    for task_id, value in VALUES.items():
        assert seen["pooled"].xcoms[task_id, -1, "return_value"] == value
        assert seen["pooled"].callbacks["success", None, task_id, -1, 1] == 1
    assert [seen["pooled"].xcoms["mapped", n, "return_value"] for n in (0, 1)] == [
        f"mapped is here {n}" for n in (1, 2)
    ]
    assert [seen["pooled"].states[task_id, -1][0] for task_id in ("taken", "not_taken")] == ["success", "skipped"]


def test_the_log_says_once_why_a_sensor_that_is_rescheduled_runs_natively(cluster: Cluster, seen: Any) -> None:
    log = cluster.log_of("native_nested", RUN, "looks")
    assert len([line for line in log if "Poking for file" in line]) > 1
    [line] = [line for line in log if "runs natively" in line]
    assert "the patterns of [sensorpool] include and exclude leave it out" in line


@pytest.mark.parametrize(("mode", "exception"), [("native", None), ("pooled", "AirflowException")])
def test_callbacks_of_a_run_that_fails_get_what_the_docs_say(
    cluster: Cluster, mode: str, exception: str | None
) -> None:
    cluster.trigger(f"{mode}_run_fails", RUN)
    cluster.wait_for("its end", lambda: cluster.run_state(f"{mode}_run_fails", RUN) == "failed")
    assert bool(cluster.instances(dag_id=f"{mode}_run_fails")) is (mode == "pooled")
    cluster.wait_for("its callback", lambda: look(cluster, f"{mode}_run_fails", RUN).callbacks)
    assert list(look(cluster, f"{mode}_run_fails", RUN).callbacks) == [("failure", exception, "run", -1, 1)]


def _comparable(seen: Seen) -> dict[str, Any]:
    """Return what was seen, without the values that name another run in each mode."""
    xcoms = {key: "" if key[0] == "trigger" else value for key, value in seen.xcoms.items()}
    return {"states": seen.states, "callbacks": seen.callbacks} | {"xcoms": xcoms}


def _end(cluster: Cluster, dag_id: str) -> bool:
    """Whether a run has ended; make the file of each sensor that has poked twice, or waits in the pool."""
    for log in (cluster.folder / "logs" / f"dag_id={dag_id}").rglob("attempt=1.log"):
        text = log.read_text(errors="replace")
        if text.count("Poking for file") > 1 or "waits in the pool as instance" in text:
            task_id = re.search(r"task_id=([^/]+)", str(log))[1]
            for name in (f"{dag_id}_{task_id}_first", f"{dag_id}_{task_id}"):
                (cluster.work / name).touch()
    return cluster.run_state(dag_id, RUN) in {"success", "failed"}
