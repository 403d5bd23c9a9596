"""Tasks whose own code executes another operator, each twice: native_ is kept out of the pool by the configuration."""

from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import BranchPythonOperator, PythonOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, BaseOperator, TaskGroup, get_current_context, task
from company import WORK, PatientSensor, WrappedSensor, noting

PATIENT = {"poke_interval": 2, "timeout": 600}
CALLBACKS = {f"on_{kind}_callback": noting(kind) for kind in ("success", "failure", "retry", "skipped")}


FILE = f"{WORK}/{{{{ ti.dag_id }}}}_{{{{ ti.task_id }}}}"


def wait_for_file(context: Any, **arguments: Any) -> str:
    """Have a sensor wait within the task that runs, and go on after it."""
    ti = context["ti"]
    path = f"{WORK}/{ti.dag_id}_{ti.task_id}"
    FileSensor(task_id="inner", filepath=path, dag=context["dag"], **PATIENT, **arguments).execute(context)
    ti.xcom_push(key="after", value=ti.task_id)
    return f"{ti.task_id} is here"


class Loading(BaseOperator):
    """An operator that has a sensor."""

    def execute(self, context: Any) -> Any:
        """Wait, and go on."""
        return wait_for_file(context)


def wait_here(**context: Any) -> str:
    """Wait with the context that Airflow gives."""
    return wait_for_file(context)


def look_now_and_then(**context: Any) -> str:
    """Wait by a sensor that reschedules the whole task."""
    return wait_for_file(context, mode="reschedule")


def choose(**context: Any) -> str:
    """Choose a branch after the wait."""
    wait_for_file(context)
    return "taken"


def start(**context: Any) -> str:
    """Start a run, which Airflow waits for once this code has ended."""
    TriggerDagRunOperator(
        task_id="inner", trigger_dag_id="nested_triggered", wait_for_completion=True, poke_interval=1
    ).execute(context)
    return "not reached"


with DAG("nested_triggered", schedule=None):
    EmptyOperator(task_id="one")

with DAG("nested_failing", schedule=None):
    PythonOperator(task_id="one", python_callable=lambda: 1 / 0)

for mode in ("native", "pooled"):
    # a few at a time: each holds a process while it waits
    with DAG(f"{mode}_nested", schedule=None, catchup=False, default_args=CALLBACKS, max_active_tasks=4):
        PythonOperator(task_id="python", python_callable=wait_here) >> EmptyOperator(task_id="after_python")

        @task
        def taskflow() -> str:
            """Wait with the context of the task that runs."""
            return wait_for_file(get_current_context())

        taskflow() >> EmptyOperator(task_id="after_taskflow")

        @task
        def mapped(number: int, **context: Any) -> str:
            """Wait in each of several tasks."""
            return f"{wait_for_file(context)} {number}"

        mapped.expand(number=[1, 2])

        with TaskGroup("group"):
            Loading(task_id="operator")
        PatientSensor(task_id="patient", filepath=FILE, **PATIENT)
        WrappedSensor(task_id="wrapped", filepath=FILE, **PATIENT)
        branch = BranchPythonOperator(task_id="branch", python_callable=choose)
        branch >> [EmptyOperator(task_id="taken"), EmptyOperator(task_id="not_taken")]
        PythonOperator(task_id="rescheduled", python_callable=look_now_and_then)
        PythonOperator(task_id="trigger", python_callable=start)
        FileSensor(task_id="plain", filepath=FILE, **PATIENT)
        FileSensor(task_id="looks", filepath=FILE, mode="reschedule", **PATIENT)

    with DAG(f"{mode}_run_fails", schedule=None, catchup=False, default_args=CALLBACKS):
        TriggerDagRunOperator(task_id="run", trigger_dag_id="nested_failing", wait_for_completion=True, poke_interval=1)
