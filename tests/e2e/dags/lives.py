"""Lives of a sensor, in the shortest form: how it begins to wait, and each way on from there."""

from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from company import FlagSensor, noting

PATIENT = {"poke_interval": 2, "timeout": 600, "retries": 0}
CALLBACKS = {f"on_{kind}_callback": noting(kind) for kind in ("success", "failure", "retry")}

with DAG("lives", schedule=None, max_active_tasks=4):  # a slow machine starts few at once
    for name, given in {
        "lands": {},
        "lands_in_reschedule_mode": {"mode": "reschedule"},
        "resumes": CALLBACKS,
        "brings_a_value": {},
        "times_out": {"timeout": 6, "retries": 2, **CALLBACKS},
        "retries": {"retries": 1, "retry_delay": timedelta(seconds=10), **CALLBACKS},
        "is_skipped": {},
        "is_marked": {},
        "is_cleared": {},
        "goes_back": {},
        "goes_back_in_reschedule_mode": {"mode": "reschedule"},
    }.items():
        FlagSensor(task_id=name, flag=f"{{{{ run_id }}}}_{name}", **(PATIENT | given)) >> EmptyOperator(
            task_id=f"after_{name}"
        )
