"""Ten DAGs with sensors, one DAG with sensors that reschedule themselves, and two whose sensors start all at once.

See `benchmarks.airflow_run`.
"""

from airflow.sdk import DAG, task
from flags import FlagSensor, on_success


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

# a task with a callback resumes on a worker; a task without one ends in the triggerer
for name, given in {"direct": {}, "called_back": {"on_success_callback": on_success}}.items():
    with DAG(name, schedule=None, max_active_tasks=2000):
        FlagSensor.partial(task_id="wait", retries=0, poke_interval=2, timeout=600, **given).expand(flag=flags())
