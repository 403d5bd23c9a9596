"""Sensors that begin without a worker, on an Airflow of their own: `start = scheduler` is a setting of all of it."""

from itertools import count

from tests.e2e.starting import Starting

RUN = "run1"
FILES = [f"file{number}" for number in range(20)]
WAITING = {*FILES, "reschedule", "connected", "callback", "external"}
ENDS = dict.fromkeys([*WAITING, "done", "secret", "time", "delta"], "success") | {
    "group.late": "failed",
    "group.soft": "skipped",
    "bad": "failed",
    "limited": "failed",
}


def test_from_the_scheduler_to_the_end_without_a_worker(starting: Starting) -> None:
    starting.trigger("starts", RUN, "2026-01-01T00:00:00Z")
    starting.wait_for(
        "all instances", lambda: {row.task_id for row in starting.instances(dag_id="starts", run_id=RUN)} >= WAITING
    )
    before = {(row.task_id, row.id) for row in starting.instances(dag_id="starts", run_id=RUN)}
    starting.stop_component("triggerer")  # kill -9, while all wait
    starting.start_component("triggerer")
    taken = (
        "SELECT count(*) FROM trigger WHERE triggerer_id = (SELECT max(id) FROM job WHERE job_type = 'TriggererJob')"
    )
    starting.wait_for("the new triggerer", lambda: starting.rows(taken)[0][0] >= len(WAITING))
    assert {starting.by_task("starts", RUN)[task_id] for task_id in WAITING} == {"deferred"}
    assert before <= {(row.task_id, row.id) for row in starting.instances(dag_id="starts", run_id=RUN)}, (
        "it registers nothing again"
    )
    starting.wait_for("pokes on workers", lambda: starting.lines("starts", RUN, "pokes on a worker again") > 1)
    assert starting.by_task("starts", RUN)["secret"] in {"deferred", "scheduled", "queued", "running"}, (
        "it is never rescheduled"
    )
    (starting.work / f"{RUN}.{starting.password}").touch()
    (starting.work / f"{RUN}.there").touch()
    starting.wait_for("the end", lambda: starting.run_state("starts", RUN) in {"success", "failed"})
    assert starting.by_task("starts", RUN) == ENDS
    assert (starting.work / "called").read_text() == "callback"
    on_workers = {"bad", "secret", "callback", "external", "group.late", "group.soft", "limited"}
    assert starting.begun_on_workers("starts") == on_workers
    tries = {(row.task_id, row.try_number) for row in starting.instances(dag_id="starts", run_id=RUN)}
    assert {task_id for task_id, number in tries if number > 1} == {"limited"}, "its execution_timeout is retried"
    assert starting.lines("starts", RUN, "execution_timeout of 12 s") > 1
    assert not [row for row in starting.instances(dag_id="starts", run_id=RUN) if row.state == "sensing"]
    versions = "SELECT count(*) FROM dag_version WHERE dag_id = 'starts'"
    assert starting.rows(versions)[0][0] == 1, "each parse makes the same blueprints"


def test_a_class_that_a_worker_has_proved_begins_without_one(starting: Starting) -> None:
    runs = (f"proves{number}" for number in count())
    versions = "SELECT count(*) FROM dag_version WHERE dag_id = 'proves'"
    proofs = "SELECT op_classpath FROM sensorpool.class_proof"

    def begins_on_worker() -> bool:
        run_id = next(runs)
        starting.trigger("proves", run_id)
        starting.wait_for(run_id, lambda: starting.instances(run_id=run_id))
        (starting.work / run_id).write_text("land")
        starting.wait_for("its end", lambda: starting.run_state("proves", run_id) == "success")
        folder = starting.folder / "logs" / "dag_id=proves" / f"run_id={run_id}"
        return any(folder.rglob("attempt=1.log"))

    assert begins_on_worker()
    assert [row.op_classpath for row in starting.rows(proofs)] == ["company.FlagSensor"]
    starting.wait_for("a sensor without a worker", lambda: not begins_on_worker())  # the triggerer looks again
    assert not begins_on_worker()
    assert starting.rows(versions)[0][0] == 1
