"""Ten DAGs with sensors to wait for, and one whose sensors reschedule themselves: see benchmarks/airflow_run.py."""

from airflow.sdk import DAG, task
from company import FlagSensor


@task
def flags(**context: object) -> list[str]:
    """Return the flags that this run waits for."""
    return context["dag_run"].conf["flags"]  # type: ignore[attr-defined]


for number in range(10):
    with DAG(f"bench_{number}", schedule=None, max_active_tasks=5000):
        FlagSensor.partial(task_id="wait", retries=0, poke_interval=10, timeout=7200).expand(flag=flags())

with DAG("native_bench_reschedule", schedule=None, max_active_tasks=5000):
    FlagSensor.partial(task_id="wait", retries=0, poke_interval=60, timeout=7200, mode="reschedule").expand(
        flag=flags()
    )
