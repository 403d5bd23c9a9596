"""Sensors whose code lives in their DAG file: the pool loads it in a process of its bundle."""

from tests.e2e.starting import Starting


def test_sensors_that_are_defined_in_a_dag_file(starting: Starting) -> None:
    """The pool loads the file: `@task.sensor`, a function, a class; what asks for its task instance is native."""
    run_id = "taskflow1"
    starting.trigger("taskflow", run_id, "2026-01-01T00:00:00Z")
    waiting = {"closure", "function", "class"}
    starting.wait_for("all instances", lambda: waiting <= {row.task_id for row in starting.instances(run_id=run_id)})
    rows = starting.instances(run_id=run_id)
    assert {row.op_classpath.rpartition(".")[2] for row in rows} == {"DagFileSensor"}
    for name in ("closure", f"function.{run_id}", f"class.{run_id}", "native"):
        (starting.work / name).touch()
    starting.wait_for("the end", lambda: starting.run_state("taskflow", run_id) in {"success", "failed"})
    found = {task_id: state for (task_id, _), (state, _) in starting.states("taskflow", run_id).items()}
    assert found == dict.fromkeys([*waiting, "native"], "success")
    endings = {row.task_id: (row.state, row.ending, row.reason) for row in starting.instances(run_id=run_id)}
    landed = dict.fromkeys(waiting, ("success", "landed", None))
    assert endings == landed, "the pool has poked them, and handed none back"
    values = "SELECT value FROM xcom WHERE dag_id = 'taskflow' AND task_id = 'closure' AND key = 'return_value'"
    assert starting.rows(values)[0][0] == ["2026-01-01", "2026-01-01", 1]
