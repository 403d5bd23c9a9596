"""What operators do, and what happens to them, while sensors wait."""

import time

import pytest
from sqlalchemy import text

from tests.e2e.cluster import Cluster
from tests.e2e.fleet import Fleet


@pytest.mark.parametrize("component", ["pool", "celery"])
def test_no_sensor_fails_when_a_process_is_killed(cluster: Cluster, fleet: Fleet, component: str) -> None:
    fleet.wait()
    cluster.stop_component(component)
    fleet.land()  # it lands while they are away
    cluster.start_component(component)
    fleet.ends_well()


@pytest.mark.parametrize("new_state", ["success", "failed", "cleared"])
def test_marked_or_cleared_tasks_are_poked_no_more(cluster: Cluster, fleet: Fleet, new_state: str) -> None:
    fleet.wait(count=2, distinct=2)
    first = cluster.instances(run_id=fleet.run_id)
    if new_state == "cleared":
        cluster.api(
            "POST",
            "/dags/fleet/clearTaskInstances",
            {"dry_run": False, "only_failed": False, "dag_run_id": fleet.run_id, "task_ids": ["wait"]},
        )
    else:
        for index in range(2):
            path = f"/dags/fleet/dagRuns/{fleet.run_id}/taskInstances/wait/{index}"
            cluster.api("PATCH", path, {"new_state": new_state})
    ids = [row.id for row in first]

    def cancelled() -> bool:
        states = [cluster.instances(id=one)[0].state for one in ids]
        return states == ["cancelled", "cancelled"]

    cluster.wait_for("their instances cancelled", cancelled)
    stopped = time.time()
    if new_state == "cleared":
        cluster.wait_for("their next try", lambda: fleet.states() == {"deferred": 2})
        fleet.land()
        cluster.wait_for("its success", lambda: fleet.states() == {"success": 2})
        assert [row.try_number for row in cluster.instances(run_id=fleet.run_id, state="success")] == [2, 2]
    else:
        fleet.land()  # who looked would see it, and write it back
        before, until = fleet.rows(), time.monotonic() + 5  # two intervals and a half
        while time.monotonic() < until:
            assert fleet.rows() == before
        assert fleet.states() == {new_state: 2}
        assert max(fleet.pokes()) < stopped + 3  # an interval and a tick: of a job that had loaded them before
        assert {row.state for row in cluster.instances(run_id=fleet.run_id)} == {"cancelled"}


def test_a_value_that_airflow_cannot_carry_ends_its_own_task_only(cluster: Cluster, fleet: Fleet) -> None:
    values = {'"a\\u0000b"': "failed", '"a\\ud800b"': "failed", str(2**80): "failed", '{"__type": 1}': "success"}
    fleet.wait(count=5, distinct=5)
    triggerer = cluster.processes["triggerer"]
    for flag, value in zip(fleet.flags, values, strict=False):
        (cluster.work / flag).write_text(f"xcom {value}")
    cluster.wait_for("their ends", lambda: fleet.states()["deferred"] == 1)
    (cluster.work / fleet.flags[-1]).write_text("land")
    cluster.wait_for("the end of all", fleet.is_over)
    assert triggerer.poll() is None
    found = cluster.states(fleet.dag_id, fleet.run_id)
    ends = [found["wait", index][0] for index in range(5)]
    assert ends == [*values.values(), "success"]  # as natively: Airflow's database refuses them


def test_marked_while_no_triggerer_runs(cluster: Cluster, fleet: Fleet) -> None:
    fleet.wait(count=1, distinct=1)
    instance = cluster.instances(run_id=fleet.run_id)[0]
    cluster.stop_component("triggerer")
    cluster.api("PATCH", f"/dags/fleet/dagRuns/{fleet.run_id}/taskInstances/wait/0", {"new_state": "success"})
    cluster.wait_for("the instance cancelled", lambda: cluster.instances(id=instance.id)[0].state == "cancelled")
    cluster.start_component("triggerer")
    assert fleet.states() == {"success": 1}


def test_switched_off_while_they_wait_and_then_drained(cluster: Cluster, fleet: Fleet) -> None:
    fleet.wait(count=4, distinct=2)
    cluster.stop_component("celery")
    cluster.start_component("celery", AIRFLOW__SENSORPOOL__ENABLED="False")
    served = fleet.flags[0]
    (cluster.work / served).write_text("land")
    cluster.wait_for("those who wait to be served", lambda: fleet.states()["success"] == 2)
    done = cluster.run("sensorpool", "drain", "--json")
    assert '"handed_back": 2' in done.stdout
    cluster.wait_for("the others to run natively", lambda: fleet.states()["running"] == 2)
    fleet.land()
    cluster.wait_for("all of them", lambda: fleet.states() == {"success": 4})
    cluster.stop_component("celery")
    cluster.start_component("celery")


def test_handed_back_on_another_day(cluster: Cluster) -> None:
    """As natively: in poke mode it waits for the day on which its task started, in reschedule mode for the new one."""

    def states() -> dict[str, str | None]:
        return {task: state for (task, _), (state, _) in cluster.states("dated", "run").items()}

    def natively(since: float) -> set[int]:
        notes = cluster.notes()
        return {
            note["pid"]
            for note in notes
            if note["kind"] == "poke" and note["flag"] == "dated_monday" and note["at"] > since
        }

    (cluster.work / "today").write_text("monday")
    cluster.trigger("dated", "run")
    cluster.wait_for("all to wait", lambda: set(states().values()) == {"deferred"})
    (cluster.work / "today").write_text("tuesday")
    (cluster.work / "dated_tuesday").write_text("land")
    cluster.run("sensorpool", "drain")
    drained = time.time()
    cluster.wait_for("the one of the new day", lambda: states()["reschedule"] == "success")
    cluster.wait_for("the others to go on", lambda: len(natively(drained)) == 2)
    words = "flag differs in this process; the task goes on with the value that it started with"
    cluster.wait_for("their logs", lambda: cluster.lines("dated", "run", words) == 2)
    assert states() == {"constructor": "running", "dag_file": "running", "reschedule": "success"}
    (cluster.work / "dated_monday").write_text("land")
    cluster.wait_for("all of them", lambda: set(states().values()) == {"success"})


