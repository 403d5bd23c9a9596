"""As many sensors as a run asks for: flags to wait for."""

from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.sensors.date_time import DateTimeSensor
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG, task
from company import DatedSensor, FlagSensor, noting, today

PATIENT = {"poke_interval": 2, "timeout": 600}


@task
def flags(**context: object) -> list[str]:
    """Return the flags that this run waits for."""
    return context["dag_run"].conf["flags"]  # type: ignore[attr-defined]


for name, given in {"fleet": {}, "fleet_called_back": {"on_success_callback": noting("success")}}.items():
    with DAG(name, schedule=None, max_active_tasks=2000):
        FlagSensor.partial(task_id="wait", retries=0, **PATIENT, **given).expand(flag=flags())

with DAG("outage", schedule=None):
    for number in range(4):
        FlagSensor(task_id=f"direct_{number}", flag=f"{{{{ run_id }}}}_direct_{number}", retries=0, **PATIENT)
        FlagSensor(
            task_id=f"resumed_{number}",
            flag=f"{{{{ run_id }}}}_resumed_{number}",
            retries=0,
            on_success_callback=noting("success"),
            **PATIENT,
        )

with DAG("unregistered", schedule=None):
    for queue in ("no_database", "no_schema", "refused", "answer_lost", "no_redis"):
        FlagSensor(task_id=queue, queue=queue, flag=f"{{{{ run_id }}}}_{queue}", retries=0, **PATIENT)

with DAG("one", schedule=None):
    FlagSensor(task_id="wait", flag="{{ dag_run.conf['flag'] }}", **PATIENT)

with DAG("dated", schedule=None):
    DatedSensor(task_id="constructor", prefix="{{ run_id }}", retries=0, **PATIENT)
    FlagSensor(task_id="dag_file", flag=f"dated_{today()}", retries=0, **PATIENT)
    FlagSensor(task_id="reschedule", flag=f"dated_{today()}", mode="reschedule", retries=0, **PATIENT)

with DAG("kinds", schedule=None):
    SqlSensor(task_id="sql", conn_id="warehouse", sql="SELECT count(*) FROM arrivals", **PATIENT)
    DateTimeSensor(task_id="date_time", target_time="{{ dag_run.conf['at'] }}", **PATIENT)
    FlagSensor(task_id="secret", flag="{{ conn.warehouse.password }}", **PATIENT)
    PythonSensor(task_id="python", python_callable=lambda: True, **PATIENT)

with DAG("parent", schedule=None):
    TriggerDagRunOperator(
        task_id="run_child",
        trigger_dag_id="one",
        conf={"flag": "{{ dag_run.conf['flag'] }}"},
        wait_for_completion=True,
        poke_interval=2,
    )
