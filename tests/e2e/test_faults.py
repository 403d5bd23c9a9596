"""The fault table on a real Airflow: what breaks while conditions land, and what must come of the tasks.

Airflow's own broker is left out: what Celery loses of Airflow's is Airflow's to find. Times of recovery are Airflow's
too: 10 s for the triggers of a dead triggerer, and `resume_hold` (10 s after registration) for whom a worker ends.
"""

import os
import time

import pytest
import redis

from harness.until import until
from tests.e2e.cluster import Cluster
from tests.e2e.outage import Outage, airflow_without_database, frozen, has_beaten_since, revive, watch

IS_FULL = os.environ.get("SENSORPOOL_TEST_FULL") == "1"
LONG = 60.0  # seconds of an outage in the full profile
AT_ONCE = 500 if IS_FULL else 30


@pytest.fixture(scope="module", autouse=True)
def _watched(cluster: Cluster) -> None:
    watch(cluster)


def outlasted(cluster: Cluster, sensors: Outage) -> None:
    """Land in the middle of an outage, and wait until the pool has done its part."""
    began = time.monotonic()
    sensors.land()
    sensors.settle()
    if IS_FULL:
        cluster.sleep_until(began + LONG)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_row_47_the_api_server_is_away(cluster: Cluster, how: str) -> None:
    sensors = Outage(cluster, f"api_server_{how}", "47")
    sensors.wait()

    def land() -> None:
        outlasted(cluster, sensors)
        cluster.wait_for("direct ends", lambda: list(sensors.states().values()).count("success") == 4)
        cluster.wait_for("the others to be held", lambda: sensors.lines("API server does not answer") == 4)

    if how == "frozen":
        with frozen(cluster, "api-server"):
            land()
    else:
        cluster.stop_component("api-server")
        land()
        cluster.start_component("api-server")
    cluster.wait_for("its answer", cluster.is_healthy)
    sensors.end_well(time.time())


def test_row_47_airflows_database_is_away(cluster: Cluster) -> None:
    sensors = Outage(cluster, "database_away", "47")
    sensors.wait()
    with airflow_without_database(cluster):
        outlasted(cluster, sensors)
        cluster.wait_for("the triggerer's end", lambda: cluster.processes["triggerer"].poll() is not None)
    back = time.time()
    cluster.wait_for("health", lambda: not revive(cluster) and has_beaten_since(cluster, back) and cluster.is_healthy())
    sensors.end_well(time.time())


@pytest.mark.parametrize("component", ["triggerer", "scheduler"])
def test_row_47_a_component_is_away(cluster: Cluster, component: str) -> None:
    sensors = Outage(cluster, f"{component}_away", "47")
    sensors.wait()
    cluster.stop_component(component)
    outlasted(cluster, sensors)
    started = time.time()
    cluster.start_component(component)
    cluster.wait_for("its job", lambda: is_back(cluster, component, started))
    sensors.end_well(time.time())


def is_back(cluster: Cluster, component: str, started: float) -> bool:
    """Whether a component has begun its work."""
    statement = "SELECT 1 FROM public.job WHERE job_type = :kind AND extract(epoch FROM start_date) > :started"
    return bool(cluster.rows(statement, kind=f"{component.capitalize()}Job", started=started))


def test_row_48_one_of_two_triggerers_is_killed(cluster: Cluster) -> None:
    sensors = Outage(cluster, "one_of_two_triggerers", "48")
    sensors.wait()  # the first one has all
    started = time.time()
    cluster.start_component("triggerer-2", "triggerer")
    cluster.wait_for("the second one's job", lambda: is_back(cluster, "triggerer", started))
    sensors.land()
    until("a settled one", lambda: {row.state for row in sensors.instances()} != {"sensing"}, every=0.01)
    cluster.stop_component("triggerer")
    first = (
        "SELECT 1 FROM public.trigger g JOIN public.task_instance t ON t.trigger_id = g.id JOIN public.job j"
        " ON j.id = g.triggerer_id WHERE t.run_id = :run_id AND extract(epoch FROM j.start_date) < :started"
    )
    cluster.wait_for("the others to move", lambda: not cluster.rows(first, run_id=sensors.run_id, started=started))
    sensors.end_well(time.time())
    cluster.start_component("triggerer")
    cluster.stop_component("triggerer-2")