def test_a_dead_pool_gives_its_tasks_back(cluster: Cluster, fleet: Fleet) -> None:
    cluster.stop_component("triggerer")
    cluster.start_component(
        "triggerer", AIRFLOW__SENSORPOOL__ON_POOL_DEAD="native", AIRFLOW__SENSORPOOL__POOL_DEAD_AFTER="5"
    )
    fleet.wait(count=3, distinct=1)
    cluster.stop_component("pool")
    cluster.wait_for("them to run natively", lambda: fleet.states() == {"running": 3})
    fleet.land()
    cluster.wait_for("all of them", lambda: fleet.states() == {"success": 3})
    cluster.start_component("pool")
    cluster.stop_component("triggerer")
    cluster.start_component("triggerer")


def test_connections_and_kinds_of_sensors(cluster: Cluster) -> None:
    with cluster.database.connect() as connection:
        connection.execute(text("CREATE TABLE arrivals (id int)"))
    url = cluster.postgres
    cluster.api(
        "POST",
        "/connections",
        {
            "connection_id": "warehouse",
            "conn_type": "postgres",
            "host": "127.0.0.1",
            "port": url.port,
            "login": "sensorpool",
            "password": url.password,
            "schema": "postgres",
        },
    )
    cluster.trigger("kinds", "run1", at="2100-01-01T00:00:00+00:00")
    waiting = ("sql", -1), ("date_time", -1)
    cluster.wait_for(
        "sensors of each kind", lambda: all(cluster.states("kinds", "run1")[one][0] == "deferred" for one in waiting)
    )
    cluster.wait_for("the native one", lambda: cluster.states("kinds", "run1")[("secret", -1)][0] == "running")
    cluster.wait_for("its line", lambda: "holds a secret" in "\n".join(cluster.log_of("kinds", "run1", "secret")))
    cluster.api("PATCH", "/dags/kinds/dagRuns/run1/taskInstances/date_time", {"new_state": "success"})
    log = "\n".join(cluster.log_of("kinds", "run1", "secret"))
    assert url.password not in log
    (cluster.work / url.password).write_text("land")
    with cluster.database.connect() as connection:
        connection.execute(text("INSERT INTO arrivals VALUES (1)"))
    cluster.wait_for("the row", lambda: cluster.run_state("kinds", "run1") == "success")
    assert {row.task_id for row in cluster.instances(dag_id="kinds")} == {"sql", "date_time"}
    said = cluster.run("sensorpool", "doctor", check=False).stdout  # on a busy machine a heartbeat may be late
    assert "Connections and Variables can be read from here" in said


def test_what_a_dag_file_changes_in_the_environment_is_for_its_worker(cluster: Cluster) -> None:
    dag_id, run_id, name = "environment", "run1", "COMPANY_REGION"
    cluster.trigger(dag_id, run_id, path=str(cluster.work / "environment"))
    changed = "which its task has changed in the environment"
    why = {
        "reads": f"its code names {name}, {changed}",
        "prepared": f"its code names {name}, {changed}",
        "connection": f"its code names AIRFLOW_CONN_COMPANY_FILES, {changed}",
        "asks_for_nothing": "waits in the pool as instance",
    }
    for task_id, said in why.items():
        cluster.wait_for(
            f"{said!r} of {task_id}", lambda t=task_id, s=said: s in str(cluster.log_of(dag_id, run_id, t))
        )
    assert {row.task_id for row in cluster.instances(run_id=run_id, dag_id=dag_id)} == {"asks_for_nothing"}
    for flag in ("environment_north", "environment_south", "environment"):
        (cluster.work / flag).write_text("land")
    cluster.wait_for("their success", lambda: cluster.run_state(dag_id, run_id) == "success")


def test_a_run_that_is_triggered_and_waited_for(cluster: Cluster) -> None:
    cluster.trigger("parent", "run1", flag="child")
    cluster.wait_for("the parent to wait", lambda: cluster.states("parent", "run1")[("run_child", -1)][0] == "deferred")
    (cluster.work / "child").write_text("land")
    cluster.wait_for("its end", lambda: cluster.run_state("parent", "run1") == "success")
    assert [row.state for row in cluster.instances(dag_id="parent")] == ["success"]


def test_a_test_run_is_native(cluster: Cluster) -> None:
    (cluster.work / "of_test").write_text("land")
    cluster.stop_component("scheduler")  # it takes up a test run, too, if that is slow
    try:
        done = cluster.run("airflow", "dags", "test", "one", "--conf", '{"flag": "of_test"}')
    finally:
        cluster.start_component("scheduler")
    assert "this is a test run" in done.stdout + done.stderr
    assert not [row for row in cluster.instances(dag_id="one") if "of_test" in row.poke_context]


def test_airflow_knows_the_provider_and_its_options(cluster: Cluster) -> None:
    listed = cluster.run("airflow", "config", "list", "--section", "sensorpool", "--show-values").stdout
    for name in ("enabled = True", "first_poke = worker", "shards = 4", "shard_code_upper_limit = 10000"):
        assert name in listed
    assert "sensorpool" in cluster.run("airflow", "providers", "list").stdout
    shown = cluster.run("sensorpool", "config", "--json").stdout
    assert '"database_schema": "sensorpool"' in shown
    assert cluster.postgres.password not in shown
