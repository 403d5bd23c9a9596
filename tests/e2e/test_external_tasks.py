"""ExternalTaskSensor, which the pool pokes through an adapter, against the native one."""

from tests.e2e.cluster import Cluster

AT = "2026-11-02T06:00:00Z"
HOUR_BEFORE = "2026-11-02T05:00:00Z"
# Airflow says 404 to the first poke, which is on the worker in both
NOT_POOLED = {"no_such_group"}


def test_ends_as_the_native_sensor_does(cluster: Cluster) -> None:
    for mode in ("native", "pooled"):
        cluster.trigger(f"{mode}_downstream", "run1", AT)
    cluster.trigger("native_upstream", "run1", AT)
    cluster.trigger("native_upstream", "run2", HOUR_BEFORE)

    def states(mode: str) -> dict[str, str | None]:
        return {task: state for (task, _), (state, _) in cluster.states(f"{mode}_downstream", "run1").items()}

    def wait() -> bool:
        found = states("pooled"), states("native")
        return all(state in {"deferred", "running", "failed"} for one in found for state in one.values()) and set(
            found[0].values()
        ) <= {"deferred", "failed"}

    cluster.wait_for("all to wait", wait)
    (cluster.work / "upstream").write_text("land")
    for mode in ("native", "pooled"):
        cluster.wait_for(
            f"the end of {mode}", lambda m=mode: cluster.run_state(f"{m}_downstream", "run1") in {"success", "failed"}
        )
    assert states("pooled") == states("native")
    assert {"success", "failed", "skipped"} <= set(states("pooled").values())
    pooled = {row.task_id for row in cluster.instances(dag_id="pooled_downstream")}
    assert pooled == states("pooled").keys() - NOT_POOLED
    log = "\n".join(cluster.log_of("pooled_downstream", "run1", "task_failed"))
    assert "Some of the external tasks ['bad'] in DAG native_upstream failed" in log