def test_row_49_conditions_that_hold_already_when_they_register(cluster: Cluster) -> None:
    """A resume within seconds of the deferral can be marked failed by Airflow 3.3; here none may be."""
    cluster.stop_component("celery")
    cluster.start_component("celery", AIRFLOW__SENSORPOOL__FIRST_POKE="pool")
    flags = [f"true_at_once_{number}" for number in range(AT_ONCE)]
    for flag in flags:
        (cluster.work / flag).write_text("land")
    runs = [Outage(cluster, "true_at_once", "49", dag_id) for dag_id in ("fleet", "fleet_called_back")]
    for run in runs:
        run.start(flags=flags)
    for run in runs:
        cluster.wait_for("registrations", lambda run=run: len(run.instances()) == AT_ONCE, 10 * AT_ONCE)
        run.end_well(max(row.start_date for row in run.instances()) / 1000)
    cluster.stop_component("celery")
    cluster.start_component("celery")


def test_row_5_the_pools_worker_is_killed_when_it_publishes(cluster: Cluster) -> None:
    reached = cluster.work / "publishing"
    cluster.stop_component("pool")
    cluster.start_component("pool", SENSORPOOL_FAILPOINT=f"publish.before:kill:{reached}")
    sensors = Outage(cluster, "killed_publishing", "5")
    sensors.wait()
    sensors.land()
    until("the failpoint", reached.exists, every=0.01)  # its child is dead already
    cluster.stop_component("pool")
    cluster.start_component("pool")
    sensors.end_well(time.time())


def test_row_12_the_pools_redis_is_flushed(cluster: Cluster) -> None:
    sensors = Outage(cluster, "redis_flushed", "12")
    sensors.wait()
    with redis.Redis.from_url(cluster.pool_redis.url) as client:
        client.flushdb()
    sensors.land()
    sensors.end_well(time.time())


def test_row_13_the_pools_redis_is_killed(cluster: Cluster) -> None:
    sensors = Outage(cluster, "redis_killed", "13")
    sensors.wait()
    log = cluster.folder / "pool.log"
    said = len(log.read_text())
    cluster.pool_redis.kill()
    try:
        sensors.land()
        if IS_FULL:
            cluster.sleep_until(time.monotonic() + LONG)
        cluster.wait_for("its loss noticed", lambda: "Cannot connect to redis" in log.read_text()[said:])
        assert set(sensors.states().values()) == {"deferred"}
    finally:
        cluster.pool_redis.start()
    sensors.end_well(time.time())


def test_whoever_cannot_register_runs_natively(cluster: Cluster) -> None:
    """A worker each that cannot: its queue says why. Without Redis one can, and waits in the pool."""
    causes = {
        "no_database": {"AIRFLOW__SENSORPOOL__DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nowhere"},
        "no_schema": {"AIRFLOW__SENSORPOOL__DATABASE_SCHEMA": "nowhere"},
        "refused": {"AIRFLOW__SENSORPOOL__SENSORS_ENABLED": "sensorpool.sensors.TimeSensor"},
        "answer_lost": {"SENSORPOOL_FAILPOINT": "register.after_commit:raise"},
        "no_redis": {"AIRFLOW__SENSORPOOL__REDIS_URL": "redis://127.0.0.1:1/0"},
    }
    for queue, settings in causes.items():
        own = {"AIRFLOW__OPERATORS__DEFAULT_QUEUE": queue, "AIRFLOW__CELERY__WORKER_CONCURRENCY": "1"}
        cluster.start_component(queue, "celery", **own, **settings)
    sensors = Outage(cluster, "cannot_register", "G10", "unregistered")
    sensors.start()
    expected = dict.fromkeys(((queue, -1) for queue in causes), "running") | {("no_redis", -1): "deferred"}
    cluster.wait_for("them to wait", lambda: sensors.states() == expected)
    cluster.wait_for("lines that say why", lambda: sensors.lines("sensorpool: runs natively") == 4)
    for queue in causes:
        (cluster.work / f"{sensors.run_id}_{queue}").write_text("land")
    sensors.end_well(time.time(), {"success", "cancelled"})
    assert {row.task_id for row in sensors.instances()} == {"answer_lost", "no_redis"}
    for queue in causes:
        cluster.stop_component(queue)
