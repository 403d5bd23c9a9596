"""What operators do while sensors wait that have begun without a worker. Airflow deletes no run that is under way."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from tests.e2e.starting import Starting


@contextmanager
def without_triggerer(starting: Starting) -> Iterator[None]:
    """No triggerer runs, which would hear of a task's end."""
    starting.stop_component("triggerer")
    try:
        yield
    finally:
        starting.start_component("triggerer")


def delete_tasks(starting: Starting, dag_id: str, run: str) -> None:
    """Delete task instances."""
    for number in range(2):
        starting.api("DELETE", f"/dags/{dag_id}/dagRuns/{run}/taskInstances/wait{number}")


def fail_run(starting: Starting, dag_id: str, run: str) -> None:
    """Mark a run as failed."""
    starting.api("PATCH", f"/dags/{dag_id}/dagRuns/{run}", {"state": "failed"})


def delete_dag(starting: Starting, dag_id: str, run: str) -> None:  # as the others
    """Delete a DAG."""
    starting.api("DELETE", f"/dags/{dag_id}")


@pytest.mark.parametrize(
    ("act", "triggerer"),
    [
        (delete_tasks, "runs"),  # Airflow's audit log has no entry of that for rescue
        (fail_run, "runs"),
        (fail_run, "is_away"),
        (delete_dag, "runs"),
        (delete_dag, "is_away"),
    ],
)
def test_what_has_gone_waits_no_more(
    starting: Starting, act: Callable[[Starting, str, str], None], triggerer: str
) -> None:
    dag_id, run = "gone_dag" if act is delete_dag else "gone", f"{act.__name__}_{triggerer}"
    starting.trigger(dag_id, run)
    count = 2 if act is delete_dag else 3
    starting.wait_for("all to wait", lambda: states(starting, run) == ["sensing"] * count)
    away: AbstractContextManager[None] = nullcontext() if triggerer == "runs" else without_triggerer(starting)
    left = 1 if act is delete_tasks else 0
    with away:
        act(starting, dag_id, run)
        starting.wait_for(
            "their end", lambda: sorted(states(starting, run)) == ["cancelled"] * (count - left) + ["sensing"] * left
        )
    starting.say(f"gone/{run}", "")


def test_a_paused_dag_goes_on_as_every_deferred_task_does(starting: Starting) -> None:
    starting.trigger("paused", "run1")
    starting.wait_for("all to wait", lambda: states(starting, "run1", "paused") == ["sensing"] * 2)
    starting.api("PATCH", "/dags/paused", {"is_paused": True})
    starting.say("gone/run1", "")
    starting.wait_for("their success", lambda: set(starting.by_task("paused", "run1").values()) == {"success"})
    assert states(starting, "run1", "paused") == ["success"] * 2


def test_a_task_that_is_removed_from_its_dag_waits_no_more(starting: Starting) -> None:
    """Airflow marks it as removed, at the next look at its run."""
    starting.trigger("gone", "removed")
    starting.wait_for("all to wait", lambda: states(starting, "removed") == ["sensing"] * 3)
    starting.say("removed", "")
    starting.run("airflow", "dags", "reserialize")
    starting.wait_for("the task removed", lambda: starting.by_task("gone", "removed")["removed"] == "removed")
    starting.wait_for("its end", lambda: sorted(states(starting, "removed")) == ["cancelled", "sensing", "sensing"])
    starting.say("gone/removed", "")
    starting.wait_for("the others", lambda: starting.run_state("gone", "removed") == "success")


def states(starting: Starting, run: str, dag_id: str = "") -> list[str]:
    """Return the states of the pool's instances of a run."""
    return [row.state for row in starting.instances(run_id=run, **({"dag_id": dag_id} if dag_id else {}))]
